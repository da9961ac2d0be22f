//! Our own scheduler of the background lane.
//!
//! - As few replicas as the error allows that a job names (the rules are in the core, not here).
//!   Whether a host's next result is checked is drawn when it asks. Hosts that are checked are
//!   paired with each other, so that one replica more checks two hosts, and both begin at about
//!   the same time: neither can tell its replica from one that is alone.
//! - A host that was caught more than once runs one thing at a time until it has proven itself.
//! - What is begun comes before what is untouched, the oldest first, on whichever side; a replica
//!   that others wait for is not given to a host that will probably not stay idle long enough for
//!   it, where there is something else for that host.
//! - A host that finds nothing else computes again what waits for later checks of its hosts, so
//!   that the end of the work does not wait for them.

mod idle;

use std::collections::BTreeSet;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use self::idle::IdleTimes;
use super::chance::Chance;
use super::place;
use super::turns::Turn;
use super::{Backlog, Change, Policy, PolicyName, Trigger, Turns};
use crate::explain::WaitReason;
use crate::farm::{Begins, Farm, Host, HostIx, Job, Rule, Workunit, WorkunitIx};
use crate::{Desk, Violation};

/// Where more checks wait than this, hosts do them that are not to be checked themselves.
const CHECKS_WAITING_MAX: usize = 16;
/// Leaves 16 bits of a random number: where the tries at a workunit are counted from.
const ATTEMPT_SHIFT: u32 = 48;

/// Adaptive replication with results that are final after later checks.
///
/// # Invariants
/// - `begun` and `checks` hold exactly the workunits with a replica waiting: `checks` those of
///   which another one is known and where that makes a check.
/// - `doubtful` holds exactly those that are decided provisionally and of which no replica waits
///   or runs.
#[derive(Default)]
pub struct Gleaner {
    untouched: Turns,
    begun: Backlog,
    checks: Backlog,
    doubtful: BTreeSet<WorkunitId>,
    /// Workunits that changed while requests were standing.
    fresh: Vec<WorkunitIx>,
    /// Whether there may be untouched work for standing requests.
    untouched_is_fresh: bool,
    idle: IdleTimes,
    chance: Chance,
}

impl Gleaner {
    /// Which results are checked depends on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), ..Self::default() }
    }

    /// One replica for one host, or `false` where there is none for it.
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let entry = desk.farm().host(host);
        if !may_ask(entry) {
            return false;
        }
        let is_checked = self.chance.one_in(entry.standing.reports_per_check(desk.now()));
        let takes_check = is_checked || self.checks.len() >= CHECKS_WAITING_MAX;
        let first = |of: &mut Backlog| of.first_for(desk, host).map(|(_, unit)| unit);
        let check = takes_check.then(|| first(&mut self.checks)).flatten();
        let found = check.or_else(|| first(&mut self.begun));
        if let Some(workunit) = found
            && self.will_finish(desk, workunit, host)
        {
            return self.start_begun(desk, workunit, host, is_checked);
        }
        if self.start_untouched(desk, host, is_checked) {
            return true;
        }
        let check = || self.checks.first_for(desk, host).map(|(_, unit)| unit);
        match found.or_else(check) {
            Some(workunit) => self.start_begun(desk, workunit, host, is_checked),
            None => self.start_doubtful(desk, host) || self.start_refused(desk, host),
        }
    }

    /// Starts what the host has refused, where nobody else is left for it.
    fn start_refused(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let begun = self.begun.last_resort(desk, host);
        let found = begun.or_else(|| self.checks.last_resort(desk, host));
        found.is_some_and(|workunit| self.start(desk, workunit, host))
    }

    /// Starts what waits; where it would be alone and is to be checked, it gets a second replica.
    fn start_begun(
        &mut self,
        desk: &mut Desk<'_>,
        workunit: WorkunitIx,
        host: HostIx,
        is_checked: bool,
    ) -> bool {
        let unit = desk.farm().workunit(workunit);
        let is_paired = is_checked && self.is_worth_a_pair(desk, unit.id.job, host);
        if is_paired && unit.rule == Rule::Credible && !is_check(unit) {
            let doubled = desk.duplicate(workunit);
            debug_assert!(doubled.is_ok(), "a workunit without votes has few replicas");
        }
        self.start(desk, workunit, host)
    }

    /// Whether the host will probably stay idle for as long as the workunit takes on it.
    fn will_finish(&self, desk: &Desk<'_>, workunit: WorkunitIx, host: HostIx) -> bool {
        self.will_finish_one_of(desk, desk.farm().workunit(workunit).id.job, host)
    }

    /// Whether another host should begin the same at the same time: not where it would only wait
    /// for one that will probably not finish. What that one reports after all is checked then, or
    /// it has proven that it finishes.
    fn is_worth_a_pair(&self, desk: &Desk<'_>, job: JobId, host: HostIx) -> bool {
        desk.farm().host(host).standing.is_proven() || self.will_finish_one_of(desk, job, host)
    }

    fn will_finish_one_of(&self, desk: &Desk<'_>, job: JobId, host: HostIx) -> bool {
        let farm = desk.farm();
        let entry = farm.host(host);
        let spec = farm.job(job).map(|job| &job.spec);
        let expected = entry.info.kind.as_ref().zip(spec).and_then(|(kind, spec)| {
            let micros = spec.profile.run_time_us.get(kind)?;
            Some(Span::from_micros(*micros))
        });
        expected.is_none_or(|span| self.idle.will_last(desk.now(), host, entry, span))
    }

    /// Starts a replica of a workunit that has one waiting.
    fn start(&mut self, desk: &mut Desk<'_>, workunit: WorkunitIx, host: HostIx) -> bool {
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "an eligible workunit and a host with a free slot");
        self.file(workunit, desk.farm().workunit(workunit));
        started.is_ok()
    }

    /// Puts a workunit where it belongs.
    fn file(&mut self, workunit: WorkunitIx, unit: &Workunit) {
        let (of, other) = if is_check(unit) {
            (&mut self.checks, &mut self.begun)
        } else {
            (&mut self.begun, &mut self.checks)
        };
        other.remove(unit.ability, workunit);
        of.update(workunit, unit, place(unit.id));
    }

    fn start_untouched(&mut self, desk: &mut Desk<'_>, host: HostIx, is_checked: bool) -> bool {
        let Some(workunit) = self.open_for(desk, host, is_checked) else { return false };
        let started = self.start(desk, workunit, host);
        if desk.farm().workunit(workunit).waiting > 0 && self.untouched_is_fresh {
            self.fresh.push(workunit);
        }
        started
    }

    /// The next untouched workunit that this host can run.
    fn open_for(
        &mut self,
        desk: &mut Desk<'_>,
        host: HostIx,
        is_checked: bool,
    ) -> Option<WorkunitIx> {
        self.untouched.refresh(desk);
        let farm = desk.farm();
        let job = self.untouched.first(|ability| desk.may_begin(host, ability))?;
        let mut begins = self.begins(&farm.job(job)?.spec);
        if begins.rule == Rule::Credible {
            let is_paired = is_checked && self.is_worth_a_pair(desk, job, host);
            begins.replicas = begins.replicas.max(if is_paired { 2 } else { 1 });
            begins.attempts = (self.chance.next() >> ATTEMPT_SHIFT) as u32;
        }
        let workunit = desk.open_as(job, begins)?;
        let job = desk.farm().job(job)?;
        self.untouched.served(Turn::of(job));
        if !job.has_untouched() {
            self.untouched.remove(Turn::of(job));
        }
        Some(workunit)
    }

    /// Computes the oldest provisional result again that this host has no part in.
    fn start_doubtful(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let farm = desk.farm();
        let mut open = self.doubtful.iter().filter_map(|id| farm.find(*id));
        let found = open.find(|workunit| farm.may_compute(*workunit, host));
        found.is_some_and(|workunit| self.double(desk, workunit, host))
    }

    fn double(&mut self, desk: &mut Desk<'_>, workunit: WorkunitIx, host: HostIx) -> bool {
        self.doubtful.remove(&desk.farm().workunit(workunit).id);
        let doubled = desk.duplicate(workunit);
        debug_assert!(doubled.is_ok(), "a workunit with the most replicas is given up");
        doubled.is_ok() && self.start(desk, workunit, host)
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.may_serve(host) && self.serve(desk, host) {}
    }

    /// Gives what changed to standing requests, the least first.
    fn serve_fresh(&mut self, desk: &mut Desk<'_>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_cached_key(|workunit| {
            let unit = desk.farm().workunit(*workunit);
            (is_check(unit), unit.id)
        });
        fresh.dedup();
        for workunit in fresh {
            while desk.may_hold_more()
                && let Some(host) = desk.farm().first_asking_for(workunit, None, may_ask)
                && self.start(desk, workunit, host)
            {}
            let id = desk.farm().workunit(workunit).id;
            if self.doubtful.contains(&id)
                && desk.may_hold_more()
                && let Some(host) = desk.farm().first_asking_to_compute(workunit, may_ask)
            {
                self.double(desk, workunit, host);
            }
        }
    }

    /// Gives untouched workunits to standing requests. Where there are none for a host, there
    /// are none for the hosts like it.
    fn serve_untouched(&mut self, desk: &mut Desk<'_>) {
        let mut next = desk.farm().first_asking(may_ask);
        while let Some(host) = next
            && desk.may_hold_more()
        {
            self.serve_all(desk, host);
            let farm = desk.farm();
            let entry = farm.host(host);
            let is_served = !entry.has_room() || !may_ask(entry);
            let like = is_served.then(|| farm.first_asking_like(host, may_ask)).flatten();
            next = like.or_else(|| farm.first_asking_behind(host, may_ask));
        }
    }
}

impl Policy for Gleaner {
    fn name(&self) -> &'static str {
        PolicyName::Gleaner.as_str()
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(_) | Change::JobTouched(_) | Change::JobEnded(_) => {
                self.untouched_is_fresh |= self.untouched.observe(farm, change);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                self.file(workunit, unit);
                if farm.is_doubtful(unit) {
                    self.doubtful.insert(unit.id);
                } else {
                    self.doubtful.remove(&unit.id);
                }
                if farm.anyone_asks() {
                    self.fresh.push(workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                let unit = farm.workunit(workunit);
                self.begun.remove(unit.ability, workunit);
                self.checks.remove(unit.ability, workunit);
                self.doubtful.remove(&unit.id);
                self.fresh.retain(|fresh| *fresh != workunit);
                self.untouched_is_fresh |= farm.is_full();
            }
            Change::HostChanged(host) => self.idle.changed(now, host, farm.host(host)),
            Change::HostForgotten(host) => {
                self.begun.forget_host(host);
                self.checks.forget_host(host);
                self.idle.forget(host);
            }
            Change::DecidedBefore(_) | Change::CopyChanged { .. } | Change::Completed { .. } => {}
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
        Begins::credible(spec)
    }

    fn explain(&self, farm: &Farm, id: WorkunitId) -> Vec<WaitReason> {
        let open = farm.find(id).map(|workunit| farm.workunit(workunit));
        match open {
            None => vec![WaitReason::InTurn],
            Some(_) => vec![WaitReason::BegunFirst { begun: self.begun.len() + self.checks.len() }],
        }
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let of_lane = |unit: &Workunit| farm.lane_of(unit.id.job) == Some(lane);
        self.begun.check("begun", farm, |unit: &Workunit| {
            let listed = unit.waiting > 0 && !is_check(unit) && of_lane(unit);
            listed.then(|| place(unit.id))
        })?;
        self.checks.check("checks", farm, |unit: &Workunit| {
            let listed = unit.waiting > 0 && is_check(unit) && of_lane(unit);
            listed.then(|| place(unit.id))
        })?;
        let untouched = |job: &Job| job.spec.lane == lane && job.has_untouched();
        if let Some(job) = self.untouched.difference(farm, untouched) {
            return Err(Violation::new("queue-members", format!("untouched and {job} differ")));
        }
        let mut expected = 0;
        for (workunit, unit) in farm.workunits().filter(|(_, unit)| of_lane(unit)) {
            let is_doubtful = farm.is_doubtful(unit);
            expected += usize::from(is_doubtful);
            if self.doubtful.contains(&unit.id) != is_doubtful {
                let detail = format!("{} is doubtful: {is_doubtful}", unit.id);
                return Err(Violation::new("queue-members", detail));
            }
            let may_serve = is_doubtful && !farm.is_lane_full(lane);
            let mut asking = farm.hosts().filter(|_| may_serve).filter(|(_, host)| asks(host));
            if let Some((_, host)) = asking.find(|(host, _)| farm.may_compute(workunit, *host)) {
                let name = &host.info.name;
                let detail = format!("{} is doubtful and {name} asks", unit.id);
                return Err(Violation::new("nobody-idles", detail));
            }
        }
        if self.doubtful.len() != expected {
            let detail = format!("{} are doubtful, not {expected}", self.doubtful.len());
            return Err(Violation::new("queue-members", detail));
        }
        super::check_nobody_idles(farm, lane, |_| None, may_ask)
    }
}

/// Whether a replica that waits makes a check of a workunit, because another is known.
fn is_check(unit: &Workunit) -> bool {
    let others = usize::from(unit.waiting) + unit.pending.len() + unit.reported();
    unit.rule == Rule::Credible && others > 1
}

/// Whether a host may be given something beside what it runs.
fn may_ask(host: &Host) -> bool {
    !host.is_held_back()
}

/// Whether a host has a request that is not held back.
fn asks(host: &Host) -> bool {
    host.has_room() && may_ask(host)
}
