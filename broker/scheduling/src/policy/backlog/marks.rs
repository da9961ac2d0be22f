//! How far each voter has come in a long queue.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::Rank;
use crate::farm::{Farm, HostIx, VoterIx, WorkunitIx};
use crate::limits::MARK_RETURNED_MAX;

/// The entries of a queue in full order, and for each voter that asked where the entries begin
/// that it has not touched. An entry that a voter has touched stays touched until it enters
/// anew, so no voter looks at an entry twice in between.
///
/// # Invariants
/// - `by_rank` and `by_stamp` hold the same entries.
/// - Whatever is before a voter's mark, was seen by it, and is not in its `returned`, has been
///   touched by that voter.
#[derive(Default)]
pub(super) struct Marks {
    by_rank: BTreeMap<Rank, (WorkunitIx, u64)>,
    by_stamp: BTreeMap<u64, Rank>,
    next_stamp: u64,
    of_voters: FxHashMap<VoterIx, Mark>,
}

struct Mark {
    /// The first that the voter may not have touched.
    from: Rank,
    /// Entries with an earlier stamp were seen.
    seen: u64,
    /// Entered anew before the mark, and not touched when they were seen.
    returned: BTreeSet<Rank>,
}

impl Marks {
    pub(super) fn of(entries: impl Iterator<Item = (Rank, WorkunitIx)>) -> Self {
        let mut marks = Self::default();
        for (rank, workunit) in entries {
            marks.insert(workunit, rank, rank.arrival);
        }
        marks
    }

    pub(super) fn len(&self) -> usize {
        self.by_rank.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, WorkunitIx)> {
        self.by_rank.iter().map(|(rank, (workunit, _))| (*rank, *workunit))
    }

    pub(super) fn insert(&mut self, workunit: WorkunitIx, rank: Rank, stamp: u64) {
        self.by_rank.insert(rank, (workunit, stamp));
        self.by_stamp.insert(stamp, rank);
        self.next_stamp = self.next_stamp.max(stamp + 1);
    }

    pub(super) fn remove(&mut self, rank: Rank) {
        if let Some((_, stamp)) = self.by_rank.remove(&rank) {
            self.by_stamp.remove(&stamp);
        }
    }

    /// The first workunit that `host`, which has the ability, may take a replica of.
    pub(super) fn first_for(&mut self, farm: &Farm, host: HostIx) -> Option<(Rank, WorkunitIx)> {
        let voter = farm.host(host).voter;
        let Self { by_rank, by_stamp, next_stamp, of_voters } = self;
        let touched = |workunit| farm.workunit(workunit).is_touched_by_voter(voter);
        let eligible = |workunit| farm.is_eligible(workunit, host).is_ok();
        let mark = of_voters.entry(voter).or_insert_with(|| Mark {
            from: Rank { key: 0, arrival: 0 },
            seen: *next_stamp,
            returned: BTreeSet::new(),
        });
        for rank in by_stamp.range(mark.seen..).map(|(_, rank)| *rank) {
            if rank < mark.from && !touched(by_rank[&rank].0) {
                mark.returned.insert(rank);
            }
        }
        mark.seen = *next_stamp;
        if mark.returned.len() > MARK_RETURNED_MAX {
            mark.from = *mark.returned.first().expect("there are more than the limit");
            mark.returned.clear();
        }
        mark.returned.retain(|rank| by_rank.get(rank).is_some_and(|(unit, _)| !touched(*unit)));
        let returned = mark.returned.iter().map(|rank| (*rank, by_rank[rank].0));
        if let Some(found) = returned.into_iter().find(|(_, workunit)| eligible(*workunit)) {
            return Some(found);
        }
        let mut all_touched = true;
        for (rank, (workunit, _)) in by_rank.range(mark.from..) {
            if all_touched && touched(*workunit) {
                continue;
            }
            if all_touched {
                mark.from = *rank;
                all_touched = false;
            }
            if eligible(*workunit) {
                return Some((*rank, *workunit));
            }
        }
        if all_touched && let Some((last, _)) = by_rank.last_key_value() {
            let behind = Rank { key: last.key, arrival: last.arrival + 1 };
            mark.from = mark.from.max(behind);
        }
        None
    }
}
