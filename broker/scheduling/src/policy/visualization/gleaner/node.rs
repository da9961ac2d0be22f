//! What is to be done on one node.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use gleaner_protocol::{JobId, LeaseToken, Span, Time};

use super::super::catalogue::SetIx;
use crate::farm::WorkunitIx;

/// A task with the time when it is due; earlier ones come first, of equal ones the older job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Time,
    pub(super) job: JobId,
    pub(super) index: u32,
}

/// A task that the node was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) workunit: WorkunitIx,
    pub(super) token: LeaseToken,
    /// Whether it loads its chunk.
    pub(super) loads: bool,
    /// Whether it is of a batch job that reads no dataset: nobody waits for it, and it may take long.
    pub(super) is_patient: bool,
}

/// Tasks of interactive frames in the order in which they are due. Most are of actions that are
/// in time and come in that order.
///
/// # Invariants
/// - Those in time are sorted.
#[derive(Debug, Default)]
struct Frames {
    in_time: VecDeque<Due>,
    others: BinaryHeap<Reverse<Due>>,
}

/// A node with its queues: loads that were decided on come first, then tasks of interactive
/// frames as they are due, then those of batch jobs.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) is_up: bool,
    pub(super) slots: u32,
    pub(super) loads: VecDeque<Due>,
    frames: Frames,
    /// Chunks here, by dataset and index, for which batch jobs wait.
    pub(super) batch: VecDeque<(SetIx, u32)>,
    pub(super) running: Vec<Running>,
    /// Whether it is counted among the busy ones of its teams.
    pub(super) is_busy: bool,
    /// When a task of a frame was last given out.
    pub(super) last_frame: Option<Time>,
}

impl Node {
    /// How many tasks of frames wait.
    pub(super) fn frame_count(&self) -> usize {
        self.frames.in_time.len() + self.frames.others.len()
    }

    /// One more task of a frame.
    pub(super) fn push_frame(&mut self, due: Due) {
        if self.frames.in_time.back().is_none_or(|last| *last < due) {
            self.frames.in_time.push_back(due);
        } else {
            self.frames.others.push(Reverse(due));
        }
    }

    /// The task of a frame that is due first.
    pub(super) fn pop_frame(&mut self) -> Option<Due> {
        let Frames { in_time, others } = &mut self.frames;
        match (in_time.front(), others.peek()) {
            (Some(first), Some(Reverse(other))) if other < first => {
                others.pop().map(|Reverse(due)| due)
            }
            (None, Some(_)) => others.pop().map(|Reverse(due)| due),
            _ => in_time.pop_front(),
        }
    }

    /// How long it takes until all frames that wait are rendered.
    pub(super) fn backlog(&self, render: Span) -> Span {
        let at_once = u64::from(self.render_slots().max(1));
        Span::from_micros(self.frame_count() as u64 * render.as_micros() / at_once)
    }

    /// All tasks that wait for the node itself: loads and frames.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Due> {
        let others = self.frames.others.iter().map(|Reverse(due)| due);
        self.loads.iter().chain(&self.frames.in_time).chain(others)
    }

    /// Whether it may be given a task that loads: one at a time.
    pub(super) fn may_load(&self) -> bool {
        !self.loads.is_empty() && !self.is_loading()
    }

    /// Whether it may be given a task of a chunk that is there.
    pub(super) fn may_render(&self) -> bool {
        let rendering = self.running.iter().filter(|run| !run.loads && !run.is_patient).count();
        rendering < self.render_slots() as usize
    }

    /// How many frames it renders at once: where it loads beside that, a slot is left for loads.
    fn render_slots(&self) -> u32 {
        if self.overlaps() { self.slots - 1 } else { self.slots }
    }

    /// Whether loads take nothing from rendering.
    pub(super) fn overlaps(&self) -> bool {
        self.slots > 1
    }

    /// Whether something waits that could have a slot which the lane does not have.
    pub(super) fn is_starved(&self) -> bool {
        let waits = self.may_load()
            || self.may_render() && (self.frame_count() > 0 || !self.batch.is_empty());
        self.is_up && waits && self.running.len() < self.slots as usize
    }

    /// Something that runs and may give way to a frame.
    pub(super) fn patient(&self) -> Option<LeaseToken> {
        self.running.iter().find(|run| run.is_patient).map(|run| run.token)
    }

    pub(super) fn is_loading(&self) -> bool {
        self.running.iter().any(|run| run.loads)
    }
}
