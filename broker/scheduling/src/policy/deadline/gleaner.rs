//! Ours: least laxity first, under exact admission.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Share, Span, Time, WorkunitId};

use super::admission::{self, Shortage};
use super::book::Book;
use crate::farm::{Farm, HostIx};
use crate::{Change, Desk, Policy, Trigger, Violation, WaitReason};

/// How [`Gleaner`] is set.
#[derive(Debug, Clone, Copy)]
pub struct GleanerConfig {
    /// What is added to predicted times, in thousandths.
    pub margin_permille: u32,
    /// How much less laxity a waiting task has than a running one before it takes its core: so
    /// long tasks of equal urgency take turns, and no shorter.
    pub turn: Span,
}

impl Default for GleanerConfig {
    fn default() -> Self {
        Self { margin_permille: 0, turn: Span::from_secs(20) }
    }
}

/// Whole cores to the tasks that can wait least, among jobs whose promise a flow over all hosts
/// has shown to be possible.
///
/// A task's laxity is how long it could still wait and end in time, by its prediction. Least
/// laxity first meets every set of deadlines that can be met at all once all its tasks are there,
/// and needs no plan: what comes, goes or takes longer changes the order, not the rule. A task
/// that goes on beyond its prediction keeps what is left to it by the tasks that are within
/// theirs and cannot wait: a wrong prediction harms its own job first. A job that is late
/// already comes last.
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
    /// It has gone on beyond its prediction.
    Overrun,
    /// It can wait.
    Patient,
    /// It is late.
    Late,
}

impl Gleaner {
    /// A fresh one.
    #[must_use]
    pub fn new(config: GleanerConfig) -> Self {
        Self { config, book: Book::default(), next: None }
    }

    /// Tasks in the order in which they get cores.
    fn candidates(&self, now: Time) -> Vec<Candidate> {
        let turn_us = self.config.turn.as_micros();
        let mut list = Vec::new();
        for (job, entry) in self.book.iter() {
            let until_us = entry.due.since(now).as_micros();
            for (index, task) in entry.open() {
                let spare_us = until_us.checked_sub(task.left_us(now));
                let runs = task.run.is_some();
                let class = if runs && !entry.is_movable() {
                    Class::Pinned
                } else if until_us == 0 {
                    Class::Late
                } else if task.is_overrun(now) {
                    Class::Overrun
                } else if spare_us.is_none_or(|spare_us| spare_us <= turn_us) {
                    Class::Pressing
                } else {
                    Class::Patient
                };
                let spare_us = spare_us.unwrap_or(0);
                list.push(Candidate {
                    id: WorkunitId { job, index },
                    class,
                    laxity_us: if runs { spare_us.saturating_sub(turn_us) } else { spare_us },
                    on: task.run.map(|run| run.host),
                    is_movable: entry.is_movable(),
                });
            }
        }
        list.sort_by_key(|task| (task.class, task.laxity_us, task.on.is_none(), task.id));
        list
    }

    fn deal(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        let list = self.candidates(now);
        let mut room: Vec<(HostIx, u32)> = desk
            .farm()
            .hosts()
            .filter(|(_, host)| host.connected)
            .map(|(host, entry)| (host, entry.fragment.slots))
            .collect();
        let cores: u32 = room.iter().map(|(_, slots)| slots).sum();
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
            let open = room.iter_mut().filter(|(_, slots)| *slots > 0);
            for (host, slots) in open {
                if self.book.start(desk, task.id, *host, Share::WHOLE) {
                    *slots -= 1;
                    break;
                }
            }
        }
        self.next = Self::next_turn(now, first, rest);
    }

    /// When the first that waits will have become more urgent than the last that runs.
    fn next_turn(now: Time, first: &[Candidate], rest: &[Candidate]) -> Option<Time> {
        let waiting = rest.iter().filter(|task| task.class != Class::Late);
        let least = waiting.map(|task| task.laxity_us).min()?;
        let most = first.iter().map(|task| task.laxity_us).max()?;
        let after_us = least.saturating_sub(most).max(1_000_000);
        Some(now + Span::from_micros(after_us))
    }
}

impl Policy for Gleaner {
    fn name(&self) -> &'static str {
        "gleaner"
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), String> {
        let margin = self.config.margin_permille;
        admission::check(&self.book, now, farm, spec, margin).map_err(|Shortage(why)| why)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if self.book.observe(now, farm, change, self.config.margin_permille) {
            self.next = Some(now);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        match trigger {
            Trigger::Deadline => self.deal(desk),
            Trigger::Host(_) | Trigger::Work => self.next = Some(desk.now()),
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
