//! Which chunks are looked at next: those of datasets that jobs read come first.

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

    /// Chunks that may lack copies: those of datasets that are `read` first. Of what is left those that came last
    /// before take a half at most, and those of other datasets the rest; of both some at a time, all in turn. So a
    /// chunk that jobs wait for again comes up, however many find no place.
    pub(super) fn next_lacking(&mut self, read: &BTreeSet<DatasetId>) -> Vec<ChunkId> {
        let mut next: Vec<ChunkId> = Vec::new();
        for dataset in read.difference(&self.found) {
            let first = ChunkId { dataset: *dataset, index: 0 };
            let of_dataset = self.lacking.range(first..).take_while(|of| of.dataset == *dataset);
            next.extend(of_dataset.take(TURN_CHUNKS_MAX - next.len()));
        }
        let is_other =
            |of: &&ChunkId| !read.contains(&of.dataset) && !self.found.contains(&of.dataset);
        let half = (TURN_CHUNKS_MAX - next.len()).div_ceil(2);
        let sets = [(&self.deferred, true), (&self.lacking, false)];
        let mut looked_at = self.looked_at;
        for ((set, is_deferred), last) in sets.into_iter().zip(&mut looked_at) {
            let after = last.map_or(Bound::Unbounded, Bound::Excluded);
            let around = set.range((after, Bound::Unbounded)).chain(set).take(set.len());
            let others = around.filter(|of| is_deferred || is_other(of));
            let most = if is_deferred { half } else { TURN_CHUNKS_MAX - next.len() };
            next.extend(others.take(most).inspect(|of| *last = Some(**of)));
        }
        self.looked_at = looked_at;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_find_no_place_those_that_came_last_come_up_in_turn() {
        let of = |dataset: u32, index| ChunkId { dataset: DatasetId::new(dataset.into()), index };
        let many = 4 * u32::try_from(TURN_CHUNKS_MAX).expect("few");
        let mut keepers = Keepers::default();
        keepers.lacking.extend((0..many).map(|index| of(1, index)));
        keepers.deferred.extend((0..many).map(|index| of(2, index)));
        let read = BTreeSet::from([DatasetId::new(2)]);
        let mut seen: BTreeSet<ChunkId> = BTreeSet::new();
        for _ in 0..8 {
            let next = keepers.next_lacking(&read);
            assert_eq!(next.len(), TURN_CHUNKS_MAX);
            seen.extend(next);
        }
        assert_eq!(seen.len(), 2 * many as usize, "of both sets each one");
        // What a job reads comes before both.
        keepers.lacking.insert(of(2, many));
        assert_eq!(keepers.next_lacking(&read)[0], of(2, many));
    }
}
