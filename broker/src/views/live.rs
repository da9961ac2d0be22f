//! A connected client of a view: what it says, what is drawn for it, what it is sent.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::limits::VIEW_CREDITS;
use gleaner_protocol::{FrameHeader, JobId, Span, Time, ViewNews, ViewWish, WorkunitId, boottime};
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::ws::{Message, WebSocket};

use super::drawings::{Drawings, Outcome, Part, Picture, WaitsFor};
use super::parts::Scene;
use super::{Seat, Views};
use crate::driver::{DriverGone, FrameNews};
use crate::limits::{FRAME_SEND_TIME_MAX, WATCHER_PING};

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

struct Live {
    views: Views,
    name: String,
    drawings: Drawings,
    out: mpsc::Sender<Message>,
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
        let drawings = Drawings::new(scene, views.board.clone(), news);
        Self { views, name, drawings, out, is_waiting: false }
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
                    if self.drawings.state((*state).clone()) {
                        self.views.followers.tell(&self.name, &state);
                        if !state.moving {
                            self.views.note_state(&self.name, &state);
                        }
                    }
                }
                Err(error) => self.say(&ViewNews::Refused(error.to_string())),
            },
            Ok(ViewWish::Drawn(seq)) => self.drawings.drawn(seq),
            Err(error) => {
                self.say(&ViewNews::Refused(format!("no wish of a view: {error}")));
                return false;
            }
        }
        true
    }

    /// Begins what is to be drawn now.
    async fn begin_all(&mut self) -> Result<(), DriverGone> {
        let views = self.views.clone();
        while let Some(part) = self.drawings.begin_next(boottime(), || views.next_frame()) {
            self.submit(part).await?;
        }
        Ok(())
    }

    /// Has a part of a frame drawn.
    async fn submit(&mut self, Part { frame, spec }: Part) -> Result<(), DriverGone> {
        let answer = self.views.driver.submit_frame(spec).await?;
        if let Some(why) = self.drawings.submitted(boottime(), frame, answer) {
            self.waits(Some(why));
        }
        Ok(())
    }

    fn waits(&mut self, why: Option<String>) {
        if why.is_some() || self.is_waiting {
            self.is_waiting = why.is_some();
            self.say(&ViewNews::Waits(why));
        }
    }

    /// A frame comes on.
    async fn take(&mut self, news: FrameNews) -> Result<(), DriverGone> {
        let Outcome { join, picture, lost, dropped } = self.drawings.take(boottime(), news);
        if lost.is_some() {
            self.waits(lost);
        }
        let sent = picture.map_or(Ok(()), |picture| self.deliver(&picture));
        if let Some(part) = join {
            self.submit(part).await?;
        }
        // Also where the client has gone: nobody knows of these any more.
        self.views.driver.drop_frames(dropped).await?;
        sent
    }

    /// A picture is there.
    fn deliver(&mut self, picture: &Picture) -> Result<(), DriverGone> {
        let Picture { header, files, is_sent } = picture;
        let took = Span::from_micros(header.took_us);
        self.views.metrics.frame(took, (header.parts, header.hits), *is_sent);
        if *is_sent {
            self.waits(None);
            // There is room: frames have credits, and what else is said is passed over before.
            self.out.try_send(framed(header, files)).map_err(|_| DriverGone)?;
        }
        Ok(())
    }

    /// When [`Live::look`] is due.
    fn next_deadline(&self) -> Option<Time> {
        self.drawings.next_deadline(boottime())
    }

    /// Time has gone by.
    async fn look(&mut self) -> Result<(), DriverGone> {
        match self.drawings.look(boottime()) {
            None => {}
            Some(WaitsFor::Hosts(why)) => self.waits(Some(why)),
            Some(WaitsFor::Begin(job)) => {
                let why = self.why_waits(job).await?;
                self.waits(Some(why));
            }
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
        // Where the driver has gone, its work has gone too.
        let _ = self.views.driver.drop_frames(self.drawings.stop()).await;
    }
}

fn text(news: &ViewNews) -> Message {
    Message::text(serde_json::to_string(news).expect("our own types serialise"))
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
