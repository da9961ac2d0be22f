//! The frames of one client of a view: what is begun, joined, sent and dropped. Without clocks and sockets,
//! for brokers and for simulated ones; what of a view is drawn next is [`Flow`]'s.
//!
//! ```text
//! begin_next ──► layers ──► submitted, then news: all are there ──► join ──► submitted, then news: it is there
//!           ──► whole picture ─────────────────────────────────────────────► submitted, then news: it is there
//! ```
//!
//! # Invariants
//! - A frame is on the board as long as it is here.
//! - A frame has one job at a time: its layers, then what joins them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{
    FrameHeader, FrameStage, FrameStrip, FrameTask, HostName, JobId, Time, ViewState, strip_rows,
};
use gleaner_scheduling::SubmitRefusal;
use gleaner_scheduling::visualization::{Flow, Grade, PictureOf};
use tokio::sync::mpsc::UnboundedSender;

use super::FrameBoard;
use super::parts::{Pace, Scene};
use crate::driver::{FrameNews, FrameStep};
use crate::limits::{FRAME_LATE, FRAME_RESTS, FRAME_SETTLES, FRAME_WAITS};

/// See the module's page.
#[derive(Debug)]
pub struct Drawings {
    scene: Scene,
    flow: Flow<ViewState>,
    pace: Pace,
    drawing: BTreeMap<u64, Drawing>,
    /// Hosts that drew the last frame of bricks.
    drawn_by: usize,
    board: FrameBoard,
    /// Where the board tells of these frames.
    news: UnboundedSender<FrameNews>,
    /// When a state that stays may be drawn without a loss.
    settles: Option<Time>,
    /// Nothing is begun before.
    rests: Option<Time>,
}

/// A frame that is being drawn.
#[derive(Debug)]
struct Drawing {
    of: PictureOf,
    /// The part that is drawn now.
    task: FrameTask,
    begun: Time,
    job: Option<JobId>,
    parts: u32,
    /// By task, of layers or of a whole picture: the host that got it last.
    draws: BTreeMap<u32, Drawer>,
    /// By strip that is joined: the host that got it last.
    joins: BTreeMap<u32, HostName>,
    /// Whether it was told that it waits.
    is_told: bool,
}

/// A host that draws a part of a frame.
#[derive(Debug)]
struct Drawer {
    host: HostName,
    /// Whether it has the chunk that is read, or none is.
    has_chunk: bool,
}

/// A part of a frame that is to be submitted; [`Drawings::submitted`] hears the answer before anything else.
#[derive(Debug)]
pub struct Part {
    /// Of which frame.
    pub frame: u64,
    /// What.
    pub spec: JobSpec,
}

/// What comes of news of a frame.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Its layers are there, and are to be joined.
    pub join: Option<Part>,
    /// It is there.
    pub picture: Option<Picture>,
    /// It will not be there, for this reason.
    pub lost: Option<String>,
    /// Nobody wants these any more.
    pub dropped: Vec<JobId>,
}

/// A frame that is there.
#[derive(Debug)]
pub struct Picture {
    /// What it is of.
    pub header: FrameHeader,
    /// A file for each of its strips.
    pub files: Vec<Bytes>,
    /// Whether it is to be sent: not where a newer one was.
    pub is_sent: bool,
}

/// What a frame waits for that is not there yet.
#[derive(Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A host that begins this.
    Begin(JobId),
    /// Hosts, for what they are at.
    Hosts(String),
}

impl Drawing {
    /// Whether a host that draws a part of it has to get its brick first.
    fn loads(&self) -> bool {
        let reads = matches!(self.task.stage, FrameStage::Layer | FrameStage::Whole);
        reads && self.draws.values().any(|drawer| !drawer.has_chunk)
    }

    fn hosts(&self) -> BTreeSet<&HostName> {
        self.draws.values().map(|drawer| &drawer.host).chain(self.joins.values()).collect()
    }

    /// Parts whose host had their chunk.
    fn hits(&self) -> u32 {
        self.draws.values().map(|drawer| u32::from(drawer.has_chunk)).sum()
    }

    /// Whether a host ever got a task of it, also one that gave it back.
    fn is_begun(&self) -> bool {
        !self.draws.is_empty()
    }
}

impl Drawings {
    /// None yet. The board tells `news` of them.
    #[must_use]
    pub fn new(scene: Scene, board: FrameBoard, news: UnboundedSender<FrameNews>) -> Self {
        let flow = Flow::new(scene.has_coarse());
        Self {
            scene,
            flow,
            pace: Pace::default(),
            drawing: BTreeMap::new(),
            drawn_by: 0,
            board,
            news,
            settles: None,
            rests: None,
        }
    }

    /// Frames that are being drawn.
    #[must_use]
    pub fn count(&self) -> usize {
        self.drawing.len()
    }

    /// Whether this frame is being drawn.
    #[must_use]
    pub fn has(&self, frame: u64) -> bool {
        self.drawing.contains_key(&frame)
    }

    /// The client says what it wants to see. `false` of a state that is no newer than the newest.
    pub fn state(&mut self, state: ViewState) -> bool {
        let is_new = self.flow.state(state);
        if is_new {
            self.settles = None;
        }
        is_new
    }

    /// The client has drawn this frame and all before.
    pub fn drawn(&mut self, seq: u64) {
        self.flow.drawn(seq);
    }

    /// What is to be drawn now, as a frame of the next number, if there is something.
    pub fn begin_next(&mut self, now: Time, next_frame: impl FnOnce() -> u64) -> Option<Part> {
        if self.rests.is_some_and(|until| until > now) {
            return None;
        }
        self.rests = None;
        let (grade, state) = self.flow.begin_next()?;
        let (frame, size) = (next_frame(), self.pace.size(&state));
        let strips = self.scene.strips(self.drawn_by, size);
        let (task, spec) = self.scene.first(frame, &state, grade, size, strips);
        let parts = spec.workunits.len();
        let layers = if task.stage == FrameStage::Layer { parts } else { 0 };
        self.board.begin(frame, layers, task.strips, self.news.clone());
        let drawing = Drawing {
            of: (state.seq, grade),
            task,
            begun: now,
            job: None,
            parts,
            draws: BTreeMap::new(),
            joins: BTreeMap::new(),
            is_told: false,
        };
        self.drawing.insert(frame, drawing);
        Some(Part { frame, spec })
    }

    /// What came of submitting a part. Returns why its frame is lost, where it was refused.
    pub fn submitted(
        &mut self,
        now: Time,
        frame: u64,
        answer: Result<JobId, SubmitRefusal>,
    ) -> Option<String> {
        match answer {
            Ok(job) => {
                if let Some(drawing) = self.drawing.get_mut(&frame) {
                    drawing.job = Some(job);
                }
                None
            }
            Err(refusal) => {
                self.lose(now, frame);
                Some(refusal.to_string())
            }
        }
    }

    /// A frame will not come.
    fn lose(&mut self, now: Time, frame: u64) {
        if self.board.end(frame).is_too_large {
            self.pace.note_too_large();
        }
        if let Some(drawing) = self.drawing.remove(&frame) {
            self.flow.lost(drawing.of);
            self.rests = Some(now + FRAME_RESTS);
        }
    }

    /// A frame comes on.
    pub fn take(&mut self, now: Time, news: FrameNews) -> Outcome {
        let FrameNews { job, frame, what } = news;
        let Some(drawing) = self.drawing.get_mut(&frame) else { return Outcome::default() };
        match what {
            FrameStep::Given { index, host, has_chunk } => {
                if drawing.task.stage == FrameStage::Join {
                    drawing.joins.insert(index, host);
                } else {
                    drawing.draws.insert(index, Drawer { host, has_chunk });
                }
                Outcome::default()
            }
            FrameStep::Failed(why) => {
                self.lose(now, frame);
                // What else of it is waiting or drawn is of no use.
                Outcome { lost: Some(why), dropped: vec![job], ..Outcome::default() }
            }
            FrameStep::Done if drawing.task.stage == FrameStage::Layer => {
                self.drawn_by = drawing.hosts().len();
                let spec = self.scene.join(&drawing.task);
                drawing.task.stage = FrameStage::Join;
                Outcome { join: Some(Part { frame, spec }), ..Outcome::default() }
            }
            FrameStep::Done => {
                debug_assert!(drawing.job.is_none_or(|known| known == job), "one part at a time");
                self.deliver(now, frame)
            }
        }
    }

    /// A picture is there: it is sent, unless a newer one was.
    fn deliver(&mut self, now: Time, frame: u64) -> Outcome {
        let files = self.board.end(frame).picture;
        let Some(drawing) = self.drawing.remove(&frame) else { return Outcome::default() };
        let Some(files) = files else {
            // Its host says that it is done, and has brought nothing.
            self.flow.lost(drawing.of);
            self.rests = Some(now + FRAME_RESTS);
            return Outcome::default();
        };
        let took = now.since(drawing.begun);
        if drawing.task.state.moving && drawing.of.1 == Grade::Full {
            self.pace.note(took.as_micros());
        }
        let is_sent = self.flow.came(drawing.of);
        if is_sent && self.flow.is_settling() {
            self.settles = Some(now + FRAME_SETTLES);
        }
        let header = FrameHeader {
            seq: drawing.of.0,
            size: drawing.task.size,
            codec: drawing.task.codec,
            strips: strips_of(drawing.task.size, drawing.task.strips, &files),
            coarse: drawing.of.1 == Grade::Coarse,
            hosts: drawing.hosts().into_iter().cloned().collect(),
            hits: drawing.hits(),
            parts: drawing.parts,
            took_us: took.as_micros(),
            dropped: self.flow.dropped(),
        };
        let picture = Some(Picture { header, files, is_sent });
        Outcome { picture, dropped: self.drop_stale(), ..Outcome::default() }
    }

    /// What a host has begun it brings to its end sooner than its process would begin anew.
    fn drop_stale(&mut self) -> Vec<JobId> {
        let stale = self.flow.stale();
        let is_stale = |of: &Drawing| !of.is_begun() && stale.contains(&of.of);
        let dropped: Vec<_> = self.drawing.extract_if(.., |_, of| is_stale(of)).collect();
        let mut jobs = Vec::new();
        for (frame, dropped) in dropped {
            self.board.end(frame);
            self.flow.lost(dropped.of);
            jobs.extend(dropped.job);
        }
        jobs
    }

    /// When [`Drawings::look`] is due.
    #[must_use]
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        let frames = self.drawing.values().flat_map(|drawing| {
            let late = (drawing.of.1 == Grade::Full && self.scene.has_coarse())
                .then_some(drawing.begun + FRAME_LATE)
                .filter(|at| *at > drawing.begun && *at > now);
            let waits = (!drawing.is_told).then_some(drawing.begun + FRAME_WAITS);
            [late, waits].into_iter().flatten()
        });
        frames.chain(self.settles).chain(self.rests).min()
    }

    /// Time has gone by. Returns what a frame waits for that has waited for long, once for each.
    pub fn look(&mut self, now: Time) -> Option<WaitsFor> {
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
        let waits = |of: &&mut Drawing| !of.is_told && of.begun + FRAME_WAITS <= now;
        let drawing = self.drawing.values_mut().find(waits)?;
        drawing.is_told = true;
        let hosts: Vec<_> = drawing.hosts().into_iter().map(HostName::as_str).collect();
        Some(match drawing.job {
            Some(job) if !drawing.is_begun() => WaitsFor::Begin(job),
            _ if drawing.loads() => WaitsFor::Hosts(format!("{} loads bricks", hosts.join(", "))),
            _ => WaitsFor::Hosts(format!("{} is at it", hosts.join(", "))),
        })
    }

    /// Nobody looks any more. Returns what is of no use then.
    #[must_use]
    pub fn stop(&mut self) -> Vec<JobId> {
        let frames = std::mem::take(&mut self.drawing);
        frames.keys().for_each(|frame| drop(self.board.end(*frame)));
        frames.into_values().filter_map(|drawing| drawing.job).collect()
    }
}

/// Where the files of a picture stand in it.
fn strips_of(size: [u32; 2], strips: u8, picture: &[Bytes]) -> Vec<FrameStrip> {
    let place = |(index, file): (u32, &Bytes)| FrameStrip {
        row: strip_rows(size[1], strips, index).start,
        bytes: u32::try_from(file.len()).expect("no part of a frame is as long"),
    };
    (0..).zip(picture).map(place).collect()
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{ViewKernel, push_layer};
    use tokio::sync::mpsc;

    use super::super::parts::tests::{scene, state};
    use super::*;
    use crate::driver::FrameLease;

    #[test]
    fn who_gave_its_part_back_has_not_drawn_the_frame() {
        let (board, (news, _heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        let mut drawings = Drawings::new(
            Scene { kernel: ViewKernel::Paced { load_us: 1, render_us: 1 }, ..scene() },
            board.clone(),
            news,
        );
        let now = Time::ZERO;
        assert!(drawings.state(state(1, false)));
        let frame = drawings.begin_next(now, || 5).expect("a frame to draw").frame;
        let [layers, join] = [JobId::new(1), JobId::new(2)];
        let take =
            |drawings: &mut Drawings, job, what| drawings.take(now, FrameNews { job, frame, what });
        let given = |index, host: &str, has_chunk| FrameStep::Given {
            index,
            host: HostName::new(host).expect("a plain name"),
            has_chunk,
        };
        assert_eq!(drawings.submitted(now, frame, Ok(layers)), None);
        let hosts = ["one", "two", "one", "two", "one", "two", "one"];
        for (index, host) in (0..).zip(hosts) {
            take(&mut drawings, layers, given(index, host, true));
        }
        // A host that would have to load the last brick gives it back to one that has it, and so on.
        for (host, has_chunk) in [("gone", false), ("gone", true), ("two", false)] {
            take(&mut drawings, layers, given(7, host, has_chunk));
            assert_eq!(drawings.drawing[&frame].loads(), !has_chunk);
        }
        let lease = |stage, index| FrameLease { frame, stage, index };
        let mut layer = Vec::new();
        push_layer(&mut layer, b"layer");
        for index in 0..8 {
            let brought = board.bring(lease(FrameStage::Layer, index), layer.clone().into());
            assert_eq!(brought, Ok(true));
        }
        assert!(take(&mut drawings, layers, FrameStep::Done).join.is_some());
        assert_eq!(drawings.drawn_by, 2);
        assert_eq!(drawings.submitted(now, frame, Ok(join)), None);
        take(&mut drawings, join, given(0, "gone", true));
        take(&mut drawings, join, given(0, "three", true));
        assert_eq!(board.bring(lease(FrameStage::Join, 0), Bytes::from_static(b"a")), Ok(true));
        let picture = take(&mut drawings, join, FrameStep::Done).picture.expect("a picture");
        let hosts: Vec<_> = picture.header.hosts.iter().map(HostName::as_str).collect();
        assert_eq!(hosts, ["one", "three", "two"]);
        assert_eq!((picture.header.hits, picture.header.parts), (7, 8));
    }
}
