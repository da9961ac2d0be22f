//! Jobs come, and are cancelled.

use std::sync::Arc;

use gleaner_protocol::JobId;
use gleaner_protocol::control::AbortReason;
use gleaner_protocol::job::JobSpec;

use super::Core;
use crate::ability;
use crate::farm::{Job, JobPhase};
use crate::limits::JOBS_MAX;
use crate::policy::Change;
use crate::{Effect, Fact, RequestId, SubmitRefusal};

impl Core {
    pub(super) fn submit(&mut self, request: RequestId, spec: JobSpec, effects: &mut Vec<Effect>) {
        let admitted = self.admit(&spec).and_then(|()| {
            let policy = self.lanes.get_mut(&spec.lane).expect("a lane without one admits nothing");
            policy.admit(self.now, &self.farm, &spec).map_err(SubmitRefusal::Declined)
        });
        let result = admitted.map(|()| {
            let job = JobId::new(self.next_job);
            let spec = Arc::new(spec);
            effects.push(Effect::Persist(Fact::JobAccepted { job, spec: Arc::clone(&spec) }));
            let added = self.add_job(job, spec);
            debug_assert!(added, "there was room for its ability");
            job
        });
        let accepted = result.clone().ok();
        effects.push(Effect::Submitted { request, result });
        effects.extend(accepted.map(|job| Effect::JobChanged { job }));
    }

    fn admit(&self, spec: &JobSpec) -> Result<(), SubmitRefusal> {
        spec.check()?;
        if !self.lanes.contains_key(&spec.lane) {
            return Err(SubmitRefusal::NoPolicy(spec.lane));
        }
        if self.farm.jobs.len() >= JOBS_MAX {
            return Err(SubmitRefusal::TooManyJobs);
        }
        if !self.farm.abilities.has_room_for(&spec.task) {
            return Err(SubmitRefusal::TooManyAbilities);
        }
        Ok(())
    }

    /// Adds an accepted job: now, or from the journal. Not where it asks for one kernel or
    /// program too many.
    pub(super) fn add_job(&mut self, id: JobId, spec: Arc<JobSpec>) -> bool {
        let Some((ability, is_new)) = self.farm.abilities.intern(&spec.task) else {
            return false;
        };
        if is_new {
            let offers = |capabilities: &_| ability::offers(capabilities, &spec.task);
            self.farm.hosts.extend_abilities(ability, offers);
        }
        self.farm.jobs.insert(id, Job::new(id, spec, ability));
        self.next_job = self.next_job.max(id.get().saturating_add(1));
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
        job.phase = phase;
        let open: Vec<_> = job.open.values().copied().collect();
        for workunit in open {
            self.close_workunit(workunit, AbortReason::Cancelled, effects);
        }
        self.tell(id, Change::JobEnded(id));
        effects.push(Effect::JobChanged { job: id });
    }
}
