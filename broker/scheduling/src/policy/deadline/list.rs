//! Who is late if tasks run without interruption, in the order in which they can wait least.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use gleaner_protocol::Time;

use super::book::Entry;

/// A task that has not ended, for a plan that begins now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Which job it is of, by a number of the caller's.
    pub(super) job: usize,
    pub(super) left_us: u64,
    /// Until its job is due, in microseconds.
    pub(super) until_us: u64,
    /// Whether it has a core and keeps it.
    pub(super) is_pinned: bool,
}

/// The tasks of a job that is the caller's `job`, each with what is `left_us` of it.
pub(super) fn pieces<'a>(
    job: usize,
    entry: &'a Entry,
    now: Time,
    left_us: impl Fn(&super::book::Task) -> u64 + 'a,
) -> impl Iterator<Item = Piece> + 'a {
    let until_us = entry.due.since(now).as_micros();
    entry.open().map(move |(_, task)| Piece {
        job,
        left_us: left_us(task),
        until_us,
        is_pinned: task.run.is_some() && !entry.is_movable(),
    })
}

/// The jobs that are late if so many equal cores do this, each task on one of them without
/// interruption: what is pinned goes on, and where a core is free the one begins that can wait
/// least. That is what the policy does while nothing changes.
pub(super) fn late(cores: u32, pieces: impl IntoIterator<Item = Piece>) -> BTreeSet<usize> {
    let mut pieces: Vec<Piece> = pieces.into_iter().collect();
    let latest_us = |piece: &Piece| piece.until_us.saturating_sub(piece.left_us);
    pieces.sort_by_key(|piece| (!piece.is_pinned, latest_us(piece), piece.job));
    // When each core is free.
    let mut free_us: BinaryHeap<Reverse<u64>> = (0..cores).map(|_| Reverse(0)).collect();
    let mut late = BTreeSet::new();
    for piece in pieces {
        let end_us = free_us.pop().map(|Reverse(from_us)| from_us.saturating_add(piece.left_us));
        if end_us.is_none_or(|end_us| end_us > piece.until_us) {
            late.insert(piece.job);
        }
        free_us.extend(end_us.map(Reverse));
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(job: usize, left_us: u64, until_us: u64, is_pinned: bool) -> Piece {
        Piece { job, left_us, until_us, is_pinned }
    }

    #[test]
    fn what_runs_is_in_the_way_of_what_cannot_wait() {
        let runs = [piece(0, 8, 100, true), piece(0, 8, 100, true)];
        let presses = piece(1, 5, 10, false);
        assert_eq!(late(2, runs.into_iter().chain([presses])), BTreeSet::from([1]));
        assert_eq!(late(3, runs.into_iter().chain([presses])), BTreeSet::new());
        let waits = runs.map(|piece| Piece { is_pinned: false, ..piece });
        assert_eq!(late(2, waits.into_iter().chain([presses])), BTreeSet::new());
    }

    #[test]
    fn without_cores_all_are_late() {
        assert_eq!(late(0, [piece(3, 1, 9, false)]), BTreeSet::from([3]));
    }
}
