//! A policy under somebody's watch: how long it takes, for instance. The core has no clock.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Time, WorkunitId};

use super::{Begins, Change, Decline, Policy, Trigger};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, WorkunitIx};
use crate::{Desk, Violation};

/// What a policy does for long enough to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyStep {
    /// It admits a job.
    Admits,
    /// It takes note of something that touches its own jobs, or hosts.
    Observes,
    /// It gives out what it planned, and plans.
    Plans(Trigger),
}

/// Who watches.
pub trait Watch: Send {
    /// A policy is about to do something.
    fn begins(&mut self);
    /// It has done this.
    fn ends(&mut self, step: PolicyStep);
}

/// A policy that is watched, and decides as it would otherwise.
pub struct Watched<W> {
    policy: Box<dyn Policy>,
    watch: W,
}

impl<W: Watch> Watched<W> {
    /// Has it watched.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, watch: W) -> Self {
        Self { policy, watch }
    }

    fn step<R>(&mut self, step: PolicyStep, work: impl FnOnce(&mut dyn Policy) -> R) -> R {
        self.watch.begins();
        let result = work(self.policy.as_mut());
        self.watch.ends(step);
        result
    }
}

impl<W: Watch> Policy for Watched<W> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        self.step(PolicyStep::Admits, |policy| policy.admit(now, farm, spec))
    }

    fn left_us(&self, now: Time, job: JobId) -> Vec<u64> {
        self.policy.left_us(now, job)
    }

    fn expected_end(&self, farm: &Farm, job: JobId) -> Option<Time> {
        self.policy.expected_end(farm, job)
    }

    fn insured_on(&self, workunit: WorkunitId) -> Option<HostIx> {
        self.policy.insured_on(workunit)
    }

    fn is_out_of_reach(&self, job: JobId) -> bool {
        self.policy.is_out_of_reach(job)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        // It comes with each lease and each report, and is mostly nothing: the clock would be what is
        // measured.
        if let Change::JobTouched(_) = change {
            return self.policy.observe(now, farm, change);
        }
        self.step(PolicyStep::Observes, |policy| policy.observe(now, farm, change));
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.step(PolicyStep::Plans(trigger), |policy| policy.plan(desk, trigger));
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
