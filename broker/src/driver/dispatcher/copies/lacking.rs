//! Which chunks are looked at next: those that a job waits for come first.

use std::collections::BTreeSet;
use std::ops::Bound;

use gleaner_protocol::{ChunkId, DatasetId};

use super::Keepers;
use crate::limits::TURN_CHUNKS_MAX;

impl Keepers {
    /// Whether any chunk may have too few copies.
    pub(super) fn may_lack(&self) -> bool {
        !self.lacking.is_empty() || !self.deferred.is_empty()
    }

    /// A chunk comes after all others from now on; whether it did not before.
    pub(super) fn defer(&mut self, chunk: ChunkId) -> bool {
        self.lacking.remove(&chunk) && self.deferred.insert(chunk)
    }

    /// Nobody misses another copy of a chunk.
    pub(super) fn is_done(&mut self, chunk: &ChunkId) {
        self.lacking.remove(chunk);
        self.deferred.remove(chunk);
    }

    /// Chunks that may lack copies, those of datasets that are `read` first; of the others, and then of those
    /// that need not be at once, some at a time, all in turn.
    pub(super) fn next_lacking(&mut self, read: &BTreeSet<DatasetId>) -> Vec<ChunkId> {
        let mut next: Vec<ChunkId> = Vec::new();
        for dataset in read.difference(&self.found) {
            let first = ChunkId { dataset: *dataset, index: 0 };
            let of_dataset = self.lacking.range(first..).take_while(|of| of.dataset == *dataset);
            next.extend(of_dataset.take(TURN_CHUNKS_MAX - next.len()));
        }
        let is_other =
            |of: &&ChunkId| !read.contains(&of.dataset) && !self.found.contains(&of.dataset);
        let sets = [&self.lacking, &self.deferred];
        let mut looked_at = self.looked_at;
        for ((set, last), is_last) in sets.into_iter().zip(&mut looked_at).zip([false, true]) {
            let after = last.map_or(Bound::Unbounded, Bound::Excluded);
            let around = set.range((after, Bound::Unbounded)).chain(set).take(set.len());
            let others = around.filter(|of| is_last || is_other(of));
            let most = TURN_CHUNKS_MAX - next.len();
            next.extend(others.take(most).inspect(|of| *last = Some(**of)));
        }
        self.looked_at = looked_at;
        next
    }
}
