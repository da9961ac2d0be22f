//! From the journal back to a core.

use gleaner_protocol::api::ReplicaCounts;
use gleaner_protocol::job::Cause;
use gleaner_protocol::{
    Capabilities, Digest, HostInfo, HostName, JobId, LeaseToken, Origin, OwnerName, WorkunitId,
};
use thiserror::Error;

use super::Core;
use crate::Fact;
use crate::ability::AbilitySet;
use crate::farm::{
    FailedAttempt, HostIx, Job, JobPhase, Leased, Party, Reputation, Standing, Vote, VoterIx,
    WorkunitIx,
};
use crate::limits::ABILITIES_MAX;
use crate::policy::Change;
use crate::trust::MOST_PER_CHECK;

/// A journal that no core can have written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// A fact about a job that was not accepted before it.
    #[error("the journal speaks of {0}, which it did not accept before")]
    UnknownWorkunit(WorkunitId),
    /// Something about a workunit that had ended before.
    #[error("the journal speaks of {0} after its end")]
    AfterEnd(WorkunitId),
    /// A fact about a job that was not accepted before it.
    #[error("the journal speaks of {0}, which it did not accept before")]
    UnknownJob(JobId),
    /// Two jobs of one id.
    #[error("the journal accepts {0} twice")]
    AcceptedTwice(JobId),
    /// A job forgotten before its end.
    #[error("the journal forgets {0}, which had not ended")]
    ForgottenWhileActive(JobId),
    /// More than this release keeps in memory.
    #[error("the journal's {0} asks for one kernel or program more than {ABILITIES_MAX}")]
    TooManyAbilities(JobId),
    /// Something about a vote that was not given.
    #[error("the journal speaks of a vote on {0} under {1}, which it does not have")]
    UnknownVote(WorkunitId, LeaseToken),
    /// Two votes of one host, or of one owner.
    #[error("the journal has two votes of {1} on {0}")]
    SecondVote(WorkunitId, HostName),
}

impl Core {
    /// Takes a fact from the journal, in the order in which facts were persisted.
    ///
    /// # Errors
    /// The fact contradicts those before it.
    pub fn restore(&mut self, fact: Fact) -> Result<(), RestoreError> {
        let mut unheard = Vec::new();
        match fact {
            Fact::JobAccepted { job, .. } if self.farm.jobs.contains_key(&job) => {
                return Err(RestoreError::AcceptedTwice(job));
            }
            Fact::JobAccepted { job, spec, accepted_us } => {
                if !self.add_job(job, spec, accepted_us) {
                    return Err(RestoreError::TooManyAbilities(job));
                }
            }
            Fact::JobCancelled { job } => {
                self.farm.job(job).ok_or(RestoreError::UnknownJob(job))?;
                self.end_job(job, JobPhase::Cancelled, &mut unheard);
            }
            Fact::Voted { workunit, side, host, owner, token, digest, cpu_us } => {
                let voter = Voter { host, owner, side };
                self.restore_vote(workunit, voter, token, digest, cpu_us)?;
            }
            Fact::AttemptFailed { workunit, side, host, owner, token, cause, why } => {
                let voter = Voter { host, owner, side };
                self.restore_attempt(workunit, voter, token, cause, &why)?;
            }
            Fact::Decided { workunit: id, digest } => match self.farm.find(id) {
                Some(workunit) => self.decide(workunit, digest, &mut unheard),
                None => self.restore_decided(id, digest, &mut unheard)?,
            },
            Fact::Counted { job: id, counts } => {
                let before = self.farm.job(id).ok_or(RestoreError::UnknownJob(id))?.counts;
                self.farm.tally(id, |of| replace_counts(of, before, counts));
            }
            Fact::JobForgotten { job } => {
                if self.farm.job(job).is_some_and(|job| job.phase == JobPhase::Active) {
                    return Err(RestoreError::ForgottenWhileActive(job));
                }
                self.farm.forget(job);
                self.next_job = self.next_job.max(job.get().saturating_add(1));
            }
            Fact::GivenUp { workunit: id, reason } => {
                let workunit = self.known(id)?;
                self.give_up(workunit, &reason, &mut unheard);
            }
            Fact::HostStood { host, reported: 0, failures: 0, .. } => {
                let known = self.farm.hosts.find(&host);
                let may = |host: &HostIx| self.farm.hosts.get(*host).oblivion().is_some();
                if let Some(host) = known.filter(may) {
                    self.forget_host(host);
                }
            }
            Fact::HostStood {
                host,
                owner,
                side,
                reported,
                disagreed,
                passed,
                failures,
                failed_at,
            } => {
                let host = self.known_host(Voter { host, owner, side });
                self.farm.hosts.change(host, |entry| {
                    entry.info.origin = side;
                    (entry.reported, entry.disagreed) = (reported, disagreed);
                    entry.standing =
                        Standing { passed, failures, failed_at, ..Standing::default() };
                });
            }
            Fact::VoteStood { workunit: id, token, mark, failures, per_check } => {
                let workunit = self.farm.find(id).ok_or(RestoreError::UnknownWorkunit(id))?;
                let unit = self.farm.workunits.get_mut(workunit);
                let is_it = |vote: &&mut Vote| vote.token == token && !vote.handed_over;
                let vote = unit.votes.iter_mut().find(is_it);
                let vote = vote.ok_or(RestoreError::UnknownVote(id, token))?;
                (vote.mark, vote.failures, vote.per_check) = (mark, failures, per_check);
            }
            Fact::OwnerStood { owner, agreed, disagreed } => {
                let voter = self.farm.hosts.voter_of_owner(&owner);
                self.farm.hosts.set_reputation(voter, Reputation { agreed, disagreed });
            }
            Fact::HandedOver { workunit, side, host, owner, token } => {
                let voter = Voter { host, owner, side };
                self.restore_hand_over(workunit, voter, token)?;
            }
        }
        // What they decided is among the facts.
        self.unsettled.clear();
        self.revoiced.clear();
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
        self.settle(effects);
    }

    fn known(&mut self, id: WorkunitId) -> Result<WorkunitIx, RestoreError> {
        if let Some(workunit) = self.farm.find(id) {
            return Ok(workunit);
        }
        self.untouched(id)?;
        Ok(self.open(id))
    }

    /// The job of a workunit of which nothing was heard yet.
    fn untouched(&mut self, id: WorkunitId) -> Result<&mut Job, RestoreError> {
        let job = self.farm.jobs.get_mut(&id.job).ok_or(RestoreError::UnknownWorkunit(id))?;
        if id.index >= job.workunit_count() {
            return Err(RestoreError::UnknownWorkunit(id));
        }
        if job.ended.contains(id.index) || job.phase != JobPhase::Active {
            return Err(RestoreError::AfterEnd(id));
        }
        Ok(job)
    }

    /// A decision whose votes a snapshot has left out: the most frequent fact of all.
    fn restore_decided(
        &mut self,
        id: WorkunitId,
        digest: Digest,
        unheard: &mut Vec<crate::Effect>,
    ) -> Result<(), RestoreError> {
        let job = self.untouched(id)?;
        job.ended.decide(id.index, digest);
        job.touch(id.index);
        let has_untouched = job.has_untouched();
        let is_last = job.ended.decided() + job.ended.failed() == job.workunit_count();
        self.tell(id.job, Change::DecidedBefore(id));
        if !has_untouched {
            self.tell(id.job, Change::JobTouched(id.job));
        }
        if is_last {
            self.end_job(id.job, JobPhase::Ended, unheard);
        }
        Ok(())
    }

    fn restore_vote(
        &mut self,
        id: WorkunitId,
        voter: Voter,
        token: LeaseToken,
        digest: Digest,
        cpu_us: u64,
    ) -> Result<(), RestoreError> {
        let (name, side) = (voter.host.clone(), voter.side);
        let host = self.known_host(voter);
        let workunit = self.known(id)?;
        let voter = self.voter_then(host, workunit, token);
        let unit = self.farm.workunits.get_mut(workunit);
        if unit.has_voted(host, voter) {
            return Err(RestoreError::SecondVote(id, name));
        }
        unit.side.get_or_insert(side);
        unit.waiting = unit.waiting.saturating_sub(1);
        unit.attempts += 1;
        let lease = Leased { host, workunit, token, attempt: unit.attempts };
        let mut vote = Vote { voter, ..self.vote_of(lease, digest, cpu_us) };
        if vote.per_check > 1 {
            // How often it was checked is not in the journal: no less than this.
            vote.per_check = MOST_PER_CHECK as u8;
        }
        self.enter_vote(workunit, vote);
        self.count_vote(host, id);
        self.workunit_changed(workunit);
        Ok(())
    }

    fn restore_attempt(
        &mut self,
        id: WorkunitId,
        voter: Voter,
        token: LeaseToken,
        cause: Cause,
        why: &str,
    ) -> Result<(), RestoreError> {
        let (side, owner) = (voter.side, voter.owner.clone());
        // Whose the host is now does not depend on it: it is no vote.
        let host = match self.farm.hosts.find(&voter.host) {
            Some(host) => host,
            None => self.known_host(voter),
        };
        let voter = self.farm.hosts.voter_of(host, owner.as_ref());
        let workunit = self.known(id)?;
        let unit = self.farm.workunits.get_mut(workunit);
        unit.side.get_or_insert(side);
        if cause == Cause::Failed {
            unit.waiting = unit.waiting.saturating_sub(1);
            unit.attempts += 1;
        }
        let job = self.farm.jobs.get_mut(&id.job).expect("its workunit is open");
        let why = job.keep_words(why);
        self.enter_attempt(workunit, FailedAttempt { token, host, voter, cause, why });
        self.workunit_changed(workunit);
        Ok(())
    }

    /// Whose vote a host gives under a lease of the past. Hosts without an owner may have had a vote
    /// each then, and one together now: then the second is its host's own.
    fn voter_then(&self, host: HostIx, workunit: WorkunitIx, token: LeaseToken) -> VoterIx {
        let voter = self.farm.hosts.get(host).voter;
        let votes = &self.farm.workunits.get(workunit).votes;
        let is_taken = voter == VoterIx::OWNERLESS
            && votes.iter().any(|vote| vote.voter == voter && vote.token != token);
        if is_taken { VoterIx::of_host(host) } else { voter }
    }

    fn restore_hand_over(
        &mut self,
        id: WorkunitId,
        voter: Voter,
        token: LeaseToken,
    ) -> Result<(), RestoreError> {
        let side = voter.side;
        let host = self.known_host(voter);
        let workunit = self.known(id)?;
        let voter = self.voter_then(host, workunit, token);
        let unit = self.farm.workunits.get_mut(workunit);
        unit.side.get_or_insert(side);
        // Those of one owner have one vote, and each its part.
        if !unit.votes.iter().any(|vote| vote.host == host) {
            self.hand_over(workunit, Party { host, voter }, token);
        }
        Ok(())
    }

    /// The host of a voter, who votes for the owner of the time.
    fn known_host(&mut self, voter: Voter) -> HostIx {
        if let Some(host) = self.farm.hosts.find(&voter.host)
            && self.farm.hosts.get(host).info.owner == voter.owner
        {
            return host;
        }
        let info = HostInfo {
            name: voter.host,
            origin: voter.side,
            owner: voter.owner,
            cores: 0,
            memory_mib: 0,
            capabilities: Capabilities::default(),
            kind: None,
            chunk_cache_mib: 0,
        };
        self.farm.hosts.enter(info, AbilitySet::default())
    }
}

/// Puts `now` in the place of `before` in a sum that `before` is a part of.
fn replace_counts(sum: &mut ReplicaCounts, before: ReplicaCounts, now: ReplicaCounts) {
    let replace = |sum: &mut u64, before: u64, now: u64| {
        *sum = sum.saturating_sub(before).saturating_add(now);
    };
    replace(&mut sum.leased, before.leased, now.leased);
    replace(&mut sum.reported, before.reported, now.reported);
    replace(&mut sum.failed, before.failed, now.failed);
    replace(&mut sum.released, before.released, now.released);
    replace(&mut sum.aborted, before.aborted, now.aborted);
    replace(&mut sum.expired, before.expired, now.expired);
    replace(&mut sum.disagreed, before.disagreed, now.disagreed);
    replace(&mut sum.accepted_cpu_us, before.accepted_cpu_us, now.accepted_cpu_us);
}

struct Voter {
    host: HostName,
    owner: Option<OwnerName>,
    side: Origin,
}
