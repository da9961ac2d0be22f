//! Ours: least laxity first, under exact admission, and corrected where promises are in danger.

mod insurance;
mod reach;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use super::admission;
use super::book::{self, Book, Entry, Margin};
use super::survival::{Outlook, Survival};
use super::{Claim, fits};
use crate::farm::{Farm, HostIx};
use crate::{Change, Decline, Desk, Policy, Trigger, Violation, WaitReason};
use reach::Cores;

/// For how long a task that goes on beyond its prediction is let go on.
const MOMENT: Span = Span::from_secs(2);
/// Least time between two deals of its own accord, in microseconds.
const NEXT_LEAST_US: u64 = 100_000;
/// How often promises that may be in danger are looked at without a cause from outside.
const LOOK_EVERY: Span = Span::from_secs(30);
/// A running task keeps its core until one that waits has this part less laxity, at least.
const TURN_PART: u64 = 32;

/// How [`Gleaner`] is set.
#[derive(Debug, Clone, Copy)]
pub struct GleanerConfig {
    /// What is added to predicted times, in thousandths, as far as a job's time allows.
    pub margin_permille: u32,
    /// How much less laxity a waiting task has, at least, than a running one before it takes its
    /// core. A task whose laxity is less than that is thought to have none.
    pub turn: Span,
    /// Whether it does something about promises that are in danger.
    pub corrects: bool,
}

impl Default for GleanerConfig {
    fn default() -> Self {
        Self { margin_permille: 20, turn: Span::from_secs(1), corrects: true }
    }
}

/// Whole cores to the tasks that can wait least, among jobs whose promise a flow over all hosts
/// has shown to be possible.
///
/// A task's laxity is how long it could still wait and end in time, by its prediction. Least
/// laxity first meets every set of deadlines that can be met at all once all its tasks are there,
/// and needs no plan: what comes, goes or takes longer changes the order, not the rule. What a
/// task took, or has taken so far beyond its prediction, is expected of its siblings. A job that
/// goes on beyond its prediction goes on as long as the flow shows that the others can do without
/// its cores: a wrong prediction harms its own job alone. A job that is late comes last.
///
/// Hosts close, and promises come into danger. Then, in this order:
/// - Tasks begin on the hosts that are fastest for them, and of these on those that close least
///   often by the farm's own record; what cannot afford to begin anew has its choice first of all.
/// - A job that can no longer be done in time beside the others comes behind them, and is out of
///   reach: as few as possible are.
/// - A task that is likely to end too late gets a second replica, its insurance.
///
/// Source: M. L. Dertouzos and A. K. Mok, "Multiprocessor On-Line Scheduling of Hard-Real-Time
/// Tasks", 1989 (that least laxity first is optimal for tasks that are all there).
#[derive(Debug)]
pub struct Gleaner {
    config: GleanerConfig,
    book: Book,
    survival: Survival,
    /// Jobs that can no longer be done in time beside the others.
    lost: BTreeSet<JobId>,
    /// Jobs that were there before the first host came in this life of the broker: they are not lost
    /// before hosts had the time to come back.
    restored: BTreeSet<JobId>,
    has_met_host: bool,
    /// When it was asked to plan for the first time.
    began: Option<Time>,
    /// Until when hosts may yet come back that are counted on.
    awaits_until: Option<Time>,
    /// When it was last found which those are, where nothing has changed since that matters.
    sure_since: Option<Time>,
    looked_at: Option<Time>,
    /// Whether a task is in danger that could not be insured.
    has_dangers: bool,
    next: Option<Time>,
}

/// What tasks can be given, by host: cores that those before them do not have.
type Room = [(HostIx, u32)];

/// A task that has not ended, with what decides its place.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: WorkunitId,
    class: Class,
    /// How long it can wait, in microseconds; a running one as if it could wait one turn less.
    laxity_us: u64,
    on: Option<HostIx>,
    is_movable: bool,
    /// Whether it is late if it has to begin anew once more.
    is_last_try: bool,
}

/// Who comes before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It runs and would lose all that it did.
    Pinned,
    /// It is within its prediction and can wait no longer.
    Pressing,
    /// Its job goes on beyond its prediction.
    Overrun,
    /// It can wait.
    Patient,
    /// Its job goes on beyond its prediction, and others would be late for it.
    Refused,
    /// Its job can no longer be done in time.
    Lost,
    /// It is late.
    Late,
}

impl Gleaner {
    /// A fresh one.
    #[must_use]
    pub fn new(config: GleanerConfig) -> Self {
        Self {
            config,
            book: Book::default(),
            survival: Survival::default(),
            lost: BTreeSet::new(),
            restored: BTreeSet::new(),
            has_met_host: false,
            began: None,
            awaits_until: None,
            sure_since: None,
            looked_at: None,
            has_dangers: false,
            next: None,
        }
    }

    fn margin(&self) -> Margin {
        Margin { permille: self.config.margin_permille, ends_with_due: true }
    }

    /// How much less laxity a waiting task has than a running one of this laxity before it takes
    /// its core, in microseconds.
    fn turn_us(&self, laxity_us: u64) -> u64 {
        (laxity_us / TURN_PART).max(self.config.turn.as_micros())
    }

    /// Tasks in the order in which they get cores.
    fn candidates(&self, now: Time) -> Vec<Candidate> {
        let mut list = Vec::new();
        for (job, entry) in self.book.iter() {
            let until_us = entry.due.since(now).as_micros();
            let is_lost = self.lost.contains(&job);
            for (index, task) in entry.open().filter(|(_, task)| !task.is_held) {
                let spare_us = until_us.checked_sub(task.left_us(now));
                let runs = task.run.is_some();
                let class = if is_lost && until_us > 0 {
                    Class::Lost
                } else if runs && !entry.is_movable() {
                    Class::Pinned
                } else if until_us == 0 {
                    Class::Late
                } else if entry.is_overrun(now) {
                    Class::Overrun
                } else if spare_us.is_none_or(|spare_us| spare_us <= self.config.turn.as_micros()) {
                    Class::Pressing
                } else {
                    Class::Patient
                };
                let spare_us = spare_us.unwrap_or(0);
                let whole_us = if entry.is_movable() { 0 } else { task.expected_us() };
                list.push(Candidate {
                    id: WorkunitId { job, index },
                    class,
                    laxity_us: if runs {
                        spare_us.saturating_sub(self.turn_us(spare_us))
                    } else {
                        spare_us
                    },
                    on: task.run.map(|run| run.host),
                    is_movable: entry.is_movable(),
                    is_last_try: spare_us < whole_us,
                });
            }
        }
        list.sort_by_key(|task| (task.class, task.laxity_us, task.on.is_none(), task.id));
        list
    }

    /// Refuses cores for now to those that go on beyond their predictions, but for as many as the
    /// others can do without for a moment and be in time.
    fn refuse(&self, now: Time, cores: u32, list: &mut [Candidate]) {
        let is_overrun = |task: &&mut Candidate| task.class == Class::Overrun;
        let overrun = list.iter_mut().filter(is_overrun).count();
        if overrun == 0 || list.len() <= cores as usize {
            return;
        }
        let (from_us, moment_us) = (now.as_micros(), MOMENT.as_micros());
        let mut claims = self.book.claims(now, |entry| !entry.is_overrun(now) && entry.due > now);
        for claim in &mut claims {
            claim.work_us = (claim.work_us + moment_us).min(claim.due_us - from_us);
        }
        let due_us = from_us + moment_us;
        let most = u32::try_from(overrun).unwrap_or(cores).min(cores);
        let harmless = (1..=most).rev().find(|tasks| {
            claims.push(Claim { from_us, due_us, tasks: *tasks, work_us: moment_us });
            let fits = fits(cores, &claims).is_ok();
            claims.pop();
            fits
        });
        let harmless = harmless.unwrap_or(0) as usize;
        for task in list.iter_mut().filter(is_overrun).skip(harmless) {
            task.class = Class::Refused;
        }
        list.sort_by_key(|task| (task.class, task.laxity_us, task.on.is_none(), task.id));
    }

    /// Finds which jobs can no longer be done in time, where that may have changed, and not too often.
    fn find_lost(&mut self, desk: &Desk<'_>) {
        let now = desk.now();
        let is_soon = self.looked_at.is_some_and(|at| now < at + MOMENT);
        let is_old = self.sure_since.is_none_or(|at| {
            let is_overdue = self.awaits_until.is_some_and(|until| until <= now);
            is_overdue || (self.may_change_alone() && at + LOOK_EVERY <= now)
        });
        if !is_old || is_soon {
            return;
        }
        let back_by = self.began.unwrap_or(now) + reach::RETURN;
        if back_by <= now {
            self.restored.clear();
        }
        let cores = Cores::of(desk.farm(), now, desk.lane());
        let spared = |job| self.restored.contains(&job);
        self.lost = reach::out_of_reach(&self.book, now, cores, spared).into_iter().collect();
        let back_by = (!self.restored.is_empty()).then_some(back_by);
        self.awaits_until = back_by.into_iter().chain(cores.until).min();
        (self.sure_since, self.looked_at) = (Some(now), Some(now));
    }

    /// Whether jobs may come out of reach, or within it, by the time that goes by alone.
    fn may_change_alone(&self) -> bool {
        !self.lost.is_empty() || self.book.iter().any(|(_, entry)| entry.is_forecast)
    }

    fn deal(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        self.book.learn(now);
        let mut room: Vec<(HostIx, u32)> = desk
            .farm()
            .hosts()
            .filter(|(_, host)| host.connected)
            .map(|(host, _)| (host, desk.reach(host).whole_cores()))
            .collect();
        let cores: u32 = room.iter().map(|(_, slots)| slots).sum();
        let outlook = self.config.corrects.then(|| self.survival.at(now));
        if let Some(outlook) = &outlook {
            outlook.order(&mut room);
            self.find_lost(desk);
            insurance::trim(&mut self.book, desk, |id| self.lost.contains(&id.job));
        }
        let mut list = self.candidates(now);
        self.refuse(now, cores, &mut list);
        let (first, rest) = list.split_at(list.len().min(cores as usize));
        for task in rest.iter().filter(|task| task.on.is_some() && task.is_movable) {
            self.book.stop(desk, task.id);
        }
        for task in first.iter().chain(rest.iter().filter(|task| !task.is_movable)) {
            let at = room.iter().position(|(host, _)| task.on == Some(*host));
            if let Some(at) = at {
                room[at].1 = room[at].1.saturating_sub(1);
            }
        }
        let mut in_the_way: Vec<&Candidate> = rest
            .iter()
            .filter(|task| task.class == Class::Lost && task.on.is_some() && !task.is_movable)
            .collect();
        for task in first.iter().filter(|task| task.on.is_none()) {
            if self.start(desk, task, &mut room) || task.class >= Class::Refused {
                continue;
            }
            // What is late in any case keeps no core from what is not.
            let is_full = room.iter().all(|(_, slots)| *slots == 0);
            if let Some(lost) = in_the_way.pop_if(|_| is_full) {
                self.book.stop(desk, lost.id);
                let at = room.iter().position(|(host, _)| lost.on == Some(*host));
                at.into_iter().for_each(|at| room[at].1 += 1);
                let _ = self.start(desk, task, &mut room);
            }
        }
        if let Some(outlook) = &outlook {
            self.insure(desk, outlook, &mut room);
        }
        let turn = Self::next_turn(now, first, rest);
        self.next = turn.into_iter().chain(self.next_look(now)).min();
    }

    /// Insures tasks in cores that no task wants: `room`, less what insurance replicas have of it.
    fn insure(&mut self, desk: &mut Desk<'_>, outlook: &Outlook, room: &mut Room) {
        let insured = self.book.iter().flat_map(|(_, entry)| entry.open());
        for run in insured.filter_map(|(_, task)| task.insurance) {
            let at = room.iter().position(|(host, _)| *host == run.host);
            at.into_iter().for_each(|at| room[at].1 = room[at].1.saturating_sub(1));
        }
        let is_lost = |id: WorkunitId| self.lost.contains(&id.job);
        self.has_dangers = insurance::insure(&mut self.book, desk, outlook, room, is_lost);
    }

    /// Has a task run on the first host with room, the fastest kinds of host for it first; `false`
    /// where no host may have it. What is idle comes first, for nobody has to give way there, unless
    /// the task has only this one try.
    fn start(&mut self, desk: &mut Desk<'_>, task: &Candidate, room: &mut Room) -> bool {
        let mut open: Vec<usize> = (0..room.len()).filter(|at| room[*at].1 > 0).collect();
        // Where there is most room, a lane before this one is the least likely to need this core.
        open.sort_by_key(|at| Reverse(room[*at].1));
        let spec = desk.farm().job(task.id.job).map(|job| &job.spec);
        if let Some(spec) = spec.filter(|spec| spec.profile.run_time_us.len() > 1) {
            let info = |at: &usize| &desk.farm().host(room[*at].0).info;
            open.sort_by_cached_key(|at| book::time_on_us(spec, info(at)));
        }
        if !(task.is_last_try && self.config.corrects) {
            open.sort_by_key(|at| desk.farm().host(room[*at].0).free() == 0);
        }
        let at = open
            .iter()
            .copied()
            .find(|at| desk.may_hold_more() && self.book.start(desk, task.id, room[*at].0));
        let at = at.or_else(|| {
            open.into_iter().find(|at| {
                let host = room[*at].0;
                let is_able = desk.farm().is_able(host, task.id.job);
                let insured = insurance::last_on(&self.book, host).filter(|_| is_able);
                let Some(insured) = insured else { return false };
                self.book.end_insurance(desk, insured);
                desk.may_hold_more() && self.book.start(desk, task.id, host)
            })
        });
        at.map(|at| room[at].1 -= 1).is_some()
    }

    /// When promises are to be looked at again without a cause from outside.
    fn next_look(&self, now: Time) -> Option<Time> {
        if !self.config.corrects {
            return None;
        }
        let is_tried = |entry: &Entry| {
            entry.open().any(|(_, task)| {
                let has_one_try = task.run.is_some() && !entry.is_movable();
                task.is_held || task.insurance.is_some() || has_one_try
            })
        };
        let is_watched =
            self.may_change_alone() || self.book.iter().any(|(_, entry)| is_tried(entry));
        let doubt = self.sure_since.is_none().then(|| self.looked_at.unwrap_or(now) + MOMENT);
        let overrun = insurance::next_danger(&self.book, now);
        let look = is_watched.then_some(now + LOOK_EVERY);
        let earliest = self.looked_at.unwrap_or(now) + MOMENT;
        let awaits = self.awaits_until.map(|until| until.max(earliest));
        look.into_iter().chain(doubt).chain(overrun).chain(awaits).min()
    }

    /// When the first that waits will have become more urgent than the last that runs.
    fn next_turn(now: Time, first: &[Candidate], rest: &[Candidate]) -> Option<Time> {
        let waiting = rest.iter().filter(|task| task.class != Class::Late);
        let least = waiting.map(|task| task.laxity_us).min()?;
        let is_overrun = |task: &Candidate| matches!(task.class, Class::Overrun | Class::Refused);
        if first.iter().chain(rest).any(is_overrun) {
            return Some(now + MOMENT);
        }
        // What cannot be interrupted makes no room, however long it could wait.
        let others = first.iter().filter(|task| task.class != Class::Pinned);
        let most = others.map(|task| task.laxity_us).max()?;
        let after_us = least.saturating_sub(most).max(NEXT_LEAST_US);
        Some(now + Span::from_micros(after_us))
    }
}

impl Policy for Gleaner {
    fn name(&self) -> &'static str {
        "gleaner"
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        admission::check(&self.book, now, farm, spec, self.margin())
    }

    fn left_us(&self, now: Time, job: JobId) -> Vec<u64> {
        self.book.all_left_us(now, job)
    }

    fn expected_end(&self, farm: &Farm, job: JobId) -> Option<Time> {
        self.book.expected_end(farm, job)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::HostChanged(host) => {
                self.has_met_host = true;
                self.survival.note(now, farm, host);
            }
            Change::HostForgotten(host) => self.survival.forget(host),
            Change::JobAdded(job) if !self.has_met_host => drop(self.restored.insert(job)),
            Change::JobEnded(job) => {
                self.lost.remove(&job);
                self.restored.remove(&job);
            }
            _ => {}
        }
        if self.book.observe(now, farm, change, self.margin()) {
            self.sure_since = None;
            self.next = Some(now);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.began.get_or_insert(desk.now());
        if self.book.is_empty() {
            (self.next, self.has_dangers) = (None, false);
            return;
        }
        match trigger {
            Trigger::Deadline => self.deal(desk),
            Trigger::Host(_) | Trigger::Work => {
                if self.book.has_waiting() || self.has_dangers {
                    self.next = Some(desk.now());
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn insured_on(&self, workunit: WorkunitId) -> Option<HostIx> {
        let task = self.book.get(workunit.job)?.tasks.get(workunit.index as usize)?;
        task.insurance.map(|run| run.host)
    }

    fn is_out_of_reach(&self, job: JobId) -> bool {
        self.lost.contains(&job)
    }

    fn explain(&self, _farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        let open = self.book.iter().flat_map(|(_, entry)| entry.open());
        let tasks = open.filter(|(_, task)| task.run.is_some()).count();
        let lost = self.lost.contains(&workunit.job).then_some(WaitReason::OutOfReach);
        lost.into_iter().chain([WaitReason::MoreUrgent { tasks }]).collect()
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.book.check(farm, lane)
    }
}
