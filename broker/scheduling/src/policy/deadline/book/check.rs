//! Whether the book is that of its lane's leases.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, LeaseToken, WorkunitId};
use smallvec::SmallVec;

use super::slots::slots_of;
use super::{Book, Run};
use crate::Violation;
use crate::farm::{Farm, HostIx, JobPhase};

impl Book {
    /// Checks it against the farm, of which it has the jobs of `lane`.
    pub(crate) fn check(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let name = "deadline-book";
        let of_lane = |job: &&crate::Job| job.spec.lane == lane && job.phase == JobPhase::Active;
        let active: Vec<JobId> = farm.jobs().filter(of_lane).map(|job| job.id).collect();
        if !active.iter().eq(self.jobs.keys()) {
            let detail = format!("{active:?} go on, {:?} are promised", self.jobs.keys());
            return Err(Violation::new(name, detail));
        }
        for (job, entry) in self.iter() {
            let has_ended = |index| farm.job(job).is_some_and(|of| of.ended.contains(index));
            for (index, task) in (0..).zip(&entry.tasks) {
                let id = WorkunitId { job, index };
                if task.ended != has_ended(index) {
                    return Err(Violation::new(name, format!("{id}: the book says {task:?}")));
                }
                let workunit = farm.find(id);
                let slots = workunit.map_or(SmallVec::new(), |of| slots_of(farm, of));
                if let Some(slot) = slots.iter().find(|slot| !task.has(slot)) {
                    let detail = format!("{id} has {slot:?}, the book says {task:?}");
                    return Err(Violation::new(name, detail));
                }
                let is_leased = |host: HostIx, token: LeaseToken| {
                    let mut pending = workunit.iter().flat_map(|of| &farm.workunit(*of).pending);
                    pending.any(|of| (of.host, of.token) == (host, token))
                };
                let is_pending = |run: Run| is_leased(run.host, run.token);
                let mut runs = task.run.into_iter().chain(task.insurance);
                if runs.any(|run| !is_pending(run)) {
                    return Err(Violation::new(name, format!("{id} runs in the book alone")));
                }
                if task.aside.is_some_and(|of| !is_leased(of.host, of.token)) {
                    let detail = format!("{id} stands still in the book alone");
                    return Err(Violation::new(name, detail));
                }
                let hosts = (task.run.map(|run| run.host), task.insurance.map(|run| run.host));
                if hosts.1.is_some() && (hosts.0.is_none() || hosts.0 == hosts.1) {
                    let detail = format!("{id} runs on {hosts:?} and is insured by the latter");
                    return Err(Violation::new(name, detail));
                }
            }
        }
        Ok(())
    }
}
