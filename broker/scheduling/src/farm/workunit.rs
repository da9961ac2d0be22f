//! Open workunits: touched, and not ended.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, LeaseToken, Origin, WorkunitId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thin_vec::ThinVec;

use super::{Begins, FailedAttempt, HostIx, SavedState, Vote, VoterIx};
use crate::ability::AbilityIx;

/// Number of an open workunit in one core; used again after it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkunitIx(u32);

impl WorkunitIx {
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("OPEN_WORKUNITS_MAX fits u32"))
    }

    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}

/// A replica that is leased (`pendResults`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Its lease.
    pub token: LeaseToken,
    /// Whose vote it will be.
    pub voter: VoterIx,
    /// Where it runs.
    pub host: HostIx,
    /// Which try at the workunit it is.
    pub attempt: u32,
    /// Tells it from the others of its workunit, those of the past included.
    pub(crate) serial: u32,
}

/// What decides a workunit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// So many equal outputs.
    Quorum(u8),
    /// As many equal outputs, or as many later checks of the hosts that gave them, as the error
    /// allows that its job names.
    Credible,
}

/// A workunit with its replicas.
#[derive(Debug)]
pub struct Workunit {
    /// Which.
    pub id: WorkunitId,
    /// Its job's lane.
    pub lane: Lane,
    /// Side of its first assignment, where it stays under the fragment-aware policy.
    pub side: Option<Origin>,
    /// Replicas that wait for a host (`waitResults`).
    pub waiting: u16,
    /// Replicas that are leased (`pendResults`).
    pub pending: SmallVec<[Pending; 2]>,
    /// Replicas that were reported with an output (`completeResults`).
    pub votes: ThinVec<Vote>,
    /// Attempts that ended without an output.
    pub failed_attempts: ThinVec<FailedAttempt>,
    /// Hosts that refused it, the last ones.
    pub(crate) refused: ThinVec<HostIx>,
    /// What replicas of it saved on the way.
    pub saved: ThinVec<SavedState>,
    /// Whether none goes on any more from what another host saved.
    pub(crate) begins_anew: bool,
    /// Tries so far.
    pub attempts: u32,
    /// Its replication factor.
    pub replication: u8,
    /// What decides it.
    pub rule: Rule,
    /// Later checks for which its provisional decision waits; 0 where it has none.
    pub(crate) due_after: u8,
    pub(crate) ability: AbilityIx,
}

impl Workunit {
    pub(crate) fn new(id: WorkunitId, lane: Lane, begins: Begins, ability: AbilityIx) -> Self {
        let Begins { replicas, rule, attempts } = begins;
        Self {
            id,
            lane,
            side: None,
            waiting: replicas.into(),
            pending: SmallVec::new(),
            votes: ThinVec::new(),
            failed_attempts: ThinVec::new(),
            refused: ThinVec::new(),
            saved: ThinVec::new(),
            begins_anew: false,
            attempts,
            replication: replicas,
            rule,
            due_after: 0,
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

    /// Adds a reported replica. Votes are few and waited for long: no room is kept for more.
    pub(crate) fn push_vote(&mut self, vote: Vote) {
        self.votes.reserve_exact(1);
        self.votes.push(vote);
    }

    /// The hosts that it speaks of, as often as it does, those of its leases aside.
    pub(crate) fn mentioned(&self) -> impl Iterator<Item = HostIx> {
        let votes = self.votes.iter().map(|vote| vote.host);
        let failed = self.failed_attempts.iter().map(|attempt| attempt.host);
        let said = self.saved.iter().flat_map(|saved| &saved.said).map(|party| party.host);
        votes.chain(failed).chain(self.refused.iter().copied()).chain(said)
    }

    /// How many replicas were reported with an output.
    #[must_use]
    pub fn reported(&self) -> usize {
        self.votes.iter().filter(|vote| !vote.handed_over).count()
    }

    /// Whether one output decides it, whoever gives it.
    pub(crate) fn is_decided_by_one(&self) -> bool {
        self.rule == Rule::Quorum(1)
    }

    /// Whether a host has no vote to share with others of its owner: the first output decides, and
    /// a second replica is there for the time alone.
    pub(crate) fn is_for_time_alone(&self) -> bool {
        self.lane == Lane::Deadline && self.rule == Rule::Quorum(1)
    }

    /// Whether this host, or another of the same vote, has a replica or a vote here, or a part in
    /// one. The host itself counts even if it has changed its owner since.
    #[must_use]
    pub fn is_touched_by(&self, host: HostIx, voter: VoterIx) -> bool {
        if self.is_for_time_alone() {
            return self.pending.iter().any(|pending| pending.host == host)
                || self.votes.iter().any(|vote| vote.host == host)
                || self.has_say(|party| party.host == host);
        }
        self.pending.iter().any(|pending| pending.voter == voter || pending.host == host)
            || self.has_voted(host, voter)
            || self.has_say(|party| party.voter == voter || party.host == host)
    }

    /// Whether this voter has a replica or a vote here.
    pub(crate) fn is_touched_by_voter(&self, voter: VoterIx) -> bool {
        if self.is_for_time_alone() {
            return false;
        }
        self.pending.iter().any(|pending| pending.voter == voter)
            || self.votes.iter().any(|vote| vote.voter == voter)
            || self.has_say(|party| party.voter == voter)
    }

    /// Whether this host, or another of the same vote, has voted.
    pub(crate) fn has_voted(&self, host: HostIx, voter: VoterIx) -> bool {
        self.votes.iter().any(|vote| vote.voter == voter || vote.host == host)
    }

    /// The output that most votes agree on, the earliest of equals, and how many those are.
    #[must_use]
    pub fn leader(&self) -> Option<(Digest, usize)> {
        self.leader_of(|_| true)
    }

    /// The same among the votes that count.
    pub(crate) fn leader_of(&self, counts: impl Fn(&Vote) -> bool) -> Option<(Digest, usize)> {
        let outputs = self.votes.iter().filter(|vote| counts(vote)).filter_map(|vote| vote.digest);
        if self.votes.len() > FEW_VOTES {
            return leader_of_many(outputs);
        }
        let mut best: Option<(Digest, usize)> = None;
        for digest in outputs.clone() {
            let agreeing = outputs.clone().filter(|other| *other == digest).count();
            if best.is_none_or(|(_, most)| agreeing > most) {
                best = Some((digest, agreeing));
            }
        }
        best
    }
}

/// So many votes are compared each with each; more are counted in a map.
const FEW_VOTES: usize = 8;

fn leader_of_many(outputs: impl Iterator<Item = Digest> + Clone) -> Option<(Digest, usize)> {
    let mut agreeing: FxHashMap<Digest, usize> = FxHashMap::default();
    outputs.clone().for_each(|digest| *agreeing.entry(digest).or_default() += 1);
    let mut best: Option<(Digest, usize)> = None;
    for digest in outputs {
        let votes = agreeing.get(&digest).copied().unwrap_or(0);
        if best.is_none_or(|(_, most)| votes > most) {
            best = Some((digest, votes));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::JobId;

    use super::*;
    use crate::farm::HostIx;

    #[test]
    fn the_leader_of_many_is_that_of_few() {
        let id = WorkunitId { job: JobId::new(1), index: 0 };
        let begins = Begins { replicas: 1, rule: Rule::Quorum(1), attempts: 0 };
        let mut unit = Workunit::new(id, Lane::Background, begins, AbilityIx::from_index(0));
        assert_eq!(unit.leader(), None);
        for (number, output) in (1_usize..).zip(b"abcbcacdefgcbbc") {
            unit.push_vote(Vote {
                token: LeaseToken::new(number as u64),
                voter: VoterIx::FIRST,
                host: HostIx::FIRST,
                digest: Some(Digest::of(&[*output])),
                cpu_us: 0,
                mark: 0,
                failures: 0,
                per_check: 1,
                handed_over: false,
            });
            let outputs = unit.votes.iter().filter_map(|vote| vote.digest);
            assert_eq!(leader_of_many(outputs), unit.leader(), "{number} votes");
        }
        assert_eq!(unit.leader(), Some((Digest::of(b"c"), 5)));
    }
}
