//! Jobs come, and are cancelled.

use std::sync::Arc;

use gleaner_protocol::JobId;
use gleaner_protocol::api::ReplicaCounts;
use gleaner_protocol::control::AbortReason;
use gleaner_protocol::job::JobSpec;

use super::Core;
use crate::ability::Ability;
use crate::farm::{Ended, Job, JobPhase};
use crate::limits::JOBS_MAX;
use crate::policy::Change;
use crate::{Effect, Fact, RequestId, SubmitRefusal};

impl Core {
    pub(super) fn submit(&mut self, request: RequestId, spec: JobSpec, effects: &mut Vec<Effect>) {
        let result = self.admit(&spec).map(|()| {
            let job = JobId::new(self.next_job);
            let spec = Arc::new(spec);
            effects.push(Effect::Persist(Fact::JobAccepted { job, spec: Arc::clone(&spec) }));
            self.add_job(job, spec);
            job
        });
        let accepted = result.clone().ok();
        effects.push(Effect::Submitted { request, result });
        effects.extend(accepted.map(|job| Effect::JobChanged { job }));
    }

    fn admit(&mut self, spec: &JobSpec) -> Result<(), SubmitRefusal> {
        spec.check()?;
        if !self.lanes.contains_key(&spec.lane) {
            return Err(SubmitRefusal::NoPolicy(spec.lane));
        }
        if self.farm.jobs.len() >= JOBS_MAX {
            return Err(SubmitRefusal::TooManyJobs);
        }
        let ability = Ability::needed_by(&spec.task);
        let (_, _) = self.farm.abilities.intern(ability).ok_or(SubmitRefusal::TooManyAbilities)?;
        Ok(())
    }

    /// Adds an accepted job: now, or from the journal.
    pub(super) fn add_job(&mut self, id: JobId, spec: Arc<JobSpec>) {
        let ability = Ability::needed_by(&spec.task);
        let (ability, _) =
            self.farm.abilities.intern(ability).expect("an accepted job's ability was interned");
        let abilities = &self.farm.abilities;
        self.farm.hosts.extend_abilities(|host| {
            if abilities.has(&host.info.capabilities, ability) {
                host.abilities.insert(ability);
            }
        });
        let job = Job {
            id,
            spec,
            phase: JobPhase::Active,
            next: 0,
            open: std::collections::BTreeMap::new(),
            ended: Ended::default(),
            counts: ReplicaCounts::default(),
            pending: 0,
            ability,
        };
        self.farm.jobs.insert(id, job);
        self.next_job = self.next_job.max(id.get() + 1);
        self.new_work = true;
        self.tell(id, Change::JobAdded(id));
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
