//! Jobs come, and are cancelled.

use std::sync::Arc;

use gleaner_protocol::control::AbortReason;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span};

use super::Core;
use crate::farm::{Accepted, Ended, Job, JobPhase, Takes};
use crate::limits::{DUE_MS_MAX, DUE_WORKUNITS_MAX, JOBS_MAX};
use crate::policy::{Change, Decline};
use crate::{Effect, Fact, RequestId, SubmitRefusal};

impl Core {
    pub(super) fn submit(
        &mut self,
        request: RequestId,
        mut spec: JobSpec,
        effects: &mut Vec<Effect>,
    ) {
        let admitted = self.check(&mut spec).and_then(|()| {
            let policy = self.lanes.get_mut(&spec.lane).expect("a lane without one admits nothing");
            policy.admit(self.farm.now, &self.farm, &spec).map_err(
                |Decline { why, earliest_due }| {
                    let earliest_due_us = earliest_due.map(|due| self.utc_us(due));
                    SubmitRefusal::Declined { why, earliest_due_us }
                },
            )
        });
        let result = admitted.map(|()| {
            let job = self.next_id(spec.is_frame());
            let spec = Arc::new(spec);
            let accepted_us = self.utc_us(self.farm.now);
            let fact = Fact::JobAccepted { job, spec: Arc::clone(&spec), accepted_us };
            effects.push(Effect::Persist(fact));
            let added = self.add_job(job, spec, accepted_us);
            debug_assert!(added, "there was room for its ability");
            job
        });
        let accepted = result.clone().ok();
        effects.push(Effect::Submitted { request, result });
        effects.extend(accepted.map(|job| Effect::JobChanged { job }));
    }

    fn next_id(&self, is_frame: bool) -> JobId {
        JobId::new(if is_frame { self.next_frame } else { self.next_job })
    }

    /// Whether a job can be accepted, as far as its lane's policy has no say. Its due time counts
    /// from now from here on.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, spec: &mut JobSpec) -> Result<(), SubmitRefusal> {
        self.settle_due(spec)?;
        self.admit(spec)?;
        match self.farm.why_nobody_can(spec).filter(|_| spec.lane == Lane::Deadline) {
            Some(why) => {
                Err(SubmitRefusal::Declined { why: why.to_string(), earliest_due_us: None })
            }
            None => Ok(()),
        }
    }

    /// When it is due, counted from now by the broker's clock: a submitter's may be wrong.
    fn settle_due(&self, spec: &mut JobSpec) -> Result<(), SubmitRefusal> {
        let declined = |why: String| SubmitRefusal::Declined { why, earliest_due_us: None };
        if let Some(due_ms) = spec.profile.due_at_ms.take() {
            let now_ms = self.utc_now_ms();
            let Some(left_ms) = due_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0) else {
                let ago = Span::from_millis(now_ms - due_ms);
                let ago = ago.as_secs_f64().ceil();
                return Err(declined(format!(
                    "its due time was {ago} s ago by the broker's clock; if that is not so, one \
                     of the two clocks is wrong"
                )));
            };
            spec.profile.due_ms = Some(left_ms);
        }
        if spec.profile.due_ms.is_some_and(|due_ms| due_ms > DUE_MS_MAX) {
            let days = DUE_MS_MAX / 86_400_000;
            return Err(declined(format!("it is due in more than {days} days: nobody can say")));
        }
        if spec.lane != Lane::Deadline && spec.profile.due_ms.is_some() {
            let lane = spec.lane;
            return Err(declined(format!(
                "the {lane} lane promises no due times: leave --due out, or have it run in the \
                 deadline lane"
            )));
        }
        if spec.lane == Lane::Deadline && spec.workunits.len() > DUE_WORKUNITS_MAX {
            return Err(declined(format!(
                "a job of the deadline lane has at most {DUE_WORKUNITS_MAX} workunits, and this one \
                 {}: make several jobs of it",
                spec.workunits.len()
            )));
        }
        if spec.lane == Lane::Deadline && spec.profile.due_ms.is_none() {
            let why = "a job of the deadline lane needs a due time: say when, with --due";
            return Err(declined(why.into()));
        }
        if spec.lane == Lane::Deadline && spec.replication != 1 {
            let why = "a job of the deadline lane has one replica of each workunit: leave \
                       --replication out, and --on farm keeps it on the farm's own hosts";
            return Err(declined(why.into()));
        }
        Ok(())
    }

    fn admit(&self, spec: &JobSpec) -> Result<(), SubmitRefusal> {
        spec.check()?;
        if !self.lanes.contains_key(&spec.lane) {
            return Err(SubmitRefusal::NoPolicy(spec.lane));
        }
        if self.farm.jobs.len() >= JOBS_MAX {
            return Err(SubmitRefusal::TooManyJobs);
        }
        let account = spec.account();
        let (open, asked) = (self.farm.usage.workunits(&account), u64::from(spec.workunits.len()));
        if !spec.is_frame() && open.saturating_add(asked) > self.workunits_max {
            let most = self.workunits_max;
            return Err(SubmitRefusal::TooManyWorkunits { account, open, asked, most });
        }
        let limit = self.farm.usage.limit_of(&account).and_then(|limit| limit.cores);
        let cores = spec.cores_permille.cores_touched();
        if let Some(most) = limit.filter(|most| *most < cores && spec.lane == Lane::Background) {
            let why = format!(
                "a replica of it takes {cores} cores at once, and {account} may hold {most}"
            );
            return Err(SubmitRefusal::Declined { why, earliest_due_us: None });
        }
        if !spec.is_frame() && self.farm.usage.open_jobs(&account) >= self.open_jobs_max {
            return Err(SubmitRefusal::TooManyOfOne { account, most: self.open_jobs_max });
        }
        if !self.farm.abilities.has_room_for(&self.farm.need_of(spec)) {
            return Err(SubmitRefusal::TooManyAbilities);
        }
        Ok(())
    }

    /// Adds an accepted job: now, or from the journal. Not where it asks for one kernel or
    /// program too many.
    pub(super) fn add_job(&mut self, id: JobId, spec: Arc<JobSpec>, accepted_us: u64) -> bool {
        let (mut need, lane) = (self.farm.need_of(&spec), spec.lane);
        if !self.farm.abilities.has_room_for(&need) {
            // One that was accepted before its account was limited goes on.
            need.limited = None;
        }
        let Some((ability, is_new)) = self.farm.abilities.intern(&need) else {
            return false;
        };
        if is_new {
            self.farm.hosts.extend_abilities(ability, |host| need.is_met_by(host));
        }
        let accepted = Accepted { utc_us: accepted_us, zero_us: self.zero_us };
        let ended = if self.farm.keeps_no_outputs { Ended::bare() } else { Ended::default() };
        let account = self.farm.usage.add_job(&spec.account(), spec.workunits.len(), self.farm.now);
        self.farm.jobs.insert(id, Job::new(id, spec, accepted, (ability, account), ended));
        self.farm.job_begins(lane, need.takes());
        if self.farm.jobs.get(&id).is_some_and(|job| job.due.is_some()) {
            self.farm.due.insert(id);
        }
        let next = if id.is_frame() { &mut self.next_frame } else { &mut self.next_job };
        *next = (*next).max(id.get().saturating_add(1));
        self.new_work = true;
        self.tell(id, Change::JobAdded(id));
        true
    }

    pub(super) fn cancel(&mut self, request: RequestId, id: JobId, effects: &mut Vec<Effect>) {
        let job = self.farm.jobs.get(&id);
        if job.is_some_and(|job| job.phase == JobPhase::Active) {
            effects.push(Effect::Persist(Fact::JobCancelled { job: id }));
            self.end_job(id, JobPhase::Cancelled, effects);
        }
        let known = self.farm.jobs.contains_key(&id);
        effects.push(Effect::Cancelled { request, known });
    }

    /// Forgets a job that has ended. One that goes on stays.
    pub(super) fn forget(&mut self, id: JobId, effects: &mut Vec<Effect>) {
        let has_ended = self.farm.jobs.get(&id).is_some_and(|job| job.phase != JobPhase::Active);
        if has_ended {
            effects.push(Effect::Persist(Fact::JobForgotten { job: id }));
            self.farm.forget(id);
        }
    }

    /// Ends a job; what is open of it is forgotten and its replicas are aborted.
    pub(super) fn end_job(&mut self, id: JobId, phase: JobPhase, effects: &mut Vec<Effect>) {
        let Some(job) = self.farm.jobs.get_mut(&id) else { return };
        if job.phase == JobPhase::Active {
            let (lane, takes) = (job.spec.lane, Takes::of(&job.spec));
            self.farm.usage.end_job(job.account, job.spec.workunits.len());
            self.farm.job_ends(lane, takes);
            self.farm.due.remove(&id);
        }
        let Some(job) = self.farm.jobs.get_mut(&id) else { return };
        (job.phase, job.ended_at) = (phase, Some(self.farm.now));
        let open: Vec<_> = job.open.values().copied().collect();
        for workunit in open {
            self.close_workunit(workunit, AbortReason::Cancelled, effects);
        }
        self.farm.clear_unfit(id);
        self.tell(id, Change::JobEnded(id));
        effects.push(Effect::JobChanged { job: id });
    }
}
