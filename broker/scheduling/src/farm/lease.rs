//! Leases and when they end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::{Kept, LeaseToken, Share, Time};

use super::{HostIx, WorkunitIx};

/// A lease, as its host lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its token.
    pub token: LeaseToken,
    /// What it is a replica of.
    pub workunit: WorkunitIx,
    /// How much of the host's cores it may use.
    pub share: Share,
    /// Memory that it has there until it ends, in MiB.
    pub memory_mib: u32,
    /// GPUs that it has there until it ends.
    pub gpus: u8,
    /// Whether it was parked for a larger one of its own lane, which happens once.
    pub has_stepped_aside: bool,
}

impl Lease {
    /// What it has of its host beside cores.
    #[must_use]
    pub fn kept(&self) -> Kept {
        Kept { memory_mib: self.memory_mib, gpus: self.gpus }
    }

    /// The same where its replica has so much beside cores.
    pub(crate) fn with(self, Kept { memory_mib, gpus }: Kept) -> Self {
        Self { memory_mib, gpus, ..self }
    }
}

/// A lease with all that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) host: HostIx,
    pub(crate) workunit: WorkunitIx,
    pub(crate) token: LeaseToken,
    /// Which try at the workunit.
    pub(crate) attempt: u32,
}

/// When a lease ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseEnd {
    pub(crate) until: Time,
    pub(crate) workunit: WorkunitIx,
    /// Which of the pending replicas of the workunit.
    pub(crate) serial: u32,
}

/// When leases end.
///
/// Leases of the same length end in the order in which they were given, so there is a plain
/// queue for each length. A lease that ended before its time leaves its entry behind until it
/// comes to the front, or until such entries are the most.
///
/// # Invariants
/// - The first entry of each queue is that of a lease.
/// - At most 64 entries more are left behind than there are leases, in each queue.
#[derive(Debug, Default)]
pub(crate) struct LeaseEnds {
    queues: BTreeMap<u64, Queue>,
    /// The first end of each queue.
    firsts: BTreeSet<(Time, u64)>,
    live: usize,
    next_serial: u32,
}

#[derive(Debug, Default)]
struct Queue {
    ends: VecDeque<LeaseEnd>,
    live: usize,
}

impl LeaseEnds {
    const LEFT_BEHIND: usize = 64;

    /// How many leases there are.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Enters a lease of `lease_s` seconds, and returns its serial number.
    pub(crate) fn insert(&mut self, until: Time, lease_s: u64, workunit: WorkunitIx) -> u32 {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let queue = self.queues.entry(lease_s).or_default();
        let until = queue.ends.back().map_or(until, |last| last.until.max(until));
        if queue.ends.is_empty() {
            self.firsts.insert((until, lease_s));
        }
        queue.ends.push_back(LeaseEnd { until, workunit, serial });
        queue.live += 1;
        self.live += 1;
        serial
    }

    /// Takes a lease out. `is_live` tells whether an entry is that of another lease.
    pub(crate) fn remove(
        &mut self,
        lease_s: u64,
        serial: u32,
        is_live: impl Fn(&LeaseEnd) -> bool,
    ) {
        let queue = self.queues.get_mut(&lease_s).expect("a lease is in the queue of its length");
        queue.live -= 1;
        self.live -= 1;
        let Some(first) = queue.ends.front().copied() else { return };
        if first.serial == serial {
            queue.ends.pop_front();
            while queue.ends.front().is_some_and(|end| !is_live(end)) {
                queue.ends.pop_front();
            }
            let next = queue.ends.front().copied();
            if next.map(|end| end.until) != Some(first.until) {
                self.firsts.remove(&(first.until, lease_s));
                self.firsts.extend(next.map(|end| (end.until, lease_s)));
            }
        }
        // Whichever lease ended: with fewer leases, fewer entries may be left behind.
        if queue.ends.len() > 2 * queue.live + Self::LEFT_BEHIND {
            queue.ends.retain(is_live);
        }
        if queue.ends.is_empty() {
            self.queues.remove(&lease_s);
        }
    }

    /// The lease that ends first.
    pub(crate) fn first(&self) -> Option<LeaseEnd> {
        let (_, lease_s) = self.firsts.first()?;
        self.queues.get(lease_s)?.ends.front().copied()
    }

    /// All entries, those left behind included, and how many may be left behind.
    pub(crate) fn entries(&self) -> (impl Iterator<Item = &LeaseEnd>, usize) {
        let most = self.live + Self::LEFT_BEHIND * self.queues.len();
        (self.queues.values().flat_map(|queue| &queue.ends), most)
    }

    /// The first entry of each queue, and how many are noted.
    pub(crate) fn firsts(&self) -> (impl Iterator<Item = &LeaseEnd>, usize) {
        (self.queues.values().filter_map(|queue| queue.ends.front()), self.firsts.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn few_ends_are_left_behind_however_leases_end() {
        const LEASES: u32 = 400;
        let mut ends = LeaseEnds::default();
        let serials: Vec<u32> = (0..LEASES)
            .map(|second| {
                let until = Time::from_micros(u64::from(second));
                ends.insert(until, 900, WorkunitIx::from_index(0))
            })
            .collect();
        let live = RefCell::new(serials.iter().copied().collect::<BTreeSet<u32>>());
        // Those behind the first half, which leave their entries; then the first, one by one.
        let (first, second) = serials.split_at(serials.len() / 2);
        for serial in second.iter().chain(first) {
            live.borrow_mut().remove(serial);
            ends.remove(900, *serial, |end| live.borrow().contains(&end.serial));
            let (entries, most) = ends.entries();
            let left = entries.count() - live.borrow().len();
            assert!(left <= most, "{left} are left behind, at most {most} may be");
        }
        assert_eq!((ends.len(), ends.first()), (0, None));
    }
}
