//! How long the policy of a lane takes, for the metrics.

use std::sync::Arc;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Time, WorkunitId, boottime};
use gleaner_scheduling::{
    Begins, Change, Decline, Desk, Farm, HostIx, Policy, Trigger, Violation, WaitReason, WorkunitIx,
};

use crate::metrics::Metrics;

/// A policy under a stopwatch: admitting, taking note and planning, giving out what was planned included.
pub(crate) struct WatchedPolicy {
    policy: Box<dyn Policy>,
    metrics: Arc<Metrics>,
}

impl WatchedPolicy {
    pub(crate) fn new(policy: Box<dyn Policy>, metrics: Arc<Metrics>) -> Self {
        Self { policy, metrics }
    }

    /// What is shorter than the clock's unit is seen now and then as one unit, in right proportion.
    fn watch<R>(&mut self, work: impl FnOnce(&mut dyn Policy) -> R) -> R {
        let begun = boottime();
        let result = work(self.policy.as_mut());
        self.metrics.rendering_planned(boottime().since(begun));
        result
    }
}

impl Policy for WatchedPolicy {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        self.watch(|policy| policy.admit(now, farm, spec))
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
        self.watch(|policy| policy.observe(now, farm, change));
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.watch(|policy| policy.plan(desk, trigger));
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
