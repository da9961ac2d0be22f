//! Measures what a policy costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Time, WorkunitId};
use gleaner_scheduling::{
    Begins, Change, Decline, Desk, Farm, HostIx, Policy, Trigger, Violation, WaitReason, WorkunitIx,
};
use rustix::time::{ClockId, clock_gettime};

/// The time that was spent in a policy, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Spent {
    scheduling: AtomicU64,
    serving: AtomicU64,
}

impl Spent {
    /// Admitting, taking note and planning, in microseconds.
    pub(super) fn scheduling_micros(&self) -> f64 {
        self.scheduling.load(Ordering::Relaxed) as f64 / 1e3
    }

    /// Serving hosts that ask, in microseconds: what was scheduled is leased, which is mostly the
    /// core's work and the same under every policy. One that decides only then, as `fs` does,
    /// does it here.
    pub(super) fn serving_micros(&self) -> f64 {
        self.serving.load(Ordering::Relaxed) as f64 / 1e3
    }
}

/// A policy under a stopwatch. What reading the clock itself takes is measured beforehand and
/// left out.
pub(super) struct Timed {
    policy: Box<dyn Policy>,
    spent: Arc<Spent>,
    clock_ns: u64,
}

impl Timed {
    pub(super) fn new(policy: Box<dyn Policy>) -> (Self, Arc<Spent>) {
        let spent = Arc::<Spent>::default();
        (Self { policy, spent: Arc::clone(&spent), clock_ns: reading_ns() }, spent)
    }

    fn measure<R>(&mut self, work: impl FnOnce(&mut dyn Policy) -> R) -> R {
        let (result, took) = self.clocked(work);
        self.spent.scheduling.fetch_add(took, Ordering::Relaxed);
        result
    }

    fn clocked<R>(&mut self, work: impl FnOnce(&mut dyn Policy) -> R) -> (R, u64) {
        let before = now();
        let result = work(self.policy.as_mut());
        (result, nanos_since(before).saturating_sub(self.clock_ns))
    }
}

/// In nanoseconds. CPU time of the thread would leave out what others on the machine take, but
/// asking for it is a call of the kernel, which takes longer than most calls of a policy.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
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

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        self.measure(|policy| policy.admit(now, farm, spec))
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        // No policy of this family does anything then: the clock would be all that is measured.
        if let Change::JobTouched(_) = change {
            return self.policy.observe(now, farm, change);
        }
        self.measure(|policy| policy.observe(now, farm, change));
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        let ((), took) = self.clocked(|policy| policy.plan(desk, trigger));
        let spent = match trigger {
            Trigger::Host(_) => &self.spent.serving,
            Trigger::Work | Trigger::Deadline => &self.spent.scheduling,
        };
        spent.fetch_add(took, Ordering::Relaxed);
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
