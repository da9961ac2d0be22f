//! The policy: maps what waits, and starts it as the hosts ask.

mod plan;
mod running;

use std::collections::BTreeMap;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use super::gleaner::Effort;
use super::rule::Rule;
use super::run_times::{RunTimes, Said};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, Job, WorkunitIx};
use crate::policy::{Change, Policy, Trigger};
use crate::{Desk, Refusal, Violation};
use plan::Plan;
use running::{Begun, Running};

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
/// Expected times are corrected by what runs, and what waits is mapped anew where a run took another
/// time than it was planned with, or takes longer. Where nothing is known of an application on a kind
/// of host, one replica tries it, and the others do something else until it has ended; they wait for
/// it only where the application is known on another kind.
///
/// # Invariants
/// - `plan-members`: unless the plan is out of date, each queued workunit is queued once for each
///   of its waiting replicas.
/// - `plan-served`: unless the plan is out of date, no host asks that has something queued that does
///   not wait for a try of it, nor for memory that others have there: these may have to give way only
///   when their lane holds more elsewhere.
pub struct Batch {
    config: BatchConfig,
    /// Jobs of its lane that have not ended, and when each came.
    jobs: BTreeMap<JobId, Time>,
    plan: Plan,
    times: RunTimes,
    /// Whether something has changed that the plan does not know.
    is_stale: bool,
    /// Before this no plan is made.
    rests_until: Time,
    /// When it wants to be asked again, because it was to make a plan and had to rest.
    next: Option<Time>,
    running: Running,
    /// Whether a host was left idle because a replica tries what is queued for it.
    waits_for_try: bool,
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

/// Whether a workunit waits for one that tries such work on such a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It does not.
    None,
    /// Only where the host has something else to do: nothing is known of such work on any host.
    IfThereIsElse,
    /// It does.
    ForTry,
}

impl Batch {
    /// Without a plan.
    #[must_use]
    pub fn new(config: BatchConfig) -> Self {
        Self {
            config,
            jobs: BTreeMap::new(),
            plan: Plan::default(),
            times: RunTimes::default(),
            is_stale: true,
            rests_until: Time::ZERO,
            next: None,
            running: Running::default(),
            waits_for_try: false,
        }
    }

    /// Gives the host what is queued for it.
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.room(host) > 0
            && let Some(id) = self.next_for(desk.farm(), host, |job| {
                desk.farm().has_left(job.spec.lane, host, job.ability)
            })
        {
            match start(desk, id, host) {
                Step::Started(workunit) => self.note_start(desk, workunit, id, host),
                Step::Gone => {}
                Step::Misplaced => self.is_stale = true,
                Step::Blocked => return,
            }
            self.plan.take(host, id);
        }
        if desk.room(host) > 0 {
            let is_empty = self.plan.queue(host).next().is_none();
            self.is_stale |= self.plan.is_cut() && is_empty;
            self.waits_for_try |= !is_empty;
        }
    }

    /// What the host is to run next: the first that is queued for it, for whose job it has enough left beside
    /// cores, and that does not wait for a try.
    fn next_for(
        &self,
        farm: &Farm,
        host: HostIx,
        has_left: impl Fn(&Job) -> bool,
    ) -> Option<WorkunitId> {
        let mut last = None;
        for id in self.plan.queue(host) {
            if !farm.job(id.job).is_none_or(&has_left) {
                continue;
            }
            match self.wait_of(farm, id, host) {
                Wait::None => return Some(id),
                Wait::IfThereIsElse => last = last.or(Some(id)),
                Wait::ForTry => {}
            }
        }
        last
    }

    /// Whether a workunit waits for a replica that tries such work on such a host.
    fn wait_of(&self, farm: &Farm, id: WorkunitId, host: HostIx) -> Wait {
        let profile = farm.job(id.job).map(|job| &job.spec.profile);
        let said = profile.map(|profile| Said::of(profile, farm.host(host).info.kind.as_ref()));
        if matches!(said, Some(Said::Time(_))) || !self.config.rule.looks_at_times() {
            return Wait::None;
        }
        let entry = self.times.entry_of(farm, id, host);
        let tried = |entry: &_| !self.times.is_known(*entry) && self.running.has(farm, *entry);
        let Some(entry) = entry.filter(tried) else { return Wait::None };
        let is_named = profile.is_some_and(|profile| !profile.run_time_us.is_empty());
        match is_named || self.times.is_known_somewhere(entry) {
            true => Wait::ForTry,
            false => Wait::IfThereIsElse,
        }
    }

    /// Gives the host the first that waits, as far as it looks, that the host may run.
    fn start_next(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let Some(id) = plan::first_for(desk.farm(), &self.jobs, host) else { return false };
        if matches!(self.wait_of(desk.farm(), id, host), Wait::ForTry) {
            self.waits_for_try = true;
            return false;
        }
        let Step::Started(workunit) = start(desk, id, host) else { return false };
        self.note_start(desk, workunit, id, host);
        true
    }

    fn note_start(&mut self, desk: &Desk<'_>, workunit: WorkunitIx, id: WorkunitId, host: HostIx) {
        let came = self.jobs.get(&id.job).copied().unwrap_or(Time::ZERO);
        let question = plan::question_of(desk.farm(), &mut self.times, id, host, came);
        let Some(question) = question else { return };
        self.times.refit();
        let planned_us = self.times.planned_us(&question).unwrap_or(0);
        let is_whole = desk.farm().workunit(workunit).saved.is_empty();
        let what = (question, is_whole);
        self.running.begin(desk.now(), (workunit, host), what, planned_us);
    }

    /// A replica that others may have waited for has ended, or is gone.
    fn note_end(&mut self, now: Time) {
        if std::mem::take(&mut self.waits_for_try) {
            self.is_stale = true;
            self.next = Some(now);
        }
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>) {
        let has_room = |host: &HostIx| desk.room(*host) > 0;
        let hosts: Vec<_> = desk.farm().hosts().map(|(host, _)| host).filter(has_room).collect();
        hosts.into_iter().for_each(|host| self.serve(desk, host));
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

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::HostChanged(_) | Change::HostForgotten(_) => self.is_stale = true,
            Change::JobAdded(job) => {
                self.jobs.insert(job, now);
                self.is_stale = true;
            }
            Change::JobEnded(job) => {
                self.jobs.remove(&job);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                self.jobs.entry(unit.id.job).or_insert(now);
                self.is_stale |= self.plan.count(unit.id) != u32::from(unit.waiting);
                self.running.forget(farm, workunit, false);
                self.note_end(now);
            }
            Change::WorkunitEnded(workunit) => {
                self.running.forget(farm, workunit, true);
                self.note_end(now);
            }
            Change::Completed { workunit, host, took } => {
                if let Some(begun) = self.running.end(workunit, host).filter(|of| of.is_whole) {
                    let Begun { question, planned_us, .. } = begun;
                    let note =
                        |took: Span| self.times.note(now, &question, planned_us, took.as_micros());
                    self.is_stale |= took.is_some_and(note) && self.config.rule.looks_at_times();
                }
                self.note_end(now);
            }
            Change::JobTouched(_) | Change::DecidedBefore(_) | Change::CopyChanged { .. } => {}
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
            let is_empty = self.plan.queue(host).next().is_none();
            self.is_stale |= is_empty && self.plan.may_be_stuck();
        }
        self.is_stale |= self.config.rule.looks_at_times() && self.running.is_any_late(desk.now());
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
            let (times, running) = (&mut self.times, &mut self.running);
            self.plan = Plan::new(desk, self.config, &self.jobs, times, running);
            self.running.put_off(desk.now());
            (self.is_stale, self.waits_for_try) = (false, false);
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
        let is_next = |host| {
            let has_left = |job: &Job| farm.has_idle_left(host, job.ability);
            self.next_for(farm, host, has_left).is_some()
        };
        match asking.find(|(host, _)| is_next(*host) && !farm.is_full()) {
            Some((_, host)) => {
                let detail = format!("{} asks and has a queue", host.info.name);
                Err(Violation::new("plan-served", detail))
            }
            None => Ok(()),
        }
    }
}
