//! The published policy: computation and replication are scheduled together.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Time, WorkunitId};

use super::copy_moves::CopyMoves;
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx};
use crate::policy::replication::ReplicationConfig;
use crate::policy::replication::board::Board;
use crate::policy::replication::pace::Pace;
use crate::policy::replication::tasks::{Stage, Tasks};
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Violation};

/// Ranks, a two-level priority queue, competition avoidance, and moves of chunk copies.
///
/// - Hosts are ranked by their unit time, a moving average with weight ρ.
/// - A host that asks gets from the HPQ, what waits within the task window, the workunit with the
///   greatest key that it has a copy for. The key is the least unit time of all holders, so that
///   a host leaves to faster holders what those may do.
/// - Where the HPQ has nothing for it, it competes for the workunit of the LPQ, what runs, with
///   the longest estimated remainder; the core aborts the others when one is done.
/// - Copies are moved to hosts that are about to run out of workunits (see `copy_moves`).
///
/// Deviations: the two queues are not kept but looked up (a host has few chunks); a server that
/// was not measured yet counts with the mean of the others, of which nothing is said; see also
/// `pace` and `copy_moves`.
///
/// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation and
/// Replication", 2006, Section IV B and C.
#[derive(Debug)]
pub struct CoScheduling {
    config: ReplicationConfig,
    board: Board,
    paces: BTreeMap<JobId, Pace>,
    /// Absent where only computation is scheduled.
    moves: Option<CopyMoves>,
    /// Whether there is reason to look for moves.
    measured: bool,
}

impl CoScheduling {
    /// Computation and moves of copies.
    #[must_use]
    pub fn new(config: ReplicationConfig) -> Self {
        Self { moves: Some(CopyMoves::default()), ..Self::adaptive(config) }
    }

    /// Computation alone: copies stay where they are.
    #[must_use]
    pub fn adaptive(config: ReplicationConfig) -> Self {
        Self {
            config,
            board: Board::default(),
            paces: BTreeMap::new(),
            moves: None,
            measured: false,
        }
    }

    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.room(host) > 0 {
            if !self.start_one(desk, host) {
                self.board.idle.insert(host);
                return;
            }
        }
    }

    fn start_one(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let Self { config, board, paces, moves, .. } = self;
        board.jobs.values_mut().any(|tasks| {
            let pace = paces.entry(tasks.job).or_default();
            let window = config.window;
            let is_marked =
                |index| moves.as_ref().is_some_and(|moves| moves.is_marked(tasks.chunk(index)));
            let farm = desk.farm();
            let found = first_ready(tasks, pace, farm, host, window, is_marked)
                .or_else(|| slowest_running(tasks, pace, desk, host, window));
            found.is_some_and(|index| tasks.start(desk, index, host))
        })
    }

    fn move_copies(&mut self, desk: &mut Desk<'_>) {
        let Some(moves) = self.moves.as_mut().filter(|_| self.measured) else { return };
        self.measured = false;
        for tasks in self.board.jobs.values() {
            if let Some(pace) = self.paces.get(&tasks.job) {
                moves.consider(desk, tasks, pace, &self.config);
            }
        }
    }
}

/// The key of a workunit in the HPQ: the least unit time of those that have its chunk.
pub(crate) fn key_s(tasks: &Tasks, pace: &Pace, index: u32) -> f64 {
    let units = tasks.holders(index).iter().map(|host| pace.unit_s(*host));
    units.fold(f64::INFINITY, f64::min)
}

/// The first workunit of the HPQ that a host may run.
fn first_ready(
    tasks: &Tasks,
    pace: &Pace,
    farm: &Farm,
    host: HostIx,
    window: u32,
    is_marked: impl Fn(u32) -> bool,
) -> Option<u32> {
    let ready = tasks.of_host(host, window).filter(|index| {
        tasks.stage(*index) == Stage::Ready
            && !is_marked(*index)
            && tasks.may_run(farm, *index, host)
    });
    greatest(ready.map(|index| (key_s(tasks, pace, index), index)))
}

/// The first workunit of the LPQ that a host may run.
fn slowest_running(
    tasks: &Tasks,
    pace: &Pace,
    desk: &Desk<'_>,
    host: HostIx,
    window: u32,
) -> Option<u32> {
    let farm = desk.farm();
    let running = tasks.of_host(host, window).filter(|index| {
        tasks.stage(*index) == Stage::Running
            && tasks.may_run(farm, *index, host)
            && tasks.may_duplicate(farm, *index)
    });
    let remainder_s = |index| {
        let remainders = tasks
            .runs(index)
            .iter()
            .map(|run| pace.unit_s(run.host) - desk.now().since(run.since).as_secs_f64());
        remainders.fold(f64::INFINITY, f64::min)
    };
    greatest(running.map(|index| (remainder_s(index), index)))
}

/// The one with the greatest key; the first of those with equal keys.
fn greatest(keyed: impl Iterator<Item = (f64, u32)>) -> Option<u32> {
    let best = keyed.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, index)| index)
}

impl Policy for CoScheduling {
    fn name(&self) -> &'static str {
        if self.moves.is_some() { "co-scheduling" } else { "adaptive" }
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(Board::admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Some(reported) = self.board.observe(now, farm, change) {
            let pace = self.paces.entry(reported.job).or_default();
            pace.measure(reported.host, reported.took, self.config.rho);
            self.measured = true;
        }
        match change {
            Change::JobEnded(id) => {
                self.paces.remove(&id);
                if let Some(moves) = self.moves.as_mut().filter(|_| self.board.jobs.is_empty()) {
                    moves.forget_all();
                }
            }
            Change::HostChanged(host) if !farm.host(host).connected => {
                let had_some = self.moves.as_mut().is_some_and(|moves| moves.forget_host(host));
                if had_some {
                    self.board.stir(now);
                }
            }
            Change::CopyChanged { host, chunk, held } => {
                if let Some(moves) = &mut self.moves {
                    moves.arrived(now, host, chunk, held);
                    self.measured = true;
                }
            }
            _ => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.move_copies(desk);
        match trigger {
            Trigger::Host(host) => self.serve(desk, host),
            Trigger::Work | Trigger::Deadline => {
                for host in self.board.take_idle(desk) {
                    self.serve(desk, host);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.board.next_deadline()
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        self.board.explain(farm, workunit)
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let is_marked = |job, index| {
            let chunk = self.board.jobs.get(&job).map(|tasks| tasks.chunk(index));
            chunk.is_some_and(|chunk| self.moves.iter().any(|moves| moves.is_marked(chunk)))
        };
        self.board.check(farm, lane, self.config.window, |job, index| !is_marked(job, index))?;
        match &self.moves {
            Some(moves) => moves.check(farm),
            None => Ok(()),
        }
    }
}
