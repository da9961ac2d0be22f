//! A dataset: where its chunks are, and who waits for it.

use std::collections::VecDeque;

use gleaner_protocol::{JobId, Time};

use super::super::board::Arrived;

/// An interactive frame that waits for its dataset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) of: Arrived,
    pub(super) asked: Time,
}

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
            last_asked: None,
        }
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
