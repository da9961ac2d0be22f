//! Attempts end without an output, and workunits are given up.

use std::sync::Arc;

use gleaner_protocol::WorkunitId;
use gleaner_protocol::control::AbortReason;
use gleaner_protocol::job::Cause;
use gleaner_protocol::limits::bounded_reason;

use super::Core;
use super::blame::Unfit;
use crate::farm::{Demand, FailedAttempt, Leased, WorkunitIx};
use crate::{Effect, Fact};

impl Core {
    /// An attempt ends without an output. The workunit is tried once more where more outputs are
    /// needed, or given up where it has used up its attempts.
    pub(super) fn end_attempt(
        &mut self,
        lease: Leased,
        cause: Cause,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Leased { host, workunit, token, .. } = lease;
        let unit = self.farm.workunits.get(workunit);
        if cause != Cause::Failed && unit.is_for_time_alone() && unit.pending.len() > 1 {
            // Another replica of it goes on: this one was not needed.
            self.farm.tally_of(workunit, |counts| counts.expired += 1);
            return self.return_replica(lease);
        }
        self.farm.end_lease(lease);
        let id = self.farm.workunits.get(workunit).id;
        let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
        let why = job.keep_words(why);
        let voter = self.farm.hosts.get(host).voter;
        let attempt = FailedAttempt { token, host, voter, cause, why: Arc::clone(&why) };
        let fact = self.farm.fact_of_attempt(self.farm.workunits.get(workunit), &attempt);
        effects.push(Effect::Persist(fact));
        self.enter_attempt(workunit, attempt);
        if cause == Cause::Failed {
            // What was saved of it is of no more use.
            let saved = self.farm.workunits.get_mut(workunit).forget_saved(token);
            saved.iter().for_each(|saved| self.farm.drop_saved(saved));
            self.blame(host, id.job, Unfit::Failed, &why);
            self.tell_completed(lease, None);
        } else {
            self.farm.workunits.get_mut(workunit).waiting += 1;
        }
        self.after_vote(workunit, effects);
    }

    /// Counts an attempt that ended without an output.
    pub(super) fn enter_attempt(&mut self, workunit: WorkunitIx, attempt: FailedAttempt) {
        let unit = self.farm.workunits.get_mut(workunit);
        let (id, has_failed) = (unit.id, attempt.cause == Cause::Failed);
        self.farm.hosts.mention(attempt.host);
        unit.failed_attempts.reserve_exact(1);
        unit.failed_attempts.push(attempt);
        self.farm.troubled.insert(workunit);
        self.farm.tally(id.job, |counts| match has_failed {
            true => counts.failed += 1,
            false => counts.expired += 1,
        });
    }

    /// Gives a workunit up that has used up the attempts of one cause; `false` where it has not.
    pub(super) fn give_up_used(&mut self, workunit: WorkunitIx, effects: &mut Vec<Effect>) -> bool {
        let unit = self.farm.workunits.get(workunit);
        let Some((cause, most)) = self.farm.used_up(unit) else { return false };
        if cause == Cause::Failed && unit.failed_on_several() {
            self.pardon(unit.id.job);
        }
        let unit = self.farm.workunits.get(workunit);
        let what = match cause {
            Cause::Failed => "failed",
            Cause::TimedOut => "were not done in time",
            Cause::Lost => "were lost with their hosts",
        };
        let tried = format!("{most} attempts {what} (attempts.{} is {most})", cause.as_str());
        let full = format!("{tried}: {}", self.farm.history(unit));
        let last = unit.failed_attempts.last().map_or("", |attempt| &attempt.why);
        let short = format!("{tried}, the last one: {last}");
        self.give_up_for(workunit, full, short, effects);
        true
    }

    /// Gives a workunit up of which too many outputs have come, and too few agree.
    pub(super) fn give_up_undecided(
        &mut self,
        workunit: WorkunitIx,
        demand: &Demand,
        effects: &mut Vec<Effect>,
    ) {
        let unit = self.farm.workunits.get(workunit);
        let Demand { agreeing, wanted, max, .. } = demand;
        let short = format!(
            "{} outputs came, at most {agreeing} agree and {wanted} must (max_replicas is {max})",
            unit.reported(),
        );
        let full = match unit.failed_attempts.is_empty() {
            true => short.clone(),
            false => format!("{short}; {}", self.farm.history(unit)),
        };
        self.give_up_for(workunit, full, short, effects);
    }

    fn give_up_for(
        &mut self,
        workunit: WorkunitIx,
        full: String,
        short: String,
        effects: &mut Vec<Effect>,
    ) {
        let id = self.farm.workunits.get(workunit).id;
        let job = self.farm.jobs.get(&id.job).expect("a workunit's job is known");
        let (full, short) = (bounded_reason(full), bounded_reason(short));
        let reason = job.ended.kept([&full, &short]).to_owned();
        let fact = Fact::GivenUp { workunit: id, reason: reason.clone() };
        effects.push(Effect::Persist(fact));
        self.give_up(workunit, &reason, effects);
    }

    pub(super) fn give_up(
        &mut self,
        workunit: WorkunitIx,
        reason: &str,
        effects: &mut Vec<Effect>,
    ) {
        let id: WorkunitId = self.farm.workunits.get(workunit).id;
        let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
        job.ended.give_up(id.index, reason);
        self.close_workunit(workunit, AbortReason::GivenUp, effects);
        self.after_end(id, effects);
    }
}
