//! Ours: least laxity first, under exact admission.

use std::cmp::Reverse;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use super::admission;
use super::book::{Book, Margin};
use super::{Claim, fits};
use crate::farm::{Farm, HostIx};
use crate::{Change, Decline, Desk, Policy, Trigger, Violation, WaitReason};

/// For how long a task that goes on beyond its prediction is let go on.
const MOMENT: Span = Span::from_secs(2);
/// Least time between two deals of its own accord, in microseconds.
const NEXT_LEAST_US: u64 = 100_000;
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
}

impl Default for GleanerConfig {
    fn default() -> Self {
        Self { margin_permille: 20, turn: Span::from_secs(1) }
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
/// Source: M. L. Dertouzos and A. K. Mok, "Multiprocessor On-Line Scheduling of Hard-Real-Time
/// Tasks", 1989 (that least laxity first is optimal for tasks that are all there).
#[derive(Debug)]
pub struct Gleaner {
    config: GleanerConfig,
    book: Book,
    next: Option<Time>,
}

/// A task that has not ended, with what decides its place.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: WorkunitId,
    class: Class,
    /// How long it can wait, in microseconds; a running one as if it could wait one turn less.
    laxity_us: u64,
    on: Option<HostIx>,
    is_movable: bool,
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
    /// It is late.
    Late,
}

impl Gleaner {
    /// A fresh one.
    #[must_use]
    pub fn new(config: GleanerConfig) -> Self {
        Self { config, book: Book::default(), next: None }
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
            for (index, task) in entry.open().filter(|(_, task)| !task.is_held) {
                let spare_us = until_us.checked_sub(task.left_us(now));
                let runs = task.run.is_some();
                let class = if runs && !entry.is_movable() {
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

    fn deal(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        self.book.learn(now);
        let mut list = self.candidates(now);
        let mut room: Vec<(HostIx, u32)> = desk
            .farm()
            .hosts()
            .filter(|(_, host)| host.connected)
            .map(|(host, _)| (host, desk.reach(host).whole_cores()))
            .collect();
        let cores: u32 = room.iter().map(|(_, slots)| slots).sum();
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
        for task in first.iter().filter(|task| task.on.is_none()) {
            if !desk.may_hold_more() {
                break;
            }
            // What is idle first: nobody has to give way for it.
            let _ = self.start(desk, task.id, &mut room, true)
                || self.start(desk, task.id, &mut room, false);
        }
        self.next = Self::next_turn(now, first, rest);
    }

    /// Has a task run on the host with most room, among those with an idle slot or among the others;
    /// `false` where no host may have it. Where there is most room, a lane before this one is the
    /// least likely to need the core of this task.
    fn start(
        &mut self,
        desk: &mut Desk<'_>,
        id: WorkunitId,
        room: &mut [(HostIx, u32)],
        on_idle: bool,
    ) -> bool {
        let is_idle = |host| desk.farm().host(host).free() > 0;
        let open =
            |(_, (host, slots)): &(usize, &(HostIx, u32))| *slots > 0 && is_idle(*host) == on_idle;
        let mut open: Vec<usize> = room.iter().enumerate().filter(open).map(|(at, _)| at).collect();
        open.sort_by_key(|at| Reverse(room[*at].1));
        let started = open.into_iter().find(|at| self.book.start(desk, id, room[*at].0));
        started.map(|at| room[at].1 -= 1).is_some()
    }

    /// When the first that waits will have become more urgent than the last that runs.
    fn next_turn(now: Time, first: &[Candidate], rest: &[Candidate]) -> Option<Time> {
        let waiting = rest.iter().filter(|task| task.class != Class::Late);
        let least = waiting.map(|task| task.laxity_us).min()?;
        let is_overrun = |task: &Candidate| matches!(task.class, Class::Overrun | Class::Refused);
        if first.iter().chain(rest).any(is_overrun) {
            return Some(now + MOMENT);
        }
        let most = first.iter().map(|task| task.laxity_us).max()?;
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
        if self.book.observe(now, farm, change, self.margin()) {
            self.next = Some(now);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        if self.book.is_empty() {
            self.next = None;
            return;
        }
        match trigger {
            Trigger::Deadline => self.deal(desk),
            Trigger::Host(_) | Trigger::Work => {
                if self.book.has_waiting() {
                    self.next = Some(desk.now());
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        let open = self.book.iter().flat_map(|(_, entry)| entry.open());
        let tasks = open.filter(|(_, task)| task.run.is_some()).count();
        vec![WaitReason::MoreUrgent { tasks }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.book.check(farm, lane)
    }
}
