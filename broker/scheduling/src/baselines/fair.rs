//! Fair sharing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Time, WorkunitId};

use crate::explain::WaitReason;
use crate::farm::Farm;
use crate::policy::visualization::TestRun;
use crate::policy::visualization::board::{Arrived, Board};
use crate::policy::{Change, Decline, Policy, Trigger, anyone};
use crate::{Desk, Violation};

/// Who shares: a user action, or a batch job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pool {
    Session(u64),
    Batch(JobId),
}

/// Gives each user action and each batch job an equal share of the nodes' time: a node that is
/// free takes the next task of whoever has received the least, by estimated execution times.
///
/// Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
/// Visualization Services using GPU Clusters", 2012, Section VI, after M. Zaharia et al., "Delay
/// Scheduling", 2010.
///
/// What the papers leave open: who comes anew, or comes again after having had no work, starts
/// at the least that the others have received.
pub struct FairSharing {
    board: Board,
    pools: BTreeMap<Pool, Share>,
    /// Pools with work, by what they have received.
    order: BTreeSet<(u64, Pool)>,
    /// What the pool that was served last had received: nobody starts below.
    floor_us: u64,
}

#[derive(Debug, Default)]
struct Share {
    received_us: u64,
    /// Jobs with the next task of each.
    jobs: VecDeque<(Arrived, u32)>,
}

impl FairSharing {
    /// A fresh one.
    #[must_use]
    pub fn new(run: TestRun) -> Self {
        Self { board: Board::new(run), pools: BTreeMap::new(), order: BTreeSet::new(), floor_us: 0 }
    }

    fn serve(&mut self, desk: &mut Desk<'_>, node: usize) {
        let host = crate::HostIx::from_index(node);
        while self.board.is_up(node) && desk.farm().host(host).free() > 0 {
            if self.board.is_drained(node) && !self.assign_next(desk.now(), node) {
                return;
            }
            self.board.start(desk, node);
        }
    }

    /// Assigns the next task of whoever has received the least; `false` where there is none.
    fn assign_next(&mut self, now: Time, node: usize) -> bool {
        let Some((received_us, pool)) = self.order.pop_first() else { return false };
        let share = self.pools.get_mut(&pool).expect("a pool in the order has work");
        let (of, index) = share.jobs.front_mut().expect("a pool in the order has work");
        let task = self.board.task(of, *index);
        let cost = self.board.tables.predicted(task.chunk, node);
        *index += 1;
        if *index == of.tasks {
            share.jobs.pop_front();
        }
        share.received_us = received_us + cost.as_micros();
        self.floor_us = received_us;
        if share.jobs.is_empty() {
            self.pools.remove(&pool);
        } else {
            self.order.insert((share.received_us, pool));
        }
        self.board.assign(now, task, node);
        true
    }

    fn arrive(&mut self, of: Arrived) {
        let pool = of.session.map_or(Pool::Batch(of.job), Pool::Session);
        let share = self.pools.entry(pool).or_default();
        if share.jobs.is_empty() {
            share.received_us = self.floor_us;
            self.order.insert((share.received_us, pool));
        }
        share.jobs.push_back((of, 0));
    }
}

impl Policy for FairSharing {
    fn name(&self) -> &'static str {
        "fs"
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(self.board.admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Change::JobAdded(job) = change {
            if let Some(of) = self.board.arrive(farm, job) {
                self.arrive(of);
            }
        } else {
            self.board.observe(now, farm, change);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.board.look_again(desk);
        if self.board.is_stirred() {
            self.board.settle(desk);
        }
        self.board.start_touched(desk);
        match trigger {
            Trigger::Host(host) => self.serve(desk, host.get()),
            Trigger::Work | Trigger::Deadline => {
                while !self.order.is_empty()
                    && let Some(host) = desk.farm().first_asking(anyone)
                    && self.board.is_up(host.get())
                {
                    self.serve(desk, host.get());
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.board.next_deadline()
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        vec![WaitReason::InTurn]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let jobs = self.pools.values().flat_map(|share| &share.jobs);
        let tasks = |(of, next): &(Arrived, u32)| -> Vec<(JobId, u32)> {
            (*next..of.tasks).map(|index| (of.job, index)).collect()
        };
        self.board.check(farm, lane, jobs.flat_map(tasks))
    }
}
