//! The published scheduler.

use std::collections::{BTreeMap, VecDeque};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use crate::explain::WaitReason;
use crate::farm::Farm;
use crate::policy::visualization::TestRun;
use crate::policy::visualization::board::{Arrived, Board, Task};
use crate::policy::visualization::catalogue::ChunkIx;
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Violation};

/// Tasks by the chunk that they read; those that read none have a place of their own.
type ByChunk = BTreeMap<Option<ChunkIx>, VecDeque<Task>>;

/// Every ω, all interactive tasks that came are assigned, those of one chunk to one node; then
/// batch tasks, to nodes that have their chunk and are free before the next cycle; then others,
/// to nodes that have had no interactive task for ε.
///
/// Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
/// Visualization Services using GPU Clusters", 2012, Algorithm 1 and Section V.
///
/// Deviations: the loop of lines 25 to 30 is left where line 26 does not hold, because it would
/// never end; hash tables are ordered by chunk, and nodes that are equally good are taken in
/// their order, so that a run can be repeated; what came back from a lost node goes to the node
/// that is expected to be done with it first; a cycle without tasks is left out.
pub struct Ours {
    omega: Span,
    board: Board,
    /// `Q_J`: what came since the last cycle.
    arrived: Vec<Arrived>,
    /// `H_B`: batch tasks that are held.
    batch: ByChunk,
    /// When a node was last expected to be done with an interactive task.
    interactive_until: Vec<Time>,
    /// When the next cycle begins.
    due: Option<Time>,
}

impl Ours {
    /// A fresh one with this scheduling cycle ω.
    #[must_use]
    pub fn new(run: TestRun, omega: Span) -> Self {
        Self {
            omega,
            board: Board::new(run),
            arrived: Vec::new(),
            batch: BTreeMap::new(),
            interactive_until: Vec::new(),
            due: None,
        }
    }

    /// The procedure `Schedule(Q_J)`.
    fn schedule(&mut self, now: Time) {
        let next = now + self.omega; // line 1
        self.interactive_until.resize(self.board.node_count(), Time::ZERO);
        let interactive = self.decompose(); // lines 2 to 7
        self.schedule_interactive(now, interactive);
        self.schedule_cached_batch(now, next);
        self.schedule_other_batch(now, next);
    }

    fn decompose(&mut self) -> ByChunk {
        let mut interactive = ByChunk::new();
        for of in std::mem::take(&mut self.arrived) {
            let tasks = if of.session.is_some() { &mut interactive } else { &mut self.batch };
            for index in 0..of.tasks {
                let task = self.board.task(&of, index);
                tasks.entry(task.chunk).or_default().push_back(task);
            }
        }
        interactive
    }

    /// Lines 8 to 15.
    fn schedule_interactive(&mut self, now: Time, interactive: ByChunk) {
        let tables = &self.board.tables;
        let is_cached =
            |chunk: &Option<ChunkIx>| chunk.is_none_or(|chunk| tables.holder_count(chunk) > 0);
        let (cached, mut other): (Vec<_>, Vec<_>) =
            interactive.into_iter().partition(|(chunk, _)| is_cached(chunk));
        other.sort_by_key(|(chunk, _)| chunk.map(|chunk| tables.estimate(chunk)));
        for (chunk, tasks) in cached.into_iter().chain(other) {
            let tables = &self.board.tables;
            let done =
                |node: &usize| tables.available(*node).max(now) + tables.predicted(chunk, *node);
            let Some(node) = self.board.up().min_by_key(done) else {
                tasks.into_iter().for_each(|task| self.board.postpone(task));
                continue;
            };
            for task in tasks {
                self.board.assign(now, task, node);
            }
            self.interactive_until[node] = self.board.tables.available(node);
        }
    }

    /// Lines 16 to 22.
    fn schedule_cached_batch(&mut self, now: Time, next: Time) {
        for node in 0..self.board.node_count() {
            let tables = &self.board.tables;
            if !self.board.is_up(node) || tables.available(node) >= next {
                continue;
            }
            let mut cached: Vec<_> = tables.kept(node).map(Some).chain([None]).collect();
            cached.retain(|chunk| self.batch.contains_key(chunk));
            cached.sort_unstable();
            for chunk in cached {
                while self.board.tables.available(node) < next
                    && let Some(task) = self.pop(chunk)
                {
                    self.board.assign(now, task, node);
                }
            }
        }
    }

    /// Lines 23 to 31.
    fn schedule_other_batch(&mut self, now: Time, next: Time) {
        let tables = &self.board.tables;
        let mut nodes = 0..self.board.node_count();
        if !nodes.any(|node| self.board.is_up(node) && tables.available(node) < next) {
            return;
        }
        let mut order: Vec<_> = self.batch.keys().copied().collect();
        order.sort_by_key(|chunk| chunk.map_or(0, |chunk| tables.holder_count(chunk)));
        let mut order = order.into_iter().peekable();
        for node in 0..self.board.node_count() {
            while self.board.is_up(node)
                && self.board.tables.available(node) < next
                && let Some(&chunk) = order.peek()
            {
                let tables = &self.board.tables;
                let estimate = chunk.map_or(tables.render(), |chunk| tables.estimate(chunk));
                let epsilon = Span::from_micros(estimate.as_micros() / 2);
                if now.since(self.interactive_until[node]) <= epsilon {
                    break;
                }
                match self.pop(chunk) {
                    Some(task) => self.board.assign(now, task, node),
                    None => drop(order.next()),
                }
            }
        }
    }

    /// The next held batch task on a chunk.
    fn pop(&mut self, chunk: Option<ChunkIx>) -> Option<Task> {
        let tasks = self.batch.get_mut(&chunk)?;
        let task = tasks.pop_front();
        if tasks.is_empty() {
            self.batch.remove(&chunk);
        }
        task
    }

    /// The first multiple of ω from now on.
    fn cycle_from(&self, now: Time) -> Time {
        let omega = self.omega.as_micros().max(1);
        Time::from_micros(now.as_micros().div_ceil(omega).saturating_mul(omega))
    }
}

impl Policy for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(self.board.admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Change::JobAdded(job) = change {
            self.arrived.extend(self.board.arrive(farm, job));
            if self.due.is_none() {
                self.due = Some(self.cycle_from(now));
            }
        } else {
            self.board.observe(now, farm, change);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        let now = desk.now();
        self.board.look_again(desk);
        if self.board.is_stirred() || trigger == Trigger::Deadline {
            self.board.settle(desk);
        }
        if let Trigger::Host(host) = trigger {
            return self.board.start(desk, host.get());
        }
        if trigger == Trigger::Deadline && self.due.is_some_and(|due| due <= now) {
            self.schedule(now);
            let goes_on = !(self.batch.is_empty() && self.arrived.is_empty());
            self.due = goes_on.then(|| self.cycle_from(now + Span::from_micros(1)));
        }
        self.board.start_touched(desk);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.board.next_deadline().or(self.due)
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        self.board.explain()
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let tasks = |of: &Arrived| -> Vec<(JobId, u32)> {
            (0..of.tasks).map(|index| (of.job, index)).collect()
        };
        let held = self.batch.values().flatten().map(|task| (task.job, task.index));
        self.board.check(farm, lane, self.arrived.iter().flat_map(tasks).chain(held))
    }
}
