//! Clients of views: they move, stop, go and come back; and the loop around what the broker decides for each.

use std::sync::Arc;

use gleaner_broker::{Drawings, ForWhom, Outcome, Part, Picture, Scene};
use gleaner_protocol::job::{RunsOn, Task};
use gleaner_protocol::{
    BrickedVolume, DatasetId, DatasetKind, DatasetManifest, OwnerName, Span, Time, ViewKernel,
    ViewWish,
};
use tokio::sync::mpsc;

use super::copies::chunk;
use super::{Event, World};
use crate::storm::broker::Command;
use crate::storm::viewer::{Session, Shown, Viewer};
use crate::storm::{Breach, Bug};

/// Clients of a storm. All but the first look at a volume of several bricks.
const VIEWERS: u64 = 3;
/// Bricks of one step along each side, and steps, of what each client looks at.
const ONE_BRICK: ([u32; 3], u32) = ([1, 1, 1], 2);
const BRICKS: ([u32; 3], u32) = ([2, 2, 1], 2);
/// The first of their datasets, and of what these have.
const FIRST_VOLUME: u64 = 100;
/// States of a movement at most.
const MOVES_MAX: usize = 6;
/// To the broker.
const UP: usize = 0;
/// To the client.
const DOWN: usize = 1;

impl World<'_> {
    /// Whether there are clients in this storm.
    pub(super) fn has_viewers(&self) -> bool {
        let is_of_views = |bug: Bug| bug.is_of_views();
        self.config.saboteur.is_none() && self.config.bug.is_none_or(is_of_views)
    }

    pub(super) fn begin_viewers(&mut self) {
        if !self.has_viewers() {
            return;
        }
        for number in 0..VIEWERS {
            let dataset = DatasetId::new(FIRST_VOLUME + number.min(1));
            self.viewers.push(Viewer::new(dataset));
            let comes = self.chances.views.millis(0, self.config.lasts.as_millis() / 8);
            self.after(comes, Event::ViewerComes { viewer: self.viewers.len() - 1 });
        }
        for (number, (bricks, steps)) in (0..).zip([ONE_BRICK, BRICKS]) {
            let volume = BrickedVolume { size: [64; 3], spacing: [1.0; 3], bricks, steps };
            let count = (volume.bricks_of_step() + 1) * u64::from(steps);
            let first = (FIRST_VOLUME + number) * 1_000;
            let manifest = DatasetManifest {
                kind: DatasetKind::Bricks(volume),
                chunks: (first..first + count).map(chunk).collect(),
                copies: 1,
            };
            self.broker.chunks.add(DatasetId::new(FIRST_VOLUME + number), Arc::new(manifest));
        }
    }

    /// A client connects, where there is a broker.
    pub(super) fn viewer_comes(&mut self, viewer: usize) {
        let of = &mut self.viewers[viewer];
        if of.is_connected {
            return;
        }
        let scene = scene_of(viewer, of.dataset, &self.broker.chunks.manifest(of.dataset));
        let (true, None, Some(scene)) = (self.broker.is_up(), &of.session, scene) else {
            // There is no broker, or it has still to hear that its connection before has ended.
            let again = self.chances.views.millis(100, 5_000);
            return self.after(again, Event::ViewerComes { viewer });
        };
        of.is_connected = true;
        let (news, heard) = mpsc::unbounded_channel();
        let drawings = Drawings::new(scene, self.broker.board.clone(), news);
        of.session = Some(Session::new(of.visit, drawings, heard));
        let (visit, wanted) = (of.visit, of.wanted.clone());
        match wanted.filter(|state| !state.moving) {
            Some(state) => {
                self.viewer_says(viewer, ViewWish::State(Box::new(state)));
                self.viewer_rests(viewer);
            }
            // What it did when its connection broke it brings to an end.
            None => {
                self.viewers[viewer].moves = 1;
                self.after(Span::ZERO, Event::ViewerMoves { viewer, visit });
            }
        }
    }

    /// It looks at what it sees for a while.
    fn viewer_rests(&mut self, viewer: usize) {
        let rests = self.chances.views.millis(10_000, 200_000);
        let visit = self.viewers[viewer].visit;
        self.after(rests, Event::ViewerMoves { viewer, visit });
    }

    /// It turns what it sees a little further, or begins to, or goes.
    pub(super) fn viewer_moves(&mut self, viewer: usize, visit: u64) {
        let of = &mut self.viewers[viewer];
        if of.visit != visit || !of.is_connected {
            return;
        }
        if of.moves == 0 {
            if self.is_calm {
                return;
            }
            if self.chances.views.chance(200) {
                return self.viewer_goes(viewer);
            }
            let moves = 1 + self.chances.views.below(MOVES_MAX);
            self.viewers[viewer].moves = u32::try_from(moves).expect("a few");
        }
        let of = &mut self.viewers[viewer];
        of.moves = if self.is_calm { 0 } else { of.moves - 1 };
        let is_moving = of.moves > 0;
        let state = of.look_elsewhere(is_moving);
        self.viewer_says(viewer, ViewWish::State(Box::new(state)));
        if is_moving && self.chances.views.chance(20) {
            self.viewer_goes(viewer);
        } else if is_moving {
            let next = self.chances.views.millis(20, 200);
            self.after(next, Event::ViewerMoves { viewer, visit });
        } else {
            self.viewer_rests(viewer);
        }
    }

    /// It goes, and comes back; the broker hears of it.
    fn viewer_goes(&mut self, viewer: usize) {
        let at = self.reaches(viewer, UP);
        let of = &mut self.viewers[viewer];
        let visit = of.visit;
        (of.is_connected, of.visit) = (false, visit + 1);
        self.calendar.enter(at, Event::SessionLeft { viewer, visit });
        let away = self.chances.views.millis(0, 60_000);
        self.after(away, Event::ViewerComes { viewer });
    }

    fn reaches(&mut self, viewer: usize, direction: usize) -> Time {
        let most_ms = if self.chances.views.chance(20) { 1_000 } else { 10 };
        let arrives = self.now + self.chances.views.millis(0, most_ms);
        let last = &mut self.viewers[viewer].arrivals[direction];
        *last = arrives.max(*last);
        *last
    }

    fn viewer_says(&mut self, viewer: usize, wish: ViewWish) {
        let at = self.reaches(viewer, UP);
        let visit = self.viewers[viewer].visit;
        self.calendar.enter(at, Event::ViewerSays { viewer, visit, wish });
    }

    fn session(&mut self, viewer: usize, visit: u64) -> Option<&mut Session> {
        self.viewers[viewer].session.as_mut().filter(|session| session.visit == visit)
    }

    pub(super) fn viewer_said(&mut self, viewer: usize, visit: u64, wish: ViewWish) {
        if let Some(session) = self.session(viewer, visit) {
            session.wishes.push_back(wish);
            self.session_goes_on(viewer);
        }
    }

    pub(super) fn session_left(&mut self, viewer: usize, visit: u64) {
        if let Some(session) = self.session(viewer, visit) {
            session.is_left = true;
            self.session_goes_on(viewer);
        }
    }

    pub(super) fn session_wakes(&mut self, viewer: usize, visit: u64, at: Time) {
        if let Some(session) = self.session(viewer, visit).filter(|of| of.wake == Some(at)) {
            session.wake = None;
            self.session_goes_on(viewer);
        }
    }

    /// A turn of the broker is over: sessions hear what it answered and what became of their frames.
    pub(super) fn sessions_hear(&mut self) {
        for (viewer, frame, answer) in std::mem::take(&mut self.broker.frame_answers) {
            if let Some(session) = &mut self.viewers[viewer].session
                && session.asked == Some(frame)
            {
                session.answer = Some(answer);
            }
        }
        for viewer in 0..self.viewers.len() {
            if self.viewers[viewer].session.as_ref().is_some_and(Session::has_news) {
                let soon = self.now + Span::from_micros(self.chances.views.below(2_000) as u64);
                self.wake_session(viewer, soon);
            }
        }
    }

    fn wake_session(&mut self, viewer: usize, at: Time) {
        let Some(session) = &mut self.viewers[viewer].session else { return };
        if session.wake.is_none_or(|wake| at < wake) {
            session.wake = Some(at);
            let visit = session.visit;
            self.calendar.enter(at, Event::SessionWakes { viewer, visit, at });
        }
    }

    /// Does all that can be done without another answer of the broker.
    fn session_goes_on(&mut self, viewer: usize) {
        let clock = self.broker_clock();
        while let Some(session) = &mut self.viewers[viewer].session {
            if let Some(frame) = session.asked {
                let Some(answer) = session.answer.take() else { return };
                session.asked = None;
                if session.drawings.submitted(clock, frame, answer).is_some() {
                    self.report.frames_given_up += 1;
                }
                continue;
            }
            let next_frame = || {
                self.broker.frames += 1;
                self.broker.frames
            };
            if let Some(part) = session.drawings.begin_next(clock, next_frame) {
                self.submit_frame(viewer, part);
                continue;
            }
            if session.is_left {
                let dropped = session.drawings.stop();
                self.viewers[viewer].session = None;
                if self.config.bug != Some(Bug::KeepsFrames) {
                    self.ask_broker(Command::DropFrames(dropped));
                }
                return;
            }
            match session.wishes.pop_front() {
                Some(ViewWish::State(state)) => drop(session.drawings.state(*state)),
                Some(ViewWish::Drawn(seq)) => session.drawings.drawn(seq),
                None => match session.news.try_recv() {
                    Ok(news) => {
                        let outcome = session.drawings.take(clock, news);
                        self.frame_comes_on(viewer, outcome);
                    }
                    Err(_) => break,
                },
            }
        }
        self.session_looks(viewer, clock);
    }

    fn submit_frame(&mut self, viewer: usize, Part { frame, spec }: Part) {
        let session = self.viewers[viewer].session.as_mut().expect("it has a part drawn");
        session.asked = Some(frame);
        self.ask_broker(Command::Frame { viewer, frame, spec: Box::new(spec) });
    }

    fn frame_comes_on(&mut self, viewer: usize, outcome: Outcome) {
        let Outcome { join, picture, lost, dropped } = outcome;
        self.report.frames_given_up += u64::from(lost.is_some());
        if let Some(Picture { header, is_sent, .. }) = picture {
            self.report.frames_stale += dropped.len() as u64;
            self.report.frames_late += u64::from(!is_sent);
            if is_sent || self.config.bug == Some(Bug::SendsLateFrames) {
                self.report.frames_drawn += 1;
                self.report.frames_coarse += u64::from(header.coarse);
                self.report.frames_in_strips += u64::from(header.strips.len() > 1);
                let frame = Shown { seq: header.seq, is_coarse: header.coarse };
                let at = self.reaches(viewer, DOWN);
                let session = self.viewers[viewer].session.as_ref().expect("it draws");
                let visit = session.visit;
                self.calendar.enter(at, Event::FrameArrives { viewer, visit, frame });
            }
        }
        if let Some(part) = join {
            self.report.frames_joined += 1;
            self.submit_frame(viewer, part);
        }
        if !dropped.is_empty() {
            self.ask_broker(Command::DropFrames(dropped));
        }
    }

    /// What is due by time, and when something is next.
    fn session_looks(&mut self, viewer: usize, clock: Time) {
        let Some(session) = &mut self.viewers[viewer].session else { return };
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= clock);
        if is_due(session.drawings.next_deadline(clock)) {
            session.drawings.look(clock);
        }
        if let Some(due) = session.drawings.next_deadline(clock) {
            let at = due.as_micros().saturating_sub(self.broker_ahead.as_micros());
            let at = Time::from_micros(at).max(self.now + Span::from_millis(1));
            self.wake_session(viewer, at);
        }
    }

    /// A client shows a frame, and says so a moment later.
    pub(super) fn frame_arrives(
        &mut self,
        viewer: usize,
        visit: u64,
        frame: Shown,
    ) -> Result<(), Breach> {
        let of = &mut self.viewers[viewer];
        if of.visit != visit {
            return Ok(());
        }
        if let Some(before) = of.shown.filter(|before| before.seq > frame.seq) {
            return Err(Breach::ShownLate { viewer, seq: frame.seq, before: before.seq });
        }
        of.shown = Some(frame);
        let most_ms = if self.chances.views.chance(30) { 3_000 } else { 50 };
        let draws = self.chances.views.millis(1, most_ms);
        self.after(draws, Event::FrameDrawn { viewer, visit, seq: frame.seq });
        Ok(())
    }

    pub(super) fn frame_drawn(&mut self, viewer: usize, visit: u64, seq: u64) {
        if self.viewers[viewer].visit == visit {
            self.viewer_says(viewer, ViewWish::Drawn(seq));
        }
    }

    /// The broker died, and with it what it had of its clients. Each finds out in its own time.
    pub(super) fn sessions_die(&mut self) {
        for viewer in 0..self.viewers.len() {
            let of = &mut self.viewers[viewer];
            let Some(session) = of.session.take() else { continue };
            self.report.frames_lost_with_broker += session.drawings.count() as u64;
            if session.visit == of.visit {
                (of.is_connected, of.visit) = (false, of.visit + 1);
                let notices = self.chances.views.millis(0, 20_000);
                self.after(notices, Event::ViewerComes { viewer });
            }
        }
    }

    /// Nothing of frames that nobody waits for is left, and there is all of those that somebody waits for.
    pub(super) fn check_frames(&self) -> Result<(), Breach> {
        let Some(core) = self.broker.core() else { return Ok(()) };
        let sessions = || self.viewers.iter().filter_map(|viewer| viewer.session.as_ref());
        let is_awaited = |frame: u64| sessions().any(|of| of.drawings.has(frame));
        for job in core.farm().jobs() {
            if let Task::Frame(task) = &job.spec.task
                && !is_awaited(task.frame)
            {
                return Err(Breach::FrameLeft { what: "a job of the core", job: job.id });
            }
        }
        let mut joins = self.broker.joins();
        if let Some(job) = joins.find(|job| core.farm().job(*job).is_none()) {
            return Err(Breach::FrameLeft { what: "the hosts of its layers", job });
        }
        let (count, most) =
            (self.broker.board.count(), sessions().map(|of| of.drawings.count()).sum());
        match count <= most {
            true => Ok(()),
            false => Err(Breach::Unbounded { what: "frames on the board", count, most }),
        }
    }

    /// A client that waits for what it wants to see, and why it is not there, where there is one.
    pub(super) fn unseen(&self) -> Option<(usize, String)> {
        let viewer = self.viewers.iter().position(|viewer| !viewer.is_content())?;
        let of = &self.viewers[viewer];
        let why = match &of.session {
            None => "it has no session".to_owned(),
            Some(session) => format!("{} frames are being drawn", session.drawings.count()),
        };
        Some((viewer, why))
    }
}

fn scene_of(
    viewer: usize,
    dataset: DatasetId,
    manifest: &Option<Arc<DatasetManifest>>,
) -> Option<Scene> {
    let owner = OwnerName::new(format!("viewer{viewer}")).expect("a plain name");
    let whom = ForWhom { owner, project: None };
    let shown = (ViewKernel::Volume, dataset);
    let (name, session) = (format!("view-{viewer}"), viewer as u64);
    Scene::new(name, session, whom, RunsOn::Any, shown, manifest.as_deref()?)
}
