//! Where a policy acts on the farm.

use gleaner_protocol::{JobId, LeaseToken, ReplicaId, Span, Time, WorkunitId};
use thiserror::Error;

use crate::Effect;
use crate::core::TokenMint;
use crate::farm::{Farm, HostIx, Lease, Pending, WorkunitIx};

/// Why the rules forbid an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The host's agent is not connected.
    #[error("the host is not connected")]
    Disconnected,
    /// The host gives nothing now.
    #[error("the host's fragment is closed")]
    FragmentClosed,
    /// The host's slots are all leased.
    #[error("the host has no free slot")]
    NoFreeSlot,
    /// Work is given to hosts that ask.
    #[error("the host did not ask for work")]
    DidNotAsk,
    /// All replicas are leased or complete.
    #[error("the workunit has no waiting replica")]
    NoReplicaWaits,
    /// The host, or its owner, has a replica or a vote already.
    #[error("the host has a replica or a vote of this workunit already")]
    OneVotePerHost,
    /// The kernel or program is not there or not allowed.
    #[error("the host does not offer what the job runs")]
    CannotRun,
}

/// A policy's hands: everything it may do to the farm, each step checked against the rules and
/// visible in [`Desk::farm`] at once, so that one plan can make many steps that build on each
/// other.
///
/// Policies that also order data moves, change CPU shares or take replicas back get further
/// methods here, of the same kind: check, change the farm, push an effect.
#[derive(Debug)]
pub struct Desk<'a> {
    farm: &'a mut Farm,
    tokens: &'a mut TokenMint,
    effects: &'a mut Vec<Effect>,
    now: Time,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(
        now: Time,
        farm: &'a mut Farm,
        tokens: &'a mut TokenMint,
        effects: &'a mut Vec<Effect>,
    ) -> Self {
        Self { farm, tokens, effects, now }
    }

    /// The farm as it is now.
    #[must_use]
    pub fn farm(&self) -> &Farm {
        self.farm
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Touches the job's next untouched workunit: its replicas are generated and wait. `None`
    /// where the job has none left, or too many workunits are open.
    pub fn open(&mut self, job: JobId) -> Option<WorkunitIx> {
        if self.farm.is_full() {
            return None;
        }
        let index = self.farm.jobs.get(&job)?.next_untouched()?;
        Some(self.farm.open_at(WorkunitId { job, index }))
    }

    /// Gives a waiting replica of the workunit to the host: it moves from waiting to pending.
    /// The first one fixes the workunit's side.
    ///
    /// # Errors
    /// The rule that forbids it; then nothing has changed.
    pub fn start(&mut self, workunit: WorkunitIx, host: HostIx) -> Result<LeaseToken, Refusal> {
        self.farm.may_start(workunit, host)?;
        let token = self.tokens.mint();
        let replica = self.farm.grant(self.now, workunit, host, token, None);
        self.farm.hosts.change(host, |entry| entry.asked -= 1);
        self.effects.push(Effect::Lease { host, token, replica });
        Ok(token)
    }
}

impl Farm {
    /// Moves a waiting replica to pending under `token`: a new try, or `attempt` where the host
    /// has begun it before. The rules were checked.
    pub(crate) fn grant(
        &mut self,
        now: Time,
        workunit: WorkunitIx,
        host: HostIx,
        token: LeaseToken,
        attempt: Option<u32>,
    ) -> ReplicaId {
        let (voter, origin) = self.hosts.change(host, |entry| {
            entry.leases.push(Lease { token, workunit });
            (entry.voter, entry.origin())
        });
        let unit = self.workunits.get_mut(workunit);
        let job = self.jobs.get_mut(&unit.id.job).expect("a workunit's job is known");
        let until = now + Span::from_secs(job.spec.lease_s);
        let serial = self.ends.insert(until, job.spec.lease_s, workunit);
        unit.waiting -= 1;
        unit.attempts =
            attempt.unwrap_or_else(|| unit.attempts.saturating_add(1)).max(unit.attempts);
        unit.side.get_or_insert(origin);
        let attempt = attempt.unwrap_or(unit.attempts);
        unit.pending.push(Pending { token, voter, host, attempt, serial });
        job.counts.leased += 1;
        job.pending += 1;
        self.totals.leased += 1;
        ReplicaId { workunit: unit.id, attempt }
    }
}
