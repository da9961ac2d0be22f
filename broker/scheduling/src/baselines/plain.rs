//! The scheduler that the fragment-aware one is measured against.

use std::collections::BTreeSet;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Time, Trust, WorkunitId};

use super::boinc_adaptive::Alone;
use crate::ability::AbilityIx;
use crate::explain::WaitReason;
use crate::farm::{Begins, Farm, HostIx, Job, Workunit, WorkunitIx};
use crate::policy::{
    Backlog, Change, Policy, PolicyName, Trigger, anyone, check_nobody_idles, place,
};
use crate::{Desk, Violation};

/// Treats replicas as individual tasks: first come, first served, whatever their workunit's
/// progress and whatever side the host is on.
///
/// Jobs come in order of submission, workunits in order of index, the replicas of a workunit
/// one behind the other; a replica that has to be tried again keeps its workunit's place.
#[derive(Default)]
pub struct Plain {
    /// Who is left alone, where anyone is; else every workunit is replicated as its job says.
    alone: Option<Alone>,
    /// Jobs with untouched workunits, by ability.
    untouched: Vec<BTreeSet<JobId>>,
    tasks: Backlog,
    /// Workunits that entered the queue while requests were standing.
    fresh: Vec<WorkunitIx>,
    /// Whether untouched workunits may suit standing requests.
    untouched_is_fresh: bool,
}

impl Plain {
    /// The same order of things, with some hosts left alone.
    pub(crate) fn with(alone: Alone) -> Self {
        Self { alone: Some(alone), ..Self::default() }
    }

    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let found = self.tasks.first_for(desk, host);
        let next = self.next_untouched(desk, host);
        if let Some((rank, workunit)) = found
            && next.is_none_or(|(key, _)| rank.key < key)
        {
            return self.start(desk, workunit, host);
        }
        let Some(workunit) = next.and_then(|(_, job)| self.open(desk, job)) else {
            let found = found.map(|(_, workunit)| workunit);
            let found = found.or_else(|| self.tasks.last_resort(desk, host));
            return found.is_some_and(|workunit| self.start(desk, workunit, host));
        };
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "a fresh workunit and an able host with a free slot");
        if let Some(alone) = &mut self.alone {
            alone.sent(desk, workunit, host);
        }
        let unit = desk.farm().workunit(workunit);
        if unit.waiting > 0 {
            self.tasks.put(unit.ability, workunit, place(unit.id));
            if self.untouched_is_fresh {
                self.fresh.push(workunit);
            }
        }
        started.is_ok()
    }

    fn start(&mut self, desk: &mut Desk<'_>, workunit: WorkunitIx, host: HostIx) -> bool {
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "an eligible workunit and a host with a free slot");
        if let Some(alone) = &mut self.alone {
            alone.sent(desk, workunit, host);
        }
        let unit = desk.farm().workunit(workunit);
        if unit.waiting == 0 {
            self.tasks.remove(unit.ability, workunit);
        }
        started.is_ok()
    }

    /// The place of the first untouched workunit that `host` can run.
    fn next_untouched(&self, desk: &Desk<'_>, host: HostIx) -> Option<(u64, JobId)> {
        let lists = self.untouched.iter().enumerate();
        let firsts = lists.filter_map(|(index, jobs)| jobs.first().map(|job| (index, *job)));
        let job = firsts
            .filter(|(index, _)| desk.may_begin(host, AbilityIx::from_index(*index)))
            .map(|(_, job)| job)
            .min()?;
        let index = desk.farm().job(job)?.next_untouched()?;
        Some((place(WorkunitId { job, index }), job))
    }

    fn open(&mut self, desk: &mut Desk<'_>, job: JobId) -> Option<WorkunitIx> {
        let spec = &desk.farm().job(job)?.spec;
        let begins = match (&self.alone, spec.trust) {
            (Some(_), Trust::Adaptive { .. }) => Alone::BEGINS,
            _ => Begins::fixed(spec),
        };
        let workunit = desk.open_as(job, begins)?;
        let job = desk.farm().job(job)?;
        if !job.has_untouched() {
            self.forget(job);
        }
        Some(workunit)
    }

    fn forget(&mut self, job: &Job) {
        if let Some(jobs) = self.untouched.get_mut(job.ability.get()) {
            jobs.remove(&job.id);
        }
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.may_serve(host) && self.serve(desk, host) {}
    }

    fn serve_fresh(&mut self, desk: &mut Desk<'_>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_cached_key(|workunit| place(desk.farm().workunit(*workunit).id));
        for workunit in fresh {
            while desk.may_hold_more()
                && let Some(host) = desk.farm().first_asking_for(workunit, None, anyone)
                && self.start(desk, workunit, host)
            {}
        }
    }

    /// Gives untouched workunits to standing requests. Where there are none for a host, there
    /// are none for the hosts like it.
    fn serve_untouched(&mut self, desk: &mut Desk<'_>) {
        let mut next = desk.farm().first_asking(anyone);
        while let Some(host) = next
            && desk.may_hold_more()
        {
            self.serve_all(desk, host);
            let farm = desk.farm();
            let like = (!farm.host(host).has_room())
                .then(|| farm.first_asking_like(host, anyone))
                .flatten();
            next = like.or_else(|| farm.first_asking_behind(host, anyone));
        }
    }
}

impl Policy for Plain {
    fn name(&self) -> &'static str {
        PolicyName::Plain.as_str()
    }

    fn observe(&mut self, _now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(id) => {
                if let Some(job) = farm.job(id).filter(|job| job.has_untouched()) {
                    let index = job.ability.get();
                    if self.untouched.len() <= index {
                        self.untouched.resize_with(index + 1, BTreeSet::new);
                    }
                    self.untouched[index].insert(id);
                    self.untouched_is_fresh = true;
                }
            }
            Change::JobTouched(id) | Change::JobEnded(id) => {
                if let Some(job) = farm.job(id) {
                    self.forget(job);
                }
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                self.tasks.update(workunit, unit, place(unit.id));
                if unit.waiting > 0 && farm.anyone_asks() {
                    self.fresh.push(workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                self.tasks.remove(farm.workunit(workunit).ability, workunit);
                self.fresh.retain(|fresh| *fresh != workunit);
                self.untouched_is_fresh |= farm.is_full();
            }
            Change::HostForgotten(host) => self.tasks.forget_host(host),
            Change::HostChanged(_)
            | Change::DecidedBefore(_)
            | Change::CopyChanged { .. }
            | Change::Completed { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        match trigger {
            Trigger::Host(host) => self.serve_all(desk, host),
            Trigger::Work => {
                self.serve_fresh(desk);
                if self.untouched_is_fresh {
                    self.serve_untouched(desk);
                    self.untouched_is_fresh = false;
                    self.serve_fresh(desk);
                }
            }
            Trigger::Deadline => {}
        }
    }

    fn begins(&self, spec: &JobSpec) -> Begins {
        match (&self.alone, spec.trust) {
            (Some(_), Trust::Adaptive { .. }) => Alone::begins_again(spec),
            _ => Begins::fixed(spec),
        }
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        vec![WaitReason::FirstComeFirstServed { tasks_queued: self.tasks.len() }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.tasks.check("tasks", farm, |unit: &Workunit| {
            let queued = unit.waiting > 0 && farm.lane_of(unit.id.job) == Some(lane);
            queued.then(|| place(unit.id))
        })?;
        let listed = |job: &Job| {
            self.untouched.get(job.ability.get()).is_some_and(|jobs| jobs.contains(&job.id))
        };
        let wanted = |job: &Job| job.spec.lane == lane && job.has_untouched();
        if let Some(job) = farm.jobs().find(|job| listed(job) != wanted(job)) {
            let detail = format!("untouched and {} differ", job.id);
            return Err(Violation::new("queue-members", detail));
        }
        check_nobody_idles(farm, lane, |_| None, anyone)
    }
}
