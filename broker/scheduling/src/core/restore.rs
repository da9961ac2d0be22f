//! From the journal back to a core.

use std::collections::BTreeSet;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::{
    Capabilities, Digest, HostInfo, HostName, LeaseToken, Origin, OwnerName, WorkunitId,
};
use thiserror::Error;

use super::Core;
use crate::Fact;
use crate::ability::AbilitySet;
use crate::farm::{HostIx, JobPhase, Vote, WorkunitIx};

/// A journal that no core can have written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// A fact about a job that was not accepted before it.
    #[error("the journal speaks of {0}, which it did not accept before")]
    UnknownWorkunit(WorkunitId),
    /// Two canonical outputs.
    #[error("the journal decides {0} twice")]
    DecidedTwice(WorkunitId),
}

impl Core {
    /// Takes a fact from the journal, in the order in which facts were persisted.
    ///
    /// # Errors
    /// The fact contradicts those before it.
    pub fn restore(&mut self, fact: Fact) -> Result<(), RestoreError> {
        let mut unheard = Vec::new();
        match fact {
            Fact::JobAccepted { job, spec } => self.add_job(job, spec),
            Fact::JobCancelled { job } => self.end_job(job, JobPhase::Cancelled, &mut unheard),
            Fact::Voted { workunit, side, host, owner, token, digest, cpu_us } => {
                let voter = Voter { host, owner, side };
                self.restore_vote(workunit, voter, token, Some(digest), cpu_us)?;
            }
            Fact::ReplicaFailed { workunit, side, host, owner, token } => {
                let voter = Voter { host, owner, side };
                self.restore_vote(workunit, voter, token, None, 0)?;
            }
            Fact::Decided { workunit: id, digest } => {
                let workunit = self.known(id)?;
                self.decide(workunit, digest, &mut unheard);
            }
            Fact::Counted { job: id, counts } => {
                let unknown = WorkunitId { job: id, index: 0 };
                let job =
                    self.farm.jobs.get_mut(&id).ok_or(RestoreError::UnknownWorkunit(unknown))?;
                job.counts = counts;
            }
            Fact::GivenUp { workunit: id, reason } => {
                let workunit = self.known(id)?;
                self.give_up(workunit, reason, &mut unheard);
            }
        }
        debug_assert!(
            !unheard.iter().any(|effect| matches!(effect, crate::Effect::Persist(_))),
            "restoring decides nothing anew"
        );
        Ok(())
    }

    /// After the last fact: brings what was lost between two facts of one input, and the
    /// replicas that open workunits still need.
    pub fn restored(&mut self, effects: &mut Vec<crate::Effect>) {
        let open: Vec<_> = self.farm.workunits().map(|(workunit, _)| workunit).collect();
        for workunit in open {
            if self.farm.workunits.contains(workunit) {
                self.after_vote(workunit, effects);
            }
        }
        self.new_work = false;
    }

    fn known(&mut self, id: WorkunitId) -> Result<WorkunitIx, RestoreError> {
        if let Some(workunit) = self.farm.find(id) {
            return Ok(workunit);
        }
        let job = self.farm.jobs.get(&id.job).ok_or(RestoreError::UnknownWorkunit(id))?;
        if id.index >= job.workunit_count() {
            return Err(RestoreError::UnknownWorkunit(id));
        }
        if job.ended.contains(id.index) {
            return Err(RestoreError::DecidedTwice(id));
        }
        Ok(self.farm.open_at(id))
    }

    fn restore_vote(
        &mut self,
        id: WorkunitId,
        voter: Voter,
        token: LeaseToken,
        digest: Option<Digest>,
        cpu_us: u64,
    ) -> Result<(), RestoreError> {
        let host = self.known_host(voter.host, voter.owner, voter.side);
        let workunit = self.known(id)?;
        let unit = self.farm.workunits.get_mut(workunit);
        unit.side.get_or_insert(voter.side);
        unit.waiting = unit.waiting.saturating_sub(1);
        unit.attempts += 1;
        let voter = self.farm.hosts.get(host).voter;
        unit.votes.push(Vote { token, voter, host, digest, cpu_us });
        self.count_vote(host, id, digest.is_some());
        self.workunit_changed(workunit);
        Ok(())
    }

    fn known_host(&mut self, name: HostName, owner: Option<OwnerName>, origin: Origin) -> HostIx {
        if let Some(host) = self.farm.hosts.find(&name) {
            return host;
        }
        let info = HostInfo {
            name,
            origin,
            owner,
            cores: 0,
            memory_mib: 0,
            capabilities: Capabilities { kernels: BTreeSet::new(), commands: BTreeSet::new() },
        };
        let host = self.farm.hosts.enter(info, AbilitySet::default());
        self.farm.hosts.change(host, |entry| entry.fragment = Fragment::default());
        host
    }
}

struct Voter {
    host: HostName,
    owner: Option<OwnerName>,
    side: Origin,
}
