//! A queue that knows neither deadlines nor how many cores a host really has.

use std::collections::BTreeSet;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Time, WorkunitId};

use crate::farm::{Farm, HostIx, JobPhase, WorkunitIx};
use crate::{Change, Desk, Policy, Trigger, Violation, WaitReason};

/// First come, first served: each task goes to the first host, in the order in which they came
/// to the cluster, that announces a free slot. Every job is taken.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Section V.4.2, which says no more of the Grid Engine's rule.
#[derive(Debug, Default)]
pub struct GridEngine {
    /// Jobs with untouched workunits.
    untouched: BTreeSet<JobId>,
    /// Begun workunits that wait again.
    again: BTreeSet<(WorkunitId, WorkunitIx)>,
}

impl GridEngine {
    /// Serves a host as long as it has free slots; `false` where nothing is left to start.
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.farm().host(host).free() > 0 && self.start_next(desk, host) {}
    }

    /// Starts the first task that the host can run.
    fn start_next(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let able = |(_, workunit): &&(WorkunitId, WorkunitIx)| {
            desk.farm().may_start(*workunit, host).is_ok()
        };
        let again = self.again.iter().find(able).copied();
        let job = self.untouched.iter().copied().find(|job| desk.farm().is_able(host, *job));
        if let Some((id, workunit)) = again.filter(|(id, _)| job.is_none_or(|job| id.job <= job)) {
            self.again.remove(&(id, workunit));
            return desk.start(workunit, host).is_ok();
        }
        let Some(job) = job else { return false };
        let Some(workunit) = desk.open(job) else { return false };
        if desk.farm().job(job).is_none_or(|job| !job.has_untouched()) {
            self.untouched.remove(&job);
        }
        let started = desk.start(workunit, host).is_ok();
        let unit = desk.farm().workunit(workunit);
        if unit.waiting > 0 {
            self.again.insert((unit.id, workunit));
        }
        started
    }
}

impl Policy for GridEngine {
    fn name(&self) -> &'static str {
        "grid-engine"
    }

    fn observe(&mut self, _now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(job) => {
                if farm.job(job).is_some_and(crate::Job::has_untouched) {
                    self.untouched.insert(job);
                }
            }
            Change::JobTouched(job) | Change::JobEnded(job) => {
                self.untouched.remove(&job);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                if unit.waiting > 0 {
                    self.again.insert((unit.id, workunit));
                } else {
                    self.again.remove(&(unit.id, workunit));
                }
            }
            Change::WorkunitEnded(workunit) => {
                self.again.remove(&(farm.workunit(workunit).id, workunit));
            }
            Change::HostChanged(_) | Change::CopyChanged { .. } | Change::Completed { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        match trigger {
            Trigger::Host(host) => self.serve(desk, host),
            Trigger::Work => {
                let free = desk.farm().hosts().filter(|(_, host)| host.free() > 0);
                let free: Vec<HostIx> = free.map(|(host, _)| host).collect();
                for host in free {
                    self.serve(desk, host);
                }
            }
            Trigger::Deadline => {}
        }
    }

    fn explain(&self, farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        let untouched = self.untouched.iter().filter_map(|job| farm.job(*job));
        let untouched = untouched.map(|job| (job.workunit_count() - job.next) as usize);
        let tasks_queued = self.again.len() + untouched.sum::<usize>();
        vec![WaitReason::FirstComeFirstServed { tasks_queued }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let of_lane = |job: &&crate::Job| job.spec.lane == lane && job.phase == JobPhase::Active;
        let untouched = farm.jobs().filter(of_lane).filter(|job| job.has_untouched());
        if !untouched.map(|job| job.id).eq(self.untouched.iter().copied()) {
            let detail = format!("untouched jobs are listed as {:?}", self.untouched);
            return Err(Violation::new("queue-members", detail));
        }
        let waiting: BTreeSet<_> = farm
            .workunits()
            .filter(|(_, unit)| farm.lane_of(unit.id.job) == Some(lane) && unit.waiting > 0)
            .map(|(workunit, unit)| (unit.id, workunit))
            .collect();
        if waiting != self.again {
            let detail = format!("{waiting:?} wait, {:?} are listed", self.again);
            return Err(Violation::new("queue-members", detail));
        }
        Ok(())
    }
}
