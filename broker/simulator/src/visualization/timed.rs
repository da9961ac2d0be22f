//! Measures what a policy costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner_scheduling::{Policy, PolicyStep, Trigger, Watch, Watched};
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

/// A stopwatch. What reading the clock itself takes is measured beforehand and left out.
pub(super) struct Stopwatch {
    spent: Arc<Spent>,
    clock_ns: u64,
    begun: u64,
}

/// A policy under a stopwatch, where it `is_measured`.
pub(super) fn timed(
    policy: Box<dyn Policy>,
    is_measured: bool,
) -> (Box<dyn Policy>, Option<Arc<Spent>>) {
    if !is_measured {
        return (policy, None);
    }
    let spent = Arc::<Spent>::default();
    let stopwatch = Stopwatch { spent: Arc::clone(&spent), clock_ns: reading_ns(), begun: 0 };
    (Box::new(Watched::new(policy, stopwatch)), Some(spent))
}

impl Watch for Stopwatch {
    fn begins(&mut self) {
        self.begun = now();
    }

    fn ends(&mut self, step: PolicyStep) {
        let took = nanos_since(self.begun).saturating_sub(self.clock_ns);
        let spent = match step {
            PolicyStep::Plans(Trigger::Host(_)) => &self.spent.serving,
            PolicyStep::Admits | PolicyStep::Observes | PolicyStep::Plans(_) => {
                &self.spent.scheduling
            }
        };
        spent.fetch_add(took, Ordering::Relaxed);
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
