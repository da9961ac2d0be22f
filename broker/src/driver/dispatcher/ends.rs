//! Replicas end, each of them once: by a report, a release, an order or a decision of the core, or
//! with its host. What they took is recorded then.

use gleaner_protocol::api::ReplicaOutcome;
use gleaner_protocol::control::{AbortReason, ReleaseReason, Released, Verdict};
use gleaner_protocol::job::{Cause, Task};
use gleaner_protocol::{HostName, KernelTime, LeaseToken, Measured, ReplicaId, Time, WorkunitId};
use gleaner_scheduling::{Fact, HostIx, Input, ReportedOutcome};

use super::super::decided::Decided;
use super::super::run_watch::{End, Times, leased};
use super::{Dispatcher, PreparedReport};
use crate::usage::{self, EndedReplica, UsageRecord};

impl<M: Clone> Dispatcher<M> {
    /// A replica ends, if it has not before.
    pub(super) fn ended(
        &mut self,
        now: Time,
        token: LeaseToken,
        end: impl Into<End>,
        turn: &mut Decided<M>,
    ) {
        let ended = self.account(now, token, end.into(), turn);
        turn.usage.extend(ended.map(UsageRecord::Ended));
    }

    /// What is recorded of a replica that ends, if it has not before.
    fn account(
        &mut self,
        now: Time,
        token: LeaseToken,
        end: End,
        turn: &mut Decided<M>,
    ) -> Option<EndedReplica> {
        let begun = self.watch.end(token)?;
        if is_cut_off(end.outcome) {
            turn.runs.extend(begun.cut_off(&self.core, now));
        }
        begun.account(&self.core, now, end)
    }

    /// What the core has decided ends replicas. Those of hosts that are away it names no further.
    pub(super) fn note_fact(&mut self, now: Time, fact: &Fact, turn: &mut Decided<M>) {
        let (away, outcome) = match fact {
            Fact::Voted { token, digest, .. } => {
                let end = End { outcome: ReplicaOutcome::Counted, output: Some(*digest) };
                return self.ended(now, *token, end, turn);
            }
            Fact::AttemptFailed { token, cause, .. } => {
                return match cause {
                    Cause::Failed => self.ended(now, *token, ReplicaOutcome::Failed, turn),
                    Cause::TimedOut => {
                        self.ended_unsaid(now, *token, ReplicaOutcome::Expired, turn);
                    }
                    Cause::Lost => self.ended_unsaid(now, *token, ReplicaOutcome::Lost, turn),
                };
            }
            Fact::Decided { workunit, .. } | Fact::GivenUp { workunit, .. } => {
                (self.watch.away_of(*workunit), ReplicaOutcome::Aborted)
            }
            Fact::JobCancelled { job } => (self.watch.away_of_job(*job), ReplicaOutcome::Cancelled),
            _ => return,
        };
        away.into_iter().for_each(|token| self.ended_unsaid(now, token, outcome, turn));
        turn.usage.extend(usage::decision(fact));
    }

    /// Replicas of hosts that are away have ended, and nobody has said so.
    pub(super) fn end_forgotten(&mut self, now: Time, turn: &mut Decided<M>) {
        let gone = self.watch.look(&self.core, now);
        gone.into_iter().for_each(|of| self.ended_unsaid(now, of, ReplicaOutcome::Lost, turn));
    }

    /// A replica is aborted.
    pub(super) fn aborted(
        &mut self,
        now: Time,
        token: LeaseToken,
        reason: AbortReason,
        turn: &mut Decided<M>,
    ) {
        let outcome = match reason {
            AbortReason::Cancelled => ReplicaOutcome::Cancelled,
            AbortReason::Expired => ReplicaOutcome::Expired,
            AbortReason::Preempted | AbortReason::FragmentClosed => ReplicaOutcome::Preempted,
            AbortReason::Decided | AbortReason::GivenUp | AbortReason::Unknown => {
                ReplicaOutcome::Aborted
            }
        };
        self.ended_unsaid(now, token, outcome, turn);
    }

    /// A replica ends, if it has not before, and its agent has yet to say what it took.
    fn ended_unsaid(
        &mut self,
        now: Time,
        token: LeaseToken,
        outcome: ReplicaOutcome,
        turn: &mut Decided<M>,
    ) {
        if let Some(ended) = self.account(now, token, outcome.into(), turn) {
            self.watch.aborted(token, ended.clone());
            turn.usage.push(UsageRecord::Ended(ended));
        }
    }

    /// A host gives a replica back, and says about what it took; or says so of one that was aborted.
    pub(super) fn given_back(
        &mut self,
        now: Time,
        host: &HostName,
        released: &Released,
        turn: &mut Decided<M>,
    ) {
        if !self.watch.is_of(host, released.token) {
            let took = self.watch.untold.told(host, released.token, released.cpu_us);
            turn.usage.extend(took.map(UsageRecord::Took));
            return;
        }
        self.watch.estimate(released.token, now, released.cpu_us);
        let outcome = match released.reason {
            ReleaseReason::Preempted | ReleaseReason::FragmentClosed => ReplicaOutcome::Preempted,
            ReleaseReason::Aborted => ReplicaOutcome::Aborted,
            // It never ran.
            ReleaseReason::CannotRun(_) | ReleaseReason::HostTrouble(_) => ReplicaOutcome::Refused,
        };
        self.ended(now, released.token, outcome, turn);
    }

    /// A report was judged. One that is no vote and no attempt ends its replica all the same, where
    /// its host held that.
    pub(super) fn judged(
        &mut self,
        now: Time,
        (host, token): (HostIx, LeaseToken),
        verdict: Verdict,
        turn: &mut Decided<M>,
    ) {
        let outcome = match verdict {
            Verdict::SecondVote => ReplicaOutcome::Refused,
            Verdict::Spoiled => ReplicaOutcome::Failed,
            _ => return,
        };
        let host = self.core.farm().host(host);
        let holds = leased(host).any(|held| held == token);
        if !holds && self.watch.is_of(&host.info.name, token) {
            self.ended(now, token, outcome, turn);
        }
    }

    pub(super) fn report(
        &mut self,
        now: Time,
        host: HostName,
        report: PreparedReport,
        turn: &mut Decided<M>,
    ) {
        if report.replica.workunit.job.is_frame() {
            let PreparedReport { token, replica, outcome, cpu_us, .. } = report;
            let took_us = cpu_us;
            let report = Input::Report { host, token, replica, outcome, cpu_us, took_us };
            return self.feed(now, report, turn);
        }
        let PreparedReport {
            received,
            token,
            replica,
            outcome,
            manifest,
            cpu_us,
            measured,
            wall_us,
            peak_memory_mib,
        } = report;
        self.metrics.reported(&outcome);
        turn.waits.reports.push(received);
        let facts_before = turn.facts.len();
        let time = measured.as_ref().and_then(|of| self.kernel_time(&host, replica, of));
        let times = Times { cpu_us, wall_us, peak_memory_mib, measured };
        let is_own = self.watch.is_of(&host, token);
        if is_own {
            self.watch.tell(token, &times);
        } else {
            // It was done in the moment in which it was aborted.
            let took = self.watch.untold.told(&host, token, cpu_us);
            turn.usage.extend(took.map(UsageRecord::Took));
        }
        let is_output = matches!(outcome, ReportedOutcome::Output(_));
        let begun = self.watch.get(token).filter(|_| is_own && is_output);
        let run = begun.and_then(|of| of.run(&self.core, times));
        // What waits takes no CPU time, nor does what a GPU computes: their places are taken all the same.
        let took_us = if wall_us > 0 { wall_us } else { cpu_us };
        self.feed(now, Input::Report { host, token, replica, outcome, cpu_us, took_us }, turn);
        let counted = turn.facts.len() > facts_before;
        if let Some((digest, encoded)) = manifest.filter(|_| counted)
            && self.stored.insert(digest)
        {
            turn.small_blobs.push((digest, encoded));
        }
        turn.kernel_times.extend(time.filter(|_| counted));
        turn.runs.extend(run.filter(|_| counted));
    }

    /// What a replica's measurement says of its kernel on this kind of host.
    fn kernel_time(
        &self,
        host: &HostName,
        replica: ReplicaId,
        measured: &Measured,
    ) -> Option<KernelTime> {
        let farm = self.core.farm();
        let WorkunitId { job, index } = replica.workunit;
        let spec = &farm.job(job)?.spec;
        let Task::Application(application) = &spec.task else { return None };
        let part = spec.workunits.item(index);
        let kind = farm.host_named(host).and_then(|host| host.info.kind.as_ref());
        KernelTime::new(application.kernel.clone(), part, measured, kind)
    }
}

/// Whether a replica that ended so would have taken longer.
const fn is_cut_off(outcome: ReplicaOutcome) -> bool {
    match outcome {
        ReplicaOutcome::Preempted
        | ReplicaOutcome::Expired
        | ReplicaOutcome::Lost
        | ReplicaOutcome::Aborted
        | ReplicaOutcome::Cancelled => true,
        ReplicaOutcome::Counted | ReplicaOutcome::Failed | ReplicaOutcome::Refused => false,
    }
}
