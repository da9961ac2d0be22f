//! First come, first served: four ways to find a node.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use crate::explain::WaitReason;
use crate::farm::Farm;
use crate::policy::visualization::TestRun;
use crate::policy::visualization::board::{Arrived, Board, Task};
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Violation};

/// Where a task goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// To the node with the smallest available time.
    Available,
    /// To the node that is expected to be done with it first, loads included.
    Done,
    /// Task *i* to node *i*.
    Uniform,
}

/// Schedules jobs in the order of their arrival, one at a time, and all their tasks at once.
///
/// `fcfs` assigns each task to the node with the smallest available time; `fcfsl` takes data
/// locality into that greedy search; under `fcfsu` a job has a task for each node, of as many
/// smaller chunks, and task *i* goes to node *i*, so that each node keeps its part of each
/// dataset; `sf` sorts the jobs of a window by their estimated execution time and goes on as
/// `fcfs`.
///
/// Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
/// Visualization Services using GPU Clusters", 2012, Section VI.
///
/// What the paper leaves open: nodes that are equally good are taken in their order; a task whose
/// node is lost goes to the node that is expected to be done with it first.
pub struct FirstCome {
    name: &'static str,
    search: Search,
    /// How long jobs are gathered before they are sorted.
    window: Option<Span>,
    board: Board,
    arrived: Vec<Arrived>,
    /// When the window closes.
    due: Option<Time>,
}

impl FirstCome {
    fn new(name: &'static str, search: Search, run: TestRun) -> Self {
        let board = Board::new(run);
        Self { name, search, window: None, board, arrived: Vec::new(), due: None }
    }

    /// Without regard to data.
    #[must_use]
    pub fn fcfs(run: TestRun) -> Self {
        Self::new("fcfs", Search::Available, run)
    }

    /// With data locality.
    #[must_use]
    pub fn fcfsl(run: TestRun) -> Self {
        Self::new("fcfsl", Search::Done, run)
    }

    /// With a uniform partition.
    #[must_use]
    pub fn fcfsu(run: TestRun) -> Self {
        Self::new("fcfsu", Search::Uniform, run)
    }

    /// The shortest of each window first.
    #[must_use]
    pub fn shortest_first(run: TestRun, window: Span) -> Self {
        Self { window: Some(window), ..Self::new("sf", Search::Available, run) }
    }

    fn find(&self, now: Time, task: Task) -> Option<usize> {
        let tables = &self.board.tables;
        let up = self.board.up();
        match self.search {
            Search::Available => up.min_by_key(|node| tables.available(*node).max(now)),
            Search::Done => up.min_by_key(|node| {
                tables.available(*node).max(now) + tables.predicted(task.chunk, *node)
            }),
            Search::Uniform => {
                let place = task.index as usize % self.board.node_count().max(1);
                let behind = (place..self.board.node_count()).chain(0..place);
                behind.into_iter().find(|node| self.board.is_up(*node))
            }
        }
    }

    fn schedule(&mut self, now: Time) {
        let mut arrived = std::mem::take(&mut self.arrived);
        if self.window.is_some() {
            // The tables are those of the window's end for all of its jobs.
            arrived.sort_by_cached_key(|of| self.estimated(of));
        }
        for of in arrived.drain(..) {
            for index in 0..of.tasks {
                let task = self.board.task(&of, index);
                match self.find(now, task) {
                    Some(node) => self.board.assign(now, task, node),
                    None => self.board.postpone(task),
                }
            }
        }
        self.arrived = arrived;
    }

    /// The estimated execution time of a job: that of all its tasks, of which each loads its
    /// chunk, because the search does not look for those who have it.
    fn estimated(&self, of: &Arrived) -> Span {
        let estimate = |index| match self.board.task(of, index).chunk {
            Some(chunk) => self.board.tables.estimate(chunk),
            None => self.board.tables.render(),
        };
        (0..of.tasks).map(estimate).fold(Span::ZERO, |sum, task| sum + task)
    }
}

impl Policy for FirstCome {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(self.board.admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Change::JobAdded(job) = change {
            self.arrived.extend(self.board.arrive(farm, job));
            if let Some(window) = self.window {
                self.due.get_or_insert(now + window);
            }
        } else {
            self.board.observe(now, farm, change);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        let now = desk.now();
        self.board.look_again(desk);
        if trigger != Trigger::Work || self.board.is_stirred() {
            self.board.settle(desk);
        }
        if let Trigger::Host(host) = trigger {
            return self.board.start(desk, host.get());
        }
        if self.window.is_none() || self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.schedule(now);
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
        self.board.check(farm, lane, self.arrived.iter().flat_map(tasks))
    }
}
