//! A dataset: where its chunks are, and who waits for it.

use std::collections::VecDeque;

use gleaner_protocol::{JobId, Span, Time};
use rustc_hash::FxHashMap;

use super::super::board::Arrived;

/// An interactive frame that waits for its dataset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) of: Arrived,
    pub(super) asked: Time,
}

/// A session that asked for no frame of a dataset for so long does not look at it.
const VIEWER_REST: Span = Span::from_secs(1);

/// Whether frames of a dataset can be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is to be loaded first.
    Away,
    /// It is being loaded.
    Coming,
    /// All its chunks are where its tasks go.
    Here,
}

/// A dataset.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) phase: Phase,
    /// The node of each chunk; empty before the first load.
    pub(super) home: Vec<usize>,
    /// How many chunks are there.
    pub(super) held: u32,
    /// How many chunks are on their way.
    pub(super) coming: u32,
    /// The job whose tasks bring them; none where those of several do.
    pub(super) loader: Option<JobId>,
    /// Interactive frames that wait for it, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// Batch jobs whose task on a chunk has not been given out, for each chunk.
    pub(super) batch: Vec<VecDeque<JobId>>,
    /// Sessions that look at it, or did, each with when it last asked for a frame.
    viewers: FxHashMap<u64, Time>,
    /// Sessions that rest are left out at this time at the earliest.
    next_prune: Time,
    /// Before that nobody looks for a better team.
    pub(super) next_move: Time,
    /// When a frame of it was last asked for.
    pub(super) last_asked: Option<Time>,
}

impl Set {
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            phase: Phase::Away,
            home: Vec::new(),
            held: 0,
            coming: 0,
            loader: None,
            waiting: VecDeque::new(),
            batch: vec![VecDeque::new(); chunks as usize],
            viewers: FxHashMap::default(),
            next_prune: Time::ZERO,
            next_move: Time::ZERO,
            last_asked: None,
        }
    }

    /// A session asks for a frame of it.
    pub(super) fn asked_by(&mut self, now: Time, session: u64) {
        self.last_asked = Some(now);
        self.viewers.insert(session, now);
        if self.next_prune <= now {
            self.next_prune = now + VIEWER_REST;
            self.viewers.retain(|_, asked| now.since(*asked) <= VIEWER_REST);
        }
    }

    /// How many sessions look at it.
    pub(super) fn viewers(&self, now: Time) -> usize {
        self.viewers.values().filter(|asked| now.since(**asked) <= VIEWER_REST).count()
    }

    /// How many frames wait for it.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a frame waits for it.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Batch jobs that wait for it, at the chunk where most do.
    pub(super) fn batch_waiting(&self) -> usize {
        self.batch.iter().map(VecDeque::len).max().unwrap_or(0)
    }
}
