//! A priority queue of workunits that have a replica waiting, which can be asked for the first
//! one that a given host may take.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use priority_queue::PriorityQueue;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::Violation;
use crate::farm::{Farm, HostIx, WorkunitIx};
use crate::limits::HEADS_LOOKED_AT;

type Rank = Reverse<(u64, u64)>;

/// Workunits in order of (key, arrival), least first.
///
/// A host may not take a workunit on which it has a replica or a vote, so the least is not
/// always the answer. Three steps find it without walking the whole queue for each request: the
/// first few heads are looked at; then, per host, a mark remembers up to which entry nothing was
/// right for it (an entry can become right for a host only by entering anew, with a later
/// stamp), so a host that has touched everything is answered at once; only then is the part
/// behind the mark searched.
///
/// # Invariants
/// - Entries are exactly the workunits given to [`Backlog::put`] and not removed since.
/// - `stamps` and `queue` hold the same workunits.
#[derive(Default)]
pub struct Backlog {
    queue: PriorityQueue<WorkunitIx, Entry, FxBuildHasher>,
    stamps: BTreeMap<u64, WorkunitIx>,
    barren_up_to: FxHashMap<HostIx, u64>,
    next: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: Rank,
    stamp: u64,
}

impl Backlog {
    /// How many workunits have a replica waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether this workunit is in it.
    #[must_use]
    pub fn contains(&self, workunit: WorkunitIx) -> bool {
        self.queue.get(&workunit).is_some()
    }

    /// Its key, where it is in it.
    #[must_use]
    pub fn key(&self, workunit: WorkunitIx) -> Option<u64> {
        self.queue.get(&workunit).map(|(_, entry)| entry.rank.0.0)
    }

    /// Enters a workunit, or changes its key and keeps its place among equals. Call it whenever
    /// a host may have become right for the workunit.
    pub fn put(&mut self, workunit: WorkunitIx, key: u64) {
        let stamp = self.next;
        self.next += 1;
        let arrival = match self.queue.get(&workunit) {
            Some((_, entry)) => {
                self.stamps.remove(&entry.stamp);
                entry.rank.0.1
            }
            None => stamp,
        };
        self.stamps.insert(stamp, workunit);
        self.queue.push(workunit, Entry { rank: Reverse((key, arrival)), stamp });
    }

    /// Takes a workunit out; whether it was there.
    pub fn remove(&mut self, workunit: WorkunitIx) -> bool {
        match self.queue.remove(&workunit) {
            Some((_, entry)) => {
                self.stamps.remove(&entry.stamp);
                true
            }
            None => false,
        }
    }

    /// The first workunit that `host` may take a replica of. It stays in the queue.
    pub fn first_for(&mut self, farm: &Farm, host: HostIx) -> Option<WorkunitIx> {
        let eligible = |workunit: WorkunitIx| farm.is_eligible(workunit, host).is_ok();
        let (&head, _) = self.queue.peek()?;
        if eligible(head) {
            return Some(head);
        }
        let mark = self.barren_up_to.get(&host).copied().unwrap_or(0);
        if mark >= self.next {
            return None;
        }
        if let Some(found) = self.search_heads(eligible) {
            return Some(found);
        }
        let best = self
            .stamps
            .range(mark..)
            .filter(|(_, workunit)| eligible(**workunit))
            .max_by_key(|(_, workunit)| self.queue.get(*workunit).map(|(_, entry)| entry.rank))
            .map(|(_, workunit)| *workunit);
        if best.is_none() {
            self.barren_up_to.insert(host, self.next);
        }
        best
    }

    /// Forgets what was found out about a host, because the host has changed.
    pub fn host_changed(&mut self, host: HostIx) {
        self.barren_up_to.remove(&host);
    }

    fn search_heads(&mut self, eligible: impl Fn(WorkunitIx) -> bool) -> Option<WorkunitIx> {
        let mut looked_at = Vec::with_capacity(HEADS_LOOKED_AT);
        let mut found = None;
        while found.is_none() && looked_at.len() < HEADS_LOOKED_AT {
            let Some((workunit, entry)) = self.queue.pop() else { break };
            looked_at.push((workunit, entry));
            found = eligible(workunit).then_some(workunit);
        }
        self.queue.extend(looked_at);
        found
    }

    /// Whether it holds exactly what `wanted` says, under the keys that it says.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(
        &self,
        name: &'static str,
        farm: &Farm,
        wanted: impl Fn(WorkunitIx) -> Option<u64>,
    ) -> Result<(), Violation> {
        let mut expected = 0;
        for (workunit, unit) in farm.workunits() {
            let key = wanted(workunit);
            expected += usize::from(key.is_some());
            if self.key(workunit) != key {
                return Err(Violation::new(
                    "queue-keys",
                    format!("{name}: {} has key {:?}, not {key:?}", unit.id, self.key(workunit)),
                ));
            }
        }
        if self.len() != expected || self.stamps.len() != expected {
            return Err(Violation::new(
                "queue-members",
                format!(
                    "{name}: {} entries, {} stamps, not {expected}",
                    self.len(),
                    self.stamps.len()
                ),
            ));
        }
        Ok(())
    }
}
