//! Open workunits: touched, and not ended.

use gleaner_protocol::{Digest, LeaseToken, Origin, WorkunitId};
use smallvec::SmallVec;

use super::{HostIx, VoterIx};
use crate::ability::AbilityIx;
use crate::limits::OPEN_WORKUNITS_MAX;

/// Number of an open workunit in one core; used again after it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkunitIx(u32);

/// A replica that is leased (`pendResults`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Its lease.
    pub token: LeaseToken,
    /// Whose vote it will be.
    pub voter: VoterIx,
    /// Where it runs.
    pub host: HostIx,
}

/// A replica that was reported (`completeResults`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The lease it was given under.
    pub token: LeaseToken,
    /// Whose vote.
    pub voter: VoterIx,
    /// Where it ran.
    pub host: HostIx,
    /// Its output; `None` for a replica that failed.
    pub digest: Option<Digest>,
    /// CPU time spent on it.
    pub cpu_us: u64,
}

/// A workunit with its replicas.
#[derive(Debug)]
pub struct Workunit {
    /// Which.
    pub id: WorkunitId,
    /// Side of its first assignment, where it stays under the fragment-aware policy.
    pub side: Option<Origin>,
    /// Replicas that wait for a host (`waitResults`).
    pub waiting: u16,
    /// Replicas that are leased (`pendResults`).
    pub pending: SmallVec<[Pending; 2]>,
    /// Replicas that were reported (`completeResults`).
    pub votes: SmallVec<[Vote; 1]>,
    /// Tries so far.
    pub attempts: u32,
    /// The job's replication factor.
    pub replication: u8,
    pub(crate) ability: AbilityIx,
}

impl Workunit {
    pub(crate) fn new(id: WorkunitId, replication: u8, ability: AbilityIx) -> Self {
        Self {
            id,
            side: None,
            waiting: replication.into(),
            pending: SmallVec::new(),
            votes: SmallVec::new(),
            attempts: 0,
            replication,
            ability,
        }
    }

    /// The key of the fragment-aware queues: (waiting + pending) / replication factor, as a
    /// fixed-point number with 32 binary places, which orders all such fractions exactly.
    ///
    /// Source: L.-P. Chen and Y.-S. Cheng, "On Increasing Resource Utilization of a
    /// High-Performance Computing System", 2016, Section 4.
    #[must_use]
    pub fn key(&self) -> u64 {
        let incomplete = u64::from(self.waiting) + self.pending.len() as u64;
        (incomplete << 32) / u64::from(self.replication)
    }

    /// Whether this host, or another of the same vote, has a replica or a vote here. The host
    /// itself counts even if it has changed its owner since.
    #[must_use]
    pub fn is_touched_by(&self, host: HostIx, voter: VoterIx) -> bool {
        self.pending.iter().any(|pending| pending.voter == voter || pending.host == host)
            || self.has_voted(host, voter)
    }

    /// Whether this voter has a replica or a vote here.
    pub(crate) fn is_touched_by_voter(&self, voter: VoterIx) -> bool {
        self.pending.iter().any(|pending| pending.voter == voter)
            || self.votes.iter().any(|vote| vote.voter == voter)
    }

    /// Whether this host, or another of the same vote, has voted.
    pub(crate) fn has_voted(&self, host: HostIx, voter: VoterIx) -> bool {
        self.votes.iter().any(|vote| vote.voter == voter || vote.host == host)
    }

    /// The output that most votes agree on, the earliest of equals, and how many those are.
    #[must_use]
    pub fn leader(&self) -> Option<(Digest, usize)> {
        let mut best: Option<(Digest, usize)> = None;
        for digest in self.votes.iter().filter_map(|vote| vote.digest) {
            let agreeing = self.votes.iter().filter(|vote| vote.digest == Some(digest)).count();
            if best.is_none_or(|(_, most)| agreeing > most) {
                best = Some((digest, agreeing));
            }
        }
        best
    }
}

/// All open workunits, in a slab.
#[derive(Debug)]
pub(crate) struct OpenWorkunits {
    slots: Vec<Option<Workunit>>,
    vacant: Vec<u32>,
    /// [`OPEN_WORKUNITS_MAX`], less in tests.
    pub(crate) max: usize,
}

impl Default for OpenWorkunits {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), max: OPEN_WORKUNITS_MAX }
    }
}

impl OpenWorkunits {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    pub(crate) fn get(&self, WorkunitIx(index): WorkunitIx) -> &Workunit {
        self.slots[index as usize].as_ref().expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn get_mut(&mut self, WorkunitIx(index): WorkunitIx) -> &mut Workunit {
        self.slots[index as usize].as_mut().expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn contains(&self, WorkunitIx(index): WorkunitIx) -> bool {
        self.slots.get(index as usize).is_some_and(Option::is_some)
    }

    pub(crate) fn insert(&mut self, workunit: Workunit) -> WorkunitIx {
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = Some(workunit);
            return WorkunitIx(index);
        }
        let index = u32::try_from(self.slots.len()).expect("OPEN_WORKUNITS_MAX fits u32");
        self.slots.push(Some(workunit));
        WorkunitIx(index)
    }

    pub(crate) fn remove(&mut self, WorkunitIx(index): WorkunitIx) -> Workunit {
        self.vacant.push(index);
        self.slots[index as usize].take().expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkunitIx, &Workunit)> {
        (0..)
            .map(WorkunitIx)
            .zip(&self.slots)
            .filter_map(|(index, slot)| slot.as_ref().map(|workunit| (index, workunit)))
    }
}
