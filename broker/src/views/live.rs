//! A connected client of a view: what it says, what is drawn for it, what it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::job::{JobSpec, Task};
use gleaner_protocol::limits::VIEW_CREDITS;
use gleaner_protocol::{
    FrameHeader, FrameStage, FrameStrip, HostName, JobId, PictureCodec, Time, ViewNews, ViewState,
    ViewWish, WorkunitId, boottime, strip_rows,
};
use gleaner_scheduling::visualization::{Flow, Grade, PictureOf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::ws::{Message, WebSocket};

use super::parts::{Pace, Scene};
use super::{Seat, Views};
use crate::driver::{DriverGone, FrameNews, FrameStep};
use crate::limits::{
    FRAME_LATE, FRAME_RESTS, FRAME_SEND_TIME_MAX, FRAME_SETTLES, FRAME_WAITS, WATCHER_PING,
};

/// Messages to a client that wait to be taken: what is drawn has credits, the rest is rare.
const OUTBOX: usize = 16;
/// How often it is looked whether all is as it was.
const LOOK: Duration = Duration::from_secs(1);

impl Views {
    /// Serves a client of a view until it goes, its view ends, another client takes its place, or
    /// `until` is over.
    pub(crate) async fn serve(
        self,
        seat: Option<Seat>,
        socket: WebSocket,
        until: impl Future<Output = ()>,
    ) {
        let (sink, mut stream) = socket.split();
        let (out, letters) = mpsc::channel(OUTBOX);
        let writer = tokio::spawn(write(sink, letters));
        let Some(seat) = seat else {
            let _ = out.try_send(text(&ViewNews::Ended(GONE.into())));
            drop(out);
            let _ = writer.await;
            return;
        };
        let (news, mut heard) = mpsc::unbounded_channel();
        let mut until = std::pin::pin!(until);
        let mut live = Live::new(self.clone(), seat.name.clone(), seat.scene.clone(), out, news);
        loop {
            let due = live.next_deadline();
            let goes_on = tokio::select! {
                said = stream.next() => match said {
                    Some(Ok(message)) if message.is_text() || message.is_binary() => {
                        live.hear(message.as_bytes())
                    }
                    Some(Ok(message)) => !message.is_close(),
                    Some(Err(_)) | None => false,
                },
                told = heard.recv() => match told {
                    Some(news) => live.take(news).await.is_ok(),
                    None => false,
                },
                () = sleep_until(due) => live.look().await.is_ok(),
                () = live.out.closed() => false,
                () = &mut until => false,
                () = seat.end.notified() => {
                    let why = if self.is_there(&seat.name) { TAKEN } else { GONE };
                    live.say(&ViewNews::Ended(why.into()));
                    false
                }
            };
            if !goes_on || live.begin_all().await.is_err() {
                break;
            }
        }
        live.stop().await;
        drop(seat);
        drop(live);
        let _ = writer.await;
    }
}

/// Why a view ends.
const GONE: &str = "this view was closed, or its dataset was removed: open the dataset anew";
const TAKEN: &str = "this view was opened elsewhere";

/// A frame that is being drawn.
#[derive(Debug)]
struct Drawing {
    of: PictureOf,
    state: ViewState,
    size: [u32; 2],
    strips: u8,
    begun: Time,
    job: Option<JobId>,
    stage: FrameStage,
    codec: PictureCodec,
    hosts: BTreeSet<HostName>,
    hits: u32,
    parts: u32,
    /// Tasks that hosts got of it.
    given: u32,
    /// Whether it was told that it waits.
    is_told: bool,
}

impl Drawing {
    /// Whether a host that draws a part of it has to get its brick first.
    fn loads(&self) -> bool {
        let reads = matches!(self.stage, FrameStage::Layer | FrameStage::Whole);
        reads && self.hits < self.given
    }
}

struct Live {
    views: Views,
    name: String,
    scene: Scene,
    flow: Flow<ViewState>,
    pace: Pace,
    drawing: BTreeMap<u64, Drawing>,
    /// Hosts that drew the last frame of bricks.
    drawn_by: usize,
    news: mpsc::UnboundedSender<FrameNews>,
    out: mpsc::Sender<Message>,
    /// When a state that stays may be drawn without a loss.
    settles: Option<Time>,
    /// Nothing is begun before.
    rests: Option<Time>,
    is_waiting: bool,
}

impl Live {
    fn new(
        views: Views,
        name: String,
        scene: Scene,
        out: mpsc::Sender<Message>,
        news: mpsc::UnboundedSender<FrameNews>,
    ) -> Self {
        let flow = Flow::new(scene.has_coarse());
        Self {
            views,
            name,
            scene,
            flow,
            pace: Pace::default(),
            drawing: BTreeMap::new(),
            drawn_by: 0,
            news,
            out,
            settles: None,
            rests: None,
            is_waiting: false,
        }
    }

    /// Says something; a client that takes nothing is left alone.
    fn say(&self, news: &ViewNews) {
        // Pictures, which have credits, find room in any case.
        if self.out.capacity() > 2 * VIEW_CREDITS {
            let _ = self.out.try_send(text(news));
        }
    }

    /// The client says something. `false` where it is no wish at all.
    fn hear(&mut self, said: &[u8]) -> bool {
        match serde_json::from_slice(said) {
            Ok(ViewWish::State(state)) => match state.check() {
                Ok(()) => {
                    if self.flow.state((*state).clone()) {
                        self.settles = None;
                        self.views.followers.tell(&self.name, &state);
                        if !state.moving {
                            self.views.note_state(&self.name, &state);
                        }
                    }
                }
                Err(error) => self.say(&ViewNews::Refused(error.to_string())),
            },
            Ok(ViewWish::Drawn(seq)) => self.flow.drawn(seq),
            Err(error) => {
                self.say(&ViewNews::Refused(format!("no wish of a view: {error}")));
                return false;
            }
        }
        true
    }

    /// Begins what is to be drawn now.
    async fn begin_all(&mut self) -> Result<(), DriverGone> {
        if self.rests.is_some_and(|until| until > boottime()) {
            return Ok(());
        }
        self.rests = None;
        while let Some((grade, state)) = self.flow.begin_next() {
            let frame = self.views.next_frame();
            let size = self.pace.size(&state);
            let strips = self.scene.strips(self.drawn_by, size);
            let spec = self.scene.first(frame, &state, grade, size, strips);
            let Task::Frame(task) = &spec.task else { continue };
            let (stage, codec, strips) = (task.stage, task.codec, task.strips);
            let parts = spec.workunits.len();
            let layers = if stage == FrameStage::Layer { parts } else { 0 };
            self.views.board.begin(frame, layers, strips, self.news.clone());
            let drawing = Drawing {
                of: (state.seq, grade),
                state,
                size,
                strips,
                begun: boottime(),
                job: None,
                stage,
                codec,
                hosts: BTreeSet::new(),
                hits: 0,
                parts,
                given: 0,
                is_told: false,
            };
            self.drawing.insert(frame, drawing);
            if !self.submit(frame, spec).await? {
                break;
            }
        }
        Ok(())
    }

    /// Has a part of a frame drawn. `false` where that is refused.
    async fn submit(&mut self, frame: u64, spec: JobSpec) -> Result<bool, DriverGone> {
        match self.views.driver.submit_frame(spec).await? {
            Ok(job) => {
                if let Some(drawing) = self.drawing.get_mut(&frame) {
                    drawing.job = Some(job);
                }
                Ok(true)
            }
            Err(refusal) => {
                self.lose(frame, &refusal.to_string());
                Ok(false)
            }
        }
    }

    /// A frame will not come.
    fn lose(&mut self, frame: u64, why: &str) {
        if self.views.board.end(frame).is_too_large {
            self.pace.note_too_large();
        }
        let Some(drawing) = self.drawing.remove(&frame) else { return };
        self.flow.lost(drawing.of);
        self.rests = Some(boottime() + FRAME_RESTS);
        self.waits(Some(why.to_owned()));
    }

    fn waits(&mut self, why: Option<String>) {
        if why.is_some() || self.is_waiting {
            self.is_waiting = why.is_some();
            self.say(&ViewNews::Waits(why));
        }
    }

    /// A frame comes on.
    async fn take(&mut self, news: FrameNews) -> Result<(), DriverGone> {
        let FrameNews { job, frame, what } = news;
        let Some(drawing) = self.drawing.get_mut(&frame) else { return Ok(()) };
        match what {
            FrameStep::Given { host, has_chunk } => {
                drawing.hosts.insert(host);
                drawing.given += 1;
                let draws = drawing.stage != FrameStage::Join;
                // What a host gave back is given to another one.
                drawing.hits = (drawing.hits + u32::from(has_chunk && draws)).min(drawing.parts);
            }
            FrameStep::Failed(why) => {
                self.lose(frame, &why);
                // What else of it is waiting or drawn is of no use.
                self.views.driver.drop_frames(vec![job]).await?;
            }
            FrameStep::Done if drawing.stage == FrameStage::Layer => {
                drawing.stage = FrameStage::Join;
                self.drawn_by = drawing.hosts.len();
                let Drawing { ref state, size, strips, of: (_, grade), .. } = *drawing;
                let join = self.scene.join(frame, state, grade, size, strips);
                self.submit(frame, join).await?;
            }
            FrameStep::Done => {
                debug_assert!(drawing.job.is_none_or(|known| known == job), "one part at a time");
                self.deliver(frame).await?;
            }
        }
        Ok(())
    }

    /// A picture is there: it is sent, unless a newer one was.
    async fn deliver(&mut self, frame: u64) -> Result<(), DriverGone> {
        let picture = self.views.board.end(frame).picture;
        let Some(drawing) = self.drawing.remove(&frame) else { return Ok(()) };
        let Some(picture) = picture else {
            // Its host says that it is done, and has brought nothing.
            self.flow.lost(drawing.of);
            self.rests = Some(boottime() + FRAME_RESTS);
            return Ok(());
        };
        let took = boottime().since(drawing.begun);
        if drawing.state.moving && drawing.of.1 == Grade::Full {
            self.pace.note(took.as_micros());
        }
        let is_sent = self.flow.came(drawing.of);
        self.views.metrics.frame(took, (drawing.parts, drawing.hits), is_sent);
        if is_sent {
            self.waits(None);
            let header = FrameHeader {
                seq: drawing.of.0,
                size: drawing.size,
                codec: drawing.codec,
                strips: strips_of(drawing.size, drawing.strips, &picture),
                coarse: drawing.of.1 == Grade::Coarse,
                hosts: drawing.hosts.into_iter().collect(),
                hits: drawing.hits,
                parts: drawing.parts,
                took_us: took.as_micros(),
                dropped: self.flow.dropped(),
            };
            // There is room: frames have credits, and what else is said is passed over before.
            if self.out.try_send(framed(&header, &picture)).is_err() {
                return Err(DriverGone);
            }
            if self.flow.is_settling() {
                self.settles = Some(boottime() + FRAME_SETTLES);
            }
        }
        // What a host has begun it brings to its end sooner than its process would begin anew.
        let stale = self.flow.stale();
        let is_stale = |of: &Drawing| of.given == 0 && stale.contains(&of.of);
        let dropped: Vec<_> = self.drawing.extract_if(.., |_, of| is_stale(of)).collect();
        let mut jobs = Vec::new();
        for (frame, dropped) in dropped {
            self.views.board.end(frame);
            self.flow.lost(dropped.of);
            jobs.extend(dropped.job);
        }
        self.views.driver.drop_frames(jobs).await
    }

    /// When [`Live::look`] is due.
    fn next_deadline(&self) -> Option<Time> {
        let frames = self.drawing.values().flat_map(|drawing| {
            let late = (drawing.of.1 == Grade::Full && self.scene.has_coarse())
                .then_some(drawing.begun + FRAME_LATE)
                .filter(|at| *at > drawing.begun && *at > boottime());
            let waits = (!drawing.is_told).then_some(drawing.begun + FRAME_WAITS);
            [late, waits].into_iter().flatten()
        });
        frames.chain(self.settles).chain(self.rests).min()
    }

    /// Time has gone by.
    async fn look(&mut self) -> Result<(), DriverGone> {
        let now = boottime();
        if self.settles.take_if(|at| *at <= now).is_some() {
            self.flow.settle();
        }
        // What only takes long is drawn smaller.
        if self.drawing.values().any(Drawing::loads) {
            for drawing in self.drawing.values() {
                if drawing.of.1 == Grade::Full && drawing.begun + FRAME_LATE <= now {
                    self.flow.late(drawing.of);
                }
            }
        }
        let told =
            self.drawing.values_mut().find(|of| !of.is_told && of.begun + FRAME_WAITS <= now);
        if let Some(drawing) = told {
            drawing.is_told = true;
            let hosts: Vec<_> = drawing.hosts.iter().map(HostName::as_str).collect();
            let why = match (drawing.job, drawing.given) {
                (Some(job), 0) => self.why_waits(job).await?,
                _ if drawing.loads() => format!("{} loads bricks", hosts.join(", ")),
                _ => format!("{} is at it", hosts.join(", ")),
            };
            self.waits(Some(why));
        }
        if !self.views.is_there(&self.name) {
            self.say(&ViewNews::Ended(GONE.into()));
            return Err(DriverGone);
        }
        Ok(())
    }

    async fn why_waits(&self, job: JobId) -> Result<String, DriverGone> {
        let asked = self.views.driver.query(move |core| {
            let reasons = core.explain_workunit(WorkunitId { job, index: 0 });
            let reasons = reasons.unwrap_or_default();
            reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        });
        let why = asked.await?;
        Ok(if why.is_empty() { "it is about to begin".into() } else { why })
    }

    /// Nobody looks any more.
    async fn stop(&mut self) {
        let frames = std::mem::take(&mut self.drawing);
        frames.keys().for_each(|frame| drop(self.views.board.end(*frame)));
        let jobs = frames.into_values().filter_map(|drawing| drawing.job).collect();
        // Where the driver has gone, its work has gone too.
        let _ = self.views.driver.drop_frames(jobs).await;
    }
}

fn text(news: &ViewNews) -> Message {
    Message::text(serde_json::to_string(news).expect("our own types serialise"))
}

/// Where the files of a picture stand in it.
fn strips_of(size: [u32; 2], strips: u8, picture: &[Bytes]) -> Vec<FrameStrip> {
    let place = |(index, file): (u32, &Bytes)| FrameStrip {
        row: strip_rows(size[1], strips, index).start,
        bytes: u32::try_from(file.len()).expect("no part of a frame is as long"),
    };
    (0..).zip(picture).map(place).collect()
}

/// A frame as it is sent: see the protocol's page.
fn framed(header: &FrameHeader, picture: &[Bytes]) -> Message {
    let header = serde_json::to_vec(header).expect("our own types serialise");
    let length = u32::try_from(header.len()).expect("a header is short");
    let bytes: usize = picture.iter().map(Bytes::len).sum();
    let mut frame = Vec::with_capacity(4 + header.len() + bytes);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&header);
    picture.iter().for_each(|file| frame.extend_from_slice(file));
    Message::binary(frame)
}

/// Sends what there is, and asks now and then whether somebody is there.
async fn write(mut sink: SplitSink<WebSocket, Message>, mut letters: mpsc::Receiver<Message>) {
    let mut ping = tokio::time::interval(WATCHER_PING);
    loop {
        let message = tokio::select! {
            message = letters.recv() => match message {
                Some(message) => message,
                None => break,
            },
            _ = ping.tick() => Message::ping(Vec::new()),
        };
        if !matches!(timeout(FRAME_SEND_TIME_MAX, sink.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
    let _ = timeout(FRAME_SEND_TIME_MAX, sink.close()).await;
}

async fn sleep_until(due: Option<Time>) {
    let wait = due.map_or(LOOK, |due| Duration::from(due.since(boottime())).min(LOOK));
    tokio::time::sleep(wait).await;
}
