//! A queue that knows neither deadlines nor how many cores a host really has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Time, WorkunitId};

use crate::farm::{Farm, Host, HostIx, Job, JobPhase, WorkunitIx};
use crate::{Change, Desk, Policy, Trigger, Violation, WaitReason};

/// First come, first served: each task goes to the announced slot whose load is least, and that
/// is the one that has been idle for longest, for loads are averages over the last minutes; slots
/// that were never used come one of each host first, as they were deployed. Every job is taken.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Section V.4.2, which takes the Grid Engine as it is installed: its queues sort
/// hosts by their load average.
#[derive(Debug, Default)]
pub struct GridEngine {
    /// Since when slots of a host have been idle that were used before, the longest first.
    idle: BTreeMap<HostIx, VecDeque<Time>>,
    /// Jobs with untouched workunits.
    untouched: BTreeSet<JobId>,
    /// Begun workunits that wait again.
    again: BTreeSet<(WorkunitId, WorkunitIx)>,
}

impl GridEngine {
    /// Serves hosts as long as there is a task for one with a free slot.
    fn serve(&mut self, desk: &mut Desk<'_>) {
        let mut passed = BTreeSet::new();
        while let Some(host) = self.least_loaded(desk, &passed) {
            if !self.start_next(desk, host) {
                passed.insert(host);
            } else if let Some(idle) = self.idle.get_mut(&host) {
                idle.pop_front();
            }
        }
    }

    fn least_loaded(&self, desk: &Desk<'_>, passed: &BTreeSet<HostIx>) -> Option<HostIx> {
        let hosts = desk.farm().hosts();
        let free = hosts.filter(|(host, _)| desk.room(*host) > 0 && !passed.contains(host));
        free.min_by_key(|(host, entry)| (self.idle_since(*host, entry, desk.room(*host)), *host))
            .map(|(host, _)| host)
    }

    /// Since when the slot of a host that has been idle for longest is, or, where one was never
    /// used, how many of the host were.
    fn idle_since(&self, host: HostIx, entry: &Host, room: u32) -> (Time, usize) {
        let idle = self.idle.get(&host);
        let used = idle.filter(|idle| idle.len() >= room as usize);
        let never = (Time::ZERO, entry.leases.len() + idle.map_or(0, VecDeque::len));
        used.and_then(|idle| idle.front()).map_or(never, |since| (*since, 0))
    }

    /// Starts the first task that the host can run.
    fn start_next(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let able = |(_, workunit): &&(WorkunitId, WorkunitIx)| {
            desk.farm().may_start(*workunit, host).is_ok()
        };
        let again = self.again.iter().find(able).copied();
        let farm = desk.farm();
        let has_left = |job: &Job| farm.has_left(job.spec.lane, host, job.ability);
        let may = |job: &JobId| farm.is_able(host, *job) && farm.job(*job).is_some_and(has_left);
        let job = self.untouched.iter().copied().find(may);
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

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(job) => {
                if farm.job(job).is_some_and(Job::has_untouched) {
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
            Change::Completed { host, .. } => {
                let idle = self.idle.entry(host).or_default();
                idle.push_back(now);
                let most = farm.host(host).fragment.cores as usize;
                idle.drain(..idle.len().saturating_sub(most));
            }
            Change::HostForgotten(host) => drop(self.idle.remove(&host)),
            Change::HostChanged(_) | Change::DecidedBefore(_) | Change::CopyChanged { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, _trigger: Trigger) {
        if !(self.untouched.is_empty() && self.again.is_empty()) {
            self.serve(desk);
        }
    }

    fn explain(&self, farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        let untouched = self.untouched.iter().filter_map(|job| farm.job(*job));
        let untouched = untouched.map(|job| (job.workunit_count() - job.next) as usize);
        let tasks_queued = self.again.len() + untouched.sum::<usize>();
        vec![WaitReason::FirstComeFirstServed { tasks_queued }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let of_lane = |job: &&Job| job.spec.lane == lane && job.phase == JobPhase::Active;
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
