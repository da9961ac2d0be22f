//! The scheduler that the fragment-aware one is measured against.

use std::collections::BTreeSet;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, WorkunitId};

use super::{Backlog, Change, Policy, PolicyName, Trigger};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, Job, WorkunitIx};
use crate::{Desk, Violation};

/// Treats replicas as individual tasks: first come, first served, whatever their workunit's
/// progress and whatever side the host is on.
///
/// Jobs come in order of submission, workunits in order of index, the replicas of a workunit
/// one behind the other; a replica that has to be tried again keeps its workunit's place.
#[derive(Default)]
pub struct Plain {
    untouched: BTreeSet<JobId>,
    tasks: Backlog,
}

impl Plain {
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let found = self.tasks.first_for(desk.farm(), host);
        let Some(workunit) = found.or_else(|| self.open_for(desk, host)) else {
            return false;
        };
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "an eligible workunit and a host with a free slot");
        if desk.farm().workunit(workunit).waiting == 0 {
            self.tasks.remove(workunit);
        } else if found.is_none() {
            self.tasks.put(workunit, 0);
        }
        started.is_ok()
    }

    fn open_for(&mut self, desk: &mut Desk<'_>, host: HostIx) -> Option<WorkunitIx> {
        let farm = desk.farm();
        let job = self.untouched.iter().copied().find(|job| farm.is_able(host, *job))?;
        let workunit = desk.open(job)?;
        if !desk.farm().job(job).is_some_and(Job::has_untouched) {
            self.untouched.remove(&job);
        }
        Some(workunit)
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.farm().host(host).free() > 0 && self.serve(desk, host) {}
    }
}

impl Policy for Plain {
    fn name(&self) -> PolicyName {
        PolicyName::Plain
    }

    fn observe(&mut self, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(job) => {
                if farm.job(job).is_some_and(Job::has_untouched) {
                    self.untouched.insert(job);
                }
            }
            Change::JobEnded(job) => {
                self.untouched.remove(&job);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                if !farm.job(unit.id.job).is_some_and(Job::has_untouched) {
                    self.untouched.remove(&unit.id.job);
                }
                if unit.waiting > 0 {
                    self.tasks.put(workunit, 0);
                } else {
                    self.tasks.remove(workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                self.tasks.remove(workunit);
            }
            Change::HostChanged(host) => self.tasks.host_changed(host),
            Change::Completed { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        if let Trigger::Host(host) = trigger {
            return self.serve_all(desk, host);
        }
        let mut after = None;
        while let Some(host) = desk.farm().next_asking(after) {
            if self.untouched.is_empty() && self.tasks.is_empty() {
                return;
            }
            self.serve_all(desk, host);
            after = Some(host);
        }
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        vec![WaitReason::FirstComeFirstServed { tasks_queued: self.tasks.len() }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.tasks.check("tasks", farm, |workunit| {
            let unit = farm.workunit(workunit);
            (unit.waiting > 0 && farm.lane_of(unit.id.job) == Some(lane)).then_some(0)
        })?;
        let wrong = farm.jobs().find(|job| {
            let wanted = job.spec.lane == lane && job.has_untouched();
            self.untouched.contains(&job.id) != wanted
        });
        match wrong {
            None => Ok(()),
            Some(job) => {
                Err(Violation::new("queue-members", format!("untouched and {} differ", job.id)))
            }
        }
    }
}
