//! The policy: maps what waits, and starts it as the hosts ask.

mod plan;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use super::gleaner::Effort;
use super::rule::Rule;
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, WorkunitIx};
use crate::policy::{Change, Policy, Trigger};
use crate::{Desk, Refusal, Violation};
use plan::Plan;

/// What a [`Batch`] is told at its birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchConfig {
    /// How it maps.
    pub rule: Rule,
    /// How much [`Rule::Gleaner`] searches each time.
    pub effort: Effort,
    /// Most steps of one plan: the replicas that are mapped, squared, by the slots that they are
    /// mapped onto. What waits beyond is planned for when these run.
    pub steps_max: usize,
    /// Plans of no more steps are followed by another one at once, where there is cause.
    pub steps_at_once: usize,
    /// After a larger one so much time goes by, at least, for each of its steps, in nanoseconds: what
    /// planning may take of the broker's time.
    pub rest_ns_per_step: u64,
}

/// Maps all that waits onto all hosts at once, by expected times, and keeps the plan: each host
/// has a queue, and is given its head when it asks. When something comes that the plan does not
/// know (a job, a host, a replica that has to be tried again), what waits is mapped anew as soon
/// as anyone asks, and after a large plan once it has rested; what runs goes on.
///
/// It counts on every connected host to ask while it has free slots, as agents do: what is
/// planned for one that never asks waits until the plan is made anew.
///
/// A host may be left idle on purpose: for [`Rule::Torque`], all that are not the fastest.
///
/// # Invariants
/// - `plan-members`: unless the plan is out of date, each queued workunit is queued once for each
///   of its waiting replicas.
/// - `plan-served`: unless the plan is out of date, no host asks that has something queued.
pub struct Batch {
    config: BatchConfig,
    /// Jobs of its lane that have not ended.
    jobs: BTreeSet<JobId>,
    plan: Plan,
    /// Whether something has changed that the plan does not know.
    is_stale: bool,
    /// Before this no plan is made.
    rests_until: Time,
    /// When it wants to be asked again, because it was to make a plan and had to rest.
    next: Option<Time>,
    /// When replicas that were started are expected to end.
    ends: BTreeMap<(WorkunitIx, HostIx), Time>,
}

/// What came of giving a host the head of its queue.
enum Step {
    Started(WorkunitIx),
    /// It waits no longer.
    Gone,
    /// Another host must have it.
    Misplaced,
    /// Nothing can be started there now.
    Blocked,
}

impl Batch {
    /// Without a plan.
    #[must_use]
    pub fn new(config: BatchConfig) -> Self {
        Self {
            config,
            jobs: BTreeSet::new(),
            plan: Plan::default(),
            is_stale: true,
            rests_until: Time::ZERO,
            next: None,
            ends: BTreeMap::new(),
        }
    }

    /// Gives the host what is queued for it.
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.room(host) > 0
            && let Some(id) = self.plan.first(host)
        {
            match start(desk, id, host) {
                Step::Started(workunit) => self.note_end(desk, workunit, id, host),
                Step::Gone => {}
                Step::Misplaced => self.is_stale = true,
                Step::Blocked => return,
            }
            self.plan.pop(host);
        }
        self.is_stale |=
            self.plan.is_cut() && self.plan.first(host).is_none() && desk.room(host) > 0;
    }

    /// Gives the host the first that waits, as far as it looks, that the host may run.
    fn start_next(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let Some(id) = plan::first_for(desk.farm(), &self.jobs, host) else { return false };
        let Step::Started(workunit) = start(desk, id, host) else { return false };
        self.note_end(desk, workunit, id, host);
        true
    }

    fn note_end(&mut self, desk: &Desk<'_>, workunit: WorkunitIx, id: WorkunitId, host: HostIx) {
        let run_time = plan::run_time_us(desk.farm(), id, host);
        let end = desk.now().as_micros().saturating_add(run_time);
        self.ends.insert((workunit, host), Time::from_micros(end));
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>) {
        let has_room = |host: &HostIx| desk.room(*host) > 0;
        let hosts: Vec<_> = desk.farm().hosts().map(|(host, _)| host).filter(has_room).collect();
        hosts.into_iter().for_each(|host| self.serve(desk, host));
    }

    /// Forgets the expected ends of a workunit's replicas.
    fn forget(&mut self, workunit: WorkunitIx) {
        let of_it = (workunit, HostIx::FIRST)..;
        while let Some((&key, _)) = self.ends.range(of_it.clone()).next()
            && key.0 == workunit
        {
            self.ends.remove(&key);
        }
    }
}

fn start(desk: &mut Desk<'_>, id: WorkunitId, host: HostIx) -> Step {
    let workunit = match desk.farm().find(id) {
        Some(workunit) => workunit,
        None if desk.farm().is_full() => return Step::Blocked,
        None => match desk.open_index(id.job, id.index) {
            Some(workunit) => workunit,
            None => return Step::Gone,
        },
    };
    match desk.start(workunit, host) {
        Ok(_) => Step::Started(workunit),
        Err(Refusal::NoReplicaWaits) => Step::Gone,
        Err(Refusal::OneVotePerHost | Refusal::CannotRun | Refusal::OthersFirst) => Step::Misplaced,
        Err(_) => Step::Blocked,
    }
}

impl Policy for Batch {
    fn name(&self) -> &'static str {
        self.config.rule.as_str()
    }

    fn observe(&mut self, _now: Time, farm: &Farm, change: Change) {
        match change {
            Change::HostChanged(_) | Change::HostForgotten(_) => self.is_stale = true,
            Change::JobAdded(job) => {
                self.jobs.insert(job);
                self.is_stale = true;
            }
            Change::JobEnded(job) => {
                self.jobs.remove(&job);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                self.jobs.insert(unit.id.job);
                self.is_stale |= self.plan.count(unit.id) != u32::from(unit.waiting);
            }
            Change::WorkunitEnded(workunit) => self.forget(workunit),
            Change::Completed { workunit, host, .. } => {
                self.ends.remove(&(workunit, host));
            }
            Change::JobTouched(_) | Change::CopyChanged { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.next = None;
        if self.jobs.is_empty() {
            self.plan = Plan::default();
            return;
        }
        let has_room = match trigger {
            Trigger::Host(host) => desk.room(host) > 0,
            Trigger::Work | Trigger::Deadline => {
                desk.farm().hosts().any(|(host, _)| desk.room(host) > 0)
            }
        };
        if !has_room {
            return;
        }
        if let Trigger::Host(host) = trigger {
            let slots = desk.reach(host).whole_cores();
            self.is_stale |= self.plan.is_outgrown(host, slots);
            self.is_stale |= self.plan.first(host).is_none() && self.plan.may_be_stuck();
        }
        // While it rests, what is planned is given out though it may be out of date; where nothing is
        // planned for a host and more waits than was mapped, it gets what is next.
        let rests = desk.now() < self.rests_until;
        if let Trigger::Host(host) = trigger
            && (!self.is_stale || rests)
        {
            self.serve(desk, host);
            while rests && self.plan.is_cut() && desk.room(host) > 0 && self.start_next(desk, host)
            {
            }
        }
        // Each turn of the loop starts a replica, or finds that nothing more can be mapped, or rests.
        while self.is_stale {
            if desk.now() < self.rests_until {
                self.next = Some(self.rests_until);
                return;
            }
            let leased = desk.farm().lease_count();
            self.plan = Plan::new(desk, self.config, &self.jobs, &self.ends);
            self.is_stale = false;
            let steps = Some(self.plan.steps()).filter(|steps| *steps > self.config.steps_at_once);
            let rest_ns =
                steps.map_or(0, |steps| self.config.rest_ns_per_step.saturating_mul(steps as u64));
            self.rests_until = desk.now() + Span::from_micros(rest_ns / 1_000);
            self.serve_all(desk);
            if desk.farm().lease_count() == leased {
                break;
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        let planned = self.plan.place_of(workunit).map(|(host, ahead)| {
            let host = farm.host(host).info.name.to_string();
            WaitReason::Planned { host, ahead }
        });
        planned.into_iter().collect()
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        if self.is_stale {
            return Ok(());
        }
        for (workunit, unit) in farm.workunits() {
            let queued = self.plan.count(unit.id);
            let is_ours = farm.lane_of(unit.id.job) == Some(lane);
            if is_ours && queued != 0 && queued != u32::from(unit.waiting) {
                let detail = format!("{} waits {}, queued {queued}", unit.id, unit.waiting);
                return Err(Violation::new("plan-members", detail));
            }
            let nowhere = || self.plan.is_cut() || !self.plan.has_place_for(farm, workunit);
            if is_ours && queued == 0 && unit.waiting > 0 && !nowhere() {
                return Err(Violation::new("plan-members", format!("{} is not queued", unit.id)));
            }
        }
        let may = |host: HostIx| farm.room(lane, host) > 0;
        let mut asking = farm.hosts().filter(|(index, host)| host.free() > 0 && may(*index));
        match asking.find(|(host, _)| self.plan.first(*host).is_some() && !farm.is_full()) {
            Some((_, host)) => {
                let detail = format!("{} asks and has a queue", host.info.name);
                Err(Violation::new("plan-served", detail))
            }
            None => Ok(()),
        }
    }
}
