//! Ours: least laxity first, under exact admission, and corrected where promises are in danger.

mod deal;
mod insurance;
mod reach;
mod room;

use std::collections::BTreeSet;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use super::admission;
use super::book::{Book, Entry};
use super::estimate::Margin;
use super::survival::Survival;
use crate::farm::{Farm, HostIx};
use crate::{Change, Decline, Desk, Policy, Trigger, Violation, WaitReason};
use reach::Cores;

/// For how long a task that goes on beyond its prediction is let go on.
const MOMENT: Span = Span::from_secs(2);
/// How often promises that may be in danger are looked at without a cause from outside.
const LOOK_EVERY: Span = Span::from_secs(30);

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
/// its cores: a wrong prediction harms its own job alone. A job that is late comes last. Tasks that
/// take several cores have them on one host, and last as much shorter.
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
        task.second().map(|run| run.host)
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
