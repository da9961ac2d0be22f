//! The work queue that the others are measured against.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Time, WorkunitId};

use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx};
use crate::policy::replication::board::Board;
use crate::policy::replication::tasks::{Stage, Tasks};
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Violation};

/// Every host that asks gets the first workunit whose chunk it has: one that waits, and where
/// there is none, one that runs elsewhere.
///
/// The task window holds here too, so that all policies are compared under it.
///
/// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation and
/// Replication", 2006, Algorithm 1.
#[derive(Debug)]
pub struct WorkQueue {
    window: u32,
    board: Board,
}

impl WorkQueue {
    /// With this task window.
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { window, board: Board::default() }
    }

    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.room(host) > 0 {
            let window = self.window;
            let mut jobs = self.board.jobs.values_mut();
            if !jobs.any(|tasks| {
                let grabbed = grab(tasks, desk.farm(), host, window);
                grabbed.is_some_and(|index| tasks.start(desk, index, host))
            }) {
                self.board.idle.insert(host);
                return;
            }
        }
    }
}

/// GrabTask: unassigned workunits before assigned ones, each in their order.
fn grab(tasks: &Tasks, farm: &Farm, host: HostIx, window: u32) -> Option<u32> {
    let first = |stage| {
        let mut of_stage =
            tasks.of_host(host, window).filter(move |index| tasks.stage(*index) == stage);
        of_stage.find(|index| {
            tasks.may_run(farm, *index, host)
                && (stage == Stage::Ready || tasks.may_duplicate(farm, *index))
        })
    };
    first(Stage::Ready).or_else(|| first(Stage::Running))
}

impl Policy for WorkQueue {
    fn name(&self) -> &'static str {
        "work-queue"
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(Board::admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        self.board.observe(now, farm, change);
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
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
        self.board.check(farm, lane, self.window, |_, _| true)
    }
}
