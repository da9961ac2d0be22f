//! Replicas end: reported, given back, aborted, expired. Votes are counted here.

use gleaner_protocol::control::{AbortReason, ReleaseReason, Verdict};
use gleaner_protocol::job::Cause;
use gleaner_protocol::{Digest, HostName, LeaseToken, ReplicaId, Span, WorkunitId};

use super::Core;
use super::blame::Unfit;
use crate::farm::{HostIx, JobPhase, Leased, Party, Pending, Vote, WorkunitIx};
use crate::input::ReportedOutcome;
use crate::policy::Change;
use crate::{Effect, Fact};

/// What is said of an output that breaks the rules.
const MALFORMED: &str = "its output breaks the rules: malformed, too large, or not uploaded";

/// What a replica took, in microseconds: CPU time, and for how long it had its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    pub(super) cpu_us: u64,
    pub(super) took_us: u64,
}

impl Core {
    pub(super) fn report(
        &mut self,
        (host, token, replica): (HostIx, LeaseToken, ReplicaId),
        outcome: ReportedOutcome,
        times: Took,
        effects: &mut Vec<Effect>,
    ) {
        let id = replica.workunit;
        let verdict = match self.judge(host, token, replica) {
            Err(refusal) => refusal,
            Ok(lease) => {
                let voter = self.farm.hosts.get(host).voter;
                let unit = self.farm.workunits.get(lease.workunit);
                let is_output = matches!(outcome, ReportedOutcome::Output(_));
                if unit.has_voted(host, voter) {
                    self.return_replica(lease);
                    Verdict::SecondVote
                } else if !is_output && unit.is_heir(token, Party { host, voter }) {
                    // Perhaps it was the other's fault: it is nobody's.
                    let unit = self.farm.workunits.get_mut(lease.workunit);
                    let dropped = unit.begin_anew(token);
                    dropped.iter().for_each(|saved| self.farm.drop_saved(saved));
                    self.give_back(lease);
                    Verdict::Spoiled
                } else {
                    match &outcome {
                        ReportedOutcome::Output(digest) => {
                            self.count(lease, *digest, times, effects);
                            Verdict::Counted
                        }
                        ReportedOutcome::Failed(why) => {
                            self.end_attempt(lease, Cause::Failed, why, effects);
                            Verdict::Counted
                        }
                        ReportedOutcome::Malformed => {
                            self.end_attempt(lease, Cause::Failed, MALFORMED, effects);
                            Verdict::Malformed
                        }
                    }
                }
            }
        };
        effects.push(Effect::Verdict { host, token, workunit: id, verdict });
    }

    /// The outputs that have votes on the workunit of a replica, the first one first, if a report
    /// of the replica by this host under this token would count now; none if it would not.
    #[must_use]
    pub fn outputs_beside(
        &self,
        host: &HostName,
        token: LeaseToken,
        replica: ReplicaId,
    ) -> Option<Vec<Digest>> {
        let host = self.connected(host)?;
        let lease = self.judge(host, token, replica).ok()?;
        let unit = self.farm.workunits.get(lease.workunit);
        if unit.has_voted(host, self.farm.hosts.get(host).voter) {
            return None;
        }
        let mut outputs = Vec::new();
        for output in unit.votes.iter().filter_map(|vote| vote.digest) {
            if !outputs.contains(&output) {
                outputs.push(output);
            }
        }
        Some(outputs)
    }

    /// Whether a report is one for a lease that its host holds.
    fn judge(
        &self,
        host: HostIx,
        token: LeaseToken,
        replica: ReplicaId,
    ) -> Result<Leased, Verdict> {
        let id = replica.workunit;
        let lease = self.farm.leased(host, token).filter(|lease| {
            lease.attempt == replica.attempt && self.farm.workunits.get(lease.workunit).id == id
        });
        if let Some(lease) = lease {
            return Ok(lease);
        }
        let Some(job) = self.farm.jobs.get(&id.job) else { return Err(Verdict::UnknownJob) };
        if job.ended.contains(id.index) || job.phase != JobPhase::Active {
            return Err(Verdict::Late);
        }
        let Some(workunit) = job.open.get(&id.index) else { return Err(Verdict::OldToken) };
        let unit = self.farm.workunits.get(*workunit);
        let had_vote = unit.votes.iter().any(|vote| vote.token == token && vote.host == host);
        let had_failed = unit
            .failed_attempts
            .iter()
            .any(|of| of.cause == Cause::Failed && of.token == token && of.host == host);
        Err(if had_vote || had_failed {
            Verdict::Duplicate
        } else if unit.has_voted(host, self.farm.hosts.get(host).voter) {
            Verdict::SecondVote
        } else {
            Verdict::OldToken
        })
    }

    /// Step C of the published algorithm: a replica moves from pending to complete; then the
    /// workunit is decided, tried once more, or given up.
    fn count(&mut self, lease: Leased, digest: Digest, times: Took, effects: &mut Vec<Effect>) {
        let Took { cpu_us, took_us } = times;
        self.farm.end_lease(lease);
        let token = lease.token;
        let now = self.farm.now;
        self.farm.hosts.change_standing(lease.host, |standing| standing.rate(now));
        let vote = self.vote_of(lease, digest, cpu_us);
        self.enter_vote(lease.workunit, vote);
        let host = self.farm.hosts.get(lease.host);
        let unit = self.farm.workunits.get(lease.workunit);
        let (workunit, side) = (unit.id, unit.side.unwrap_or_else(|| host.origin()));
        let (host, owner) = (host.info.name.clone(), host.info.owner.clone());
        let fact = Fact::Voted { workunit, side, host, owner, token, digest, cpu_us };
        effects.push(Effect::Persist(fact));
        self.count_parts(lease, effects);
        self.count_vote(lease.host, workunit);
        self.prove(lease.host, workunit.job);
        self.tell_completed(lease, Some(took_us));
        self.after_vote(lease.workunit, effects);
    }

    /// A replica was reported: after so much time where it has an output that counts.
    pub(super) fn tell_completed(&mut self, lease: Leased, took_us: Option<u64>) {
        let Leased { host, workunit, .. } = lease;
        let job = self.farm.workunits.get(workunit).id.job;
        let took = took_us.map(Span::from_micros);
        self.tell(job, Change::Completed { workunit, host, took });
    }

    /// A replica has an output: those whose states it went on from have their say with it, and no
    /// other.
    fn count_parts(&mut self, lease: Leased, effects: &mut Vec<Effect>) {
        let Leased { host, workunit, token, .. } = lease;
        let me = Party { host, voter: self.farm.hosts.get(host).voter };
        let saved = self.farm.workunits.get_mut(workunit).forget_saved(token);
        let Some(saved) = saved else { return };
        for party in saved.others(me) {
            let (info, unit) = (&self.farm.host(party.host).info, self.farm.workunit(workunit));
            effects.push(Effect::Persist(Fact::HandedOver {
                workunit: unit.id,
                side: unit.side.unwrap_or(info.origin),
                host: info.name.clone(),
                owner: self.farm.hosts.owner_of(party.voter).cloned(),
                token,
            }));
            self.hand_over(workunit, party, token);
        }
        self.farm.drop_saved(&saved);
    }

    /// A host has its say in the vote under a lease of another.
    pub(super) fn hand_over(&mut self, workunit: WorkunitIx, party: Party, token: LeaseToken) {
        let standing = &self.farm.hosts.get(party.host).standing;
        let vote = Vote {
            token,
            voter: party.voter,
            host: party.host,
            digest: None,
            cpu_us: 0,
            mark: standing.passed,
            failures: standing.failures,
            per_check: 1,
            handed_over: true,
        };
        self.farm.workunits.get_mut(workunit).push_vote(vote);
        self.farm.hosts.mention(party.host);
    }

    /// The holder of a lease has saved where it is.
    pub(super) fn saved(&mut self, host: HostIx, token: LeaseToken, state: Digest) {
        let voter = self.farm.hosts.get(host).voter;
        if let Some(lease) = self.farm.leased(host, token) {
            self.farm.save(lease.workunit, token, state, Party { host, voter });
        }
    }

    pub(super) fn count_vote(&mut self, host: HostIx, workunit: WorkunitId) {
        self.farm.tally(workunit.job, |counts| counts.reported += 1);
        self.farm.hosts.change(host, |entry| entry.reported += 1);
    }

    /// Decides the workunit if enough votes agree, and gives it up if it has used up its attempts.
    /// If votes can no longer agree with what is waiting and pending, another replica is brought,
    /// up to the limit; then the workunit is given up.
    pub(super) fn after_vote(&mut self, workunit: WorkunitIx, effects: &mut Vec<Effect>) {
        let unit = self.farm.workunits.get(workunit);
        let demand = self.farm.demand(unit);
        if let Some(digest) = demand.leader.filter(|_| demand.is_decided) {
            let id = unit.id;
            effects.push(Effect::Persist(Fact::Decided { workunit: id, digest }));
            self.count_agreements(workunit, digest, effects);
            return self.decide(workunit, digest, effects);
        }
        if self.give_up_used(workunit, effects) {
            return;
        }
        let unit = self.farm.workunits.get(workunit);
        let incomplete = usize::from(unit.waiting) + unit.pending.len();
        let missing = demand.missing(incomplete);
        // A provisional decision that hosts with nothing else to do can no longer confirm is none.
        let to_come = missing.max(usize::from(incomplete == 0));
        if to_come > 0 && unit.reported() + incomplete + to_come > demand.max {
            return self.give_up_undecided(workunit, &demand, effects);
        }
        self.forget_due(workunit);
        self.note_due(workunit, &demand);
        let unit = self.farm.workunits.get_mut(workunit);
        unit.waiting += u16::try_from(missing).expect("a quorum fits u8");
        self.workunit_changed(workunit);
    }

    pub(super) fn decide(
        &mut self,
        workunit: WorkunitIx,
        digest: Digest,
        effects: &mut Vec<Effect>,
    ) {
        let unit = self.farm.workunits.get(workunit);
        let (id, votes) = (unit.id, unit.votes.len());
        let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
        job.ended.decide(id.index, digest);
        for at in 0..votes {
            let vote = self.farm.workunits.get(workunit).votes[at];
            if vote.digest == Some(digest) {
                self.farm.tally(id.job, |counts| {
                    counts.accepted_cpu_us = counts.accepted_cpu_us.saturating_add(vote.cpu_us);
                });
            } else if vote.digest.is_some() {
                self.farm.tally(id.job, |counts| counts.disagreed += 1);
                self.farm.hosts.change(vote.host, |entry| entry.disagreed += 1);
                // Whose fault it was among those who had a part in it nobody knows.
                for part in 0..votes {
                    let part = self.farm.workunits.get(workunit).votes[part];
                    if part.token == vote.token {
                        self.catch(&part);
                    }
                }
            }
        }
        self.close_workunit(workunit, AbortReason::Decided, effects);
        self.after_end(id, effects);
    }

    pub(super) fn after_end(&mut self, id: WorkunitId, effects: &mut Vec<Effect>) {
        let job = self.farm.jobs.get(&id.job).expect("a workunit's job is known");
        let ended = job.ended.decided() + job.ended.failed();
        if ended == job.workunit_count() {
            self.end_job(id.job, JobPhase::Ended, effects);
        } else {
            effects.push(Effect::JobChanged { job: id.job });
        }
    }

    /// Forgets an open workunit; its leased replicas are aborted.
    pub(super) fn close_workunit(
        &mut self,
        workunit: WorkunitIx,
        reason: AbortReason,
        effects: &mut Vec<Effect>,
    ) {
        self.forget_due(workunit);
        self.farm.troubled.remove(&workunit);
        let unit = self.farm.workunits.get(workunit);
        let (id, pending) = (unit.id, unit.pending.clone());
        for Pending { token, host, attempt, .. } in pending {
            self.farm.end_lease(Leased { host, workunit, token, attempt });
            self.farm.tally(id.job, |counts| counts.aborted += 1);
            if self.farm.hosts.get(host).connected {
                effects.push(Effect::Abort { host, token, reason });
            }
        }
        self.tell(id.job, Change::WorkunitEnded(workunit));
        self.new_work |= self.farm.is_full();
        self.farm.remove_workunit(workunit);
        let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
        job.open.remove(&id.index);
    }

    pub(super) fn released(&mut self, host: HostIx, token: LeaseToken, reason: &ReleaseReason) {
        let Some(lease) = self.farm.leased(host, token) else { return };
        match reason {
            ReleaseReason::CannotRun(why) => self.refuse(lease, Unfit::Refused, why),
            ReleaseReason::HostTrouble(why) => self.refuse(lease, Unfit::InTrouble, why),
            ReleaseReason::FragmentClosed => {
                // It has less room than it seemed: it asks anew for what it has.
                self.farm.hosts.change(host, |entry| entry.asked = 0);
                self.give_back(lease);
            }
            ReleaseReason::Preempted | ReleaseReason::Aborted => self.give_back(lease),
        }
    }

    /// A host does not do a replica after all: it waits again.
    pub(super) fn give_back(&mut self, lease: Leased) {
        self.farm.hosts.change(lease.host, |entry| entry.released += 1);
        let job = self.farm.workunits.get(lease.workunit).id.job;
        self.farm.tally(job, |counts| counts.released += 1);
        self.return_replica(lease);
    }

    /// A lease has run out, or its host is lost. What stood still until its time was over, for a render
    /// or for another lane, is no attempt: it waits again. While the other lane has its core, its time
    /// is not over.
    pub(super) fn expire(&mut self, lease: Leased, effects: &mut Vec<Effect>) {
        let Leased { host, token, workunit, .. } = lease;
        let entry = self.farm.hosts.get(host);
        let is_connected = entry.connected;
        let stood_still = entry.is_frozen(token) || entry.is_parked(token);
        if is_connected && self.farm.stands_for_another_lane(host, token) {
            return self.farm.renew(lease);
        }
        if is_connected {
            effects.push(Effect::Abort { host, token, reason: AbortReason::Expired });
        }
        let job = self.farm.job(self.farm.workunits.get(workunit).id.job);
        let lease_s = job.expect("a workunit's job is known").spec.lease_s;
        if !is_connected {
            let why = "its host was not heard of for too long";
            self.end_attempt(lease, Cause::Lost, why, effects);
        } else if stood_still {
            self.farm.tally_of(workunit, |counts| counts.expired += 1);
            self.return_replica(lease);
        } else {
            let why = format!("it was not done in {lease_s} s");
            self.end_attempt(lease, Cause::TimedOut, &why, effects);
        }
    }

    /// Moves a replica from pending back to waiting.
    pub(super) fn return_replica(&mut self, lease: Leased) {
        self.farm.end_lease(lease);
        self.farm.workunits.get_mut(lease.workunit).waiting += 1;
        self.workunit_changed(lease.workunit);
    }
}
