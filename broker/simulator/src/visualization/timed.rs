//! Measures what a policy costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Time, WorkunitId};
use gleaner_scheduling::{
    Begins, Change, Desk, Farm, HostIx, Policy, Trigger, Violation, WaitReason, WorkunitIx,
};
use rustix::time::{ClockId, clock_gettime};

/// The time that was spent in a policy, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent(Arc<AtomicU64>);

impl Spent {
    /// In microseconds.
    pub(super) fn micros(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e3
    }
}

/// A policy under a stopwatch: admitting, taking note and planning count. What reading the clock
/// itself takes is measured beforehand and left out.
pub(super) struct Timed {
    policy: Box<dyn Policy>,
    spent: Spent,
    clock_ns: u64,
}

impl Timed {
    pub(super) fn new(policy: Box<dyn Policy>) -> (Self, Spent) {
        let spent = Spent::default();
        (Self { policy, spent: spent.clone(), clock_ns: reading_ns() }, spent)
    }

    fn measure<R>(&mut self, work: impl FnOnce(&mut dyn Policy) -> R) -> R {
        let before = now();
        let result = work(self.policy.as_mut());
        let took = nanos_since(before).saturating_sub(self.clock_ns);
        self.spent.0.fetch_add(took, Ordering::Relaxed);
        result
    }
}

/// CPU time of this thread, in nanoseconds: others on the machine do not count.
fn now() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn nanos_since(before: u64) -> u64 {
    now().saturating_sub(before)
}

/// The least time between two readings.
fn reading_ns() -> u64 {
    (0..1000).map(|_| nanos_since(now())).min().unwrap_or(0)
}

impl Policy for Timed {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), String> {
        self.measure(|policy| policy.admit(now, farm, spec))
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        self.measure(|policy| policy.observe(now, farm, change));
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.measure(|policy| policy.plan(desk, trigger));
    }

    fn begins(&self, spec: &JobSpec) -> Begins {
        self.policy.begins(spec)
    }

    fn keeps(&self, farm: &Farm, workunit: WorkunitIx, host: HostIx) -> bool {
        self.policy.keeps(farm, workunit, host)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.policy.next_deadline()
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        self.policy.explain(farm, workunit)
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.policy.check_invariants(farm, lane)
    }
}
