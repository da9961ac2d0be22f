//! How far each voter has come in a long queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::Rank;
use crate::farm::{Farm, HostIx, Voice, VoterIx, WorkunitIx};
use crate::limits::MARK_RETURNED_MAX;

/// The entries of a queue in full order, and for each voter that asked where the entries begin
/// that it has not touched. An entry that a voter has touched, or that has no place for a voter
/// without a voice, stays so until it enters anew, so no voter looks at an entry twice in between.
///
/// # Invariants
/// - Whatever is before a voter's mark, entered before the voter looked last, and is not in its
///   `returned`, has been touched by that voter.
/// - The log has every entry that entered before a mark, at most twice as many as there are.
pub(crate) struct Marks {
    by_rank: BTreeMap<Rank, WorkunitIx>,
    /// What entered before some voter's mark, and when.
    log: VecDeque<(u64, Rank)>,
    next_stamp: u64,
    /// No voter's mark is behind this.
    highest: Rank,
    of_voters: FxHashMap<(VoterIx, Voice), Mark>,
}

struct Mark {
    /// The first that the voter may not have touched.
    from: Rank,
    /// Entries of the log with an earlier stamp were seen.
    seen: u64,
    /// Entered anew before the mark, and not touched when they were seen.
    returned: BTreeSet<Rank>,
}

impl Marks {
    const LOG_MIN: usize = 64;

    pub(crate) fn of(entries: impl Iterator<Item = (Rank, WorkunitIx)>) -> Self {
        let by_rank: BTreeMap<_, _> = entries.collect();
        Self {
            by_rank,
            log: VecDeque::new(),
            next_stamp: 0,
            highest: Rank::FIRST,
            of_voters: FxHashMap::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rank.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Rank, WorkunitIx)> {
        self.by_rank.iter().map(|(rank, workunit)| (*rank, *workunit))
    }

    pub(crate) fn insert(&mut self, workunit: WorkunitIx, rank: Rank) {
        self.by_rank.insert(rank, workunit);
        if rank < self.highest {
            self.log.push_back((self.next_stamp, rank));
            self.next_stamp += 1;
        }
        if self.log.len() > 2 * self.by_rank.len() + Self::LOG_MIN {
            self.shorten_log();
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank) {
        self.by_rank.remove(&rank);
    }

    /// A forgotten host has come nowhere.
    pub(crate) fn forget_host(&mut self, host: HostIx) {
        for voice in [Voice::New, Voice::Earned, Voice::Vouched] {
            self.of_voters.remove(&(VoterIx::of_host(host), voice));
        }
    }

    /// Keeps of what has left, or entered twice, the last time only.
    fn shorten_log(&mut self) {
        let mut seen = BTreeSet::new();
        let by_rank = &self.by_rank;
        let mut last: VecDeque<_> = std::mem::take(&mut self.log);
        while let Some((stamp, rank)) = last.pop_back() {
            if by_rank.contains_key(&rank) && seen.insert(rank) {
                self.log.push_front((stamp, rank));
            }
        }
    }

    /// The first workunit that `host`, which has the ability, may take a replica of.
    pub(crate) fn first_for(&mut self, farm: &Farm, host: HostIx) -> Option<(Rank, WorkunitIx)> {
        let voter = farm.host(host).voter;
        let Self { by_rank, log, next_stamp, highest, of_voters } = self;
        let touched = |workunit| {
            let unit = farm.workunit(workunit);
            unit.is_touched_by_voter(voter) || !farm.has_place_for(unit, voter)
        };
        let untouched_at = |rank: &Rank| by_rank.get(rank).filter(|unit| !touched(**unit)).copied();
        let eligible = |workunit| farm.is_welcome(workunit, host);
        let mark = of_voters.entry((voter, farm.voice_of(voter))).or_insert_with(|| Mark {
            from: Rank::FIRST,
            seen: *next_stamp,
            returned: BTreeSet::new(),
        });
        let new = log.partition_point(|(stamp, _)| *stamp < mark.seen);
        let new = log.range(new..).map(|(_, rank)| *rank).filter(|rank| *rank < mark.from);
        mark.returned.extend(new.filter(|rank| untouched_at(rank).is_some()));
        mark.seen = *next_stamp;
        if mark.returned.len() > MARK_RETURNED_MAX {
            mark.from = *mark.returned.first().expect("there are more than the limit");
            mark.returned.clear();
        }
        mark.returned.retain(|rank| untouched_at(rank).is_some());
        let mut returned = mark.returned.iter().map(|rank| (*rank, by_rank[rank]));
        if let Some(found) = returned.find(|(_, workunit)| eligible(*workunit)) {
            return Some(found);
        }
        let mut ahead = by_rank.range(mark.from..).map(|(rank, workunit)| (*rank, *workunit));
        let first = ahead.find(|(_, workunit)| !touched(*workunit));
        mark.from = match (first, by_rank.last_key_value()) {
            (Some((rank, _)), _) => rank,
            (None, Some((last, _))) => mark.from.max(last.next()),
            (None, None) => mark.from,
        };
        *highest = mark.from.max(*highest);
        first.into_iter().chain(ahead).find(|(_, workunit)| eligible(*workunit))
    }
}
