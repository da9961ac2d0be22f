//! A part of a farm that stands for all of it.

use gleaner_protocol::{Span, Time};

use super::openings::{Step, given_core_us};
use super::trace::Trace;

/// Every so many-th host of a farm. Hosts of logs stand in order of their first appearance, or by
/// their number, so that such a part has of each kind.
#[derive(Debug)]
pub(crate) struct Sample {
    cores: Vec<u32>,
    steps: Vec<Step>,
    end: Time,
    given_core_us: u128,
    given_in_all_core_us: u128,
}

impl Sample {
    /// A part on which about `replicas_max` replicas of one workunit each can run.
    pub(crate) fn of(trace: &Trace, steps: &[Step], replicas_max: u64, workunit: Span) -> Self {
        let given_in_all_core_us = given_core_us(trace, steps);
        let replicas = given_in_all_core_us / u128::from(workunit.as_micros());
        let stride = replicas.div_ceil(replicas_max.into()).max(1);
        let stride = u32::try_from(stride).unwrap_or(u32::MAX);
        let all = trace.hosts.iter().map(|host| host.cores);
        let cores = all.step_by(stride as usize).collect();
        let is_in = |step: &&Step| step.host.is_multiple_of(stride);
        let steps: Vec<Step> = steps
            .iter()
            .filter(is_in)
            .map(|step| Step { host: step.host / stride, ..*step })
            .collect();
        let given_core_us = given_core_us(trace, &steps);
        Self { cores, steps, end: trace.end, given_core_us, given_in_all_core_us }
    }

    /// Cores of its hosts.
    pub(crate) fn cores_of_hosts(&self) -> &[u32] {
        &self.cores
    }

    /// What its hosts give.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// When the log ends.
    pub(crate) fn end(&self) -> Time {
        self.end
    }

    /// Core-time that its hosts give, in core-microseconds.
    pub(crate) fn given_core_us(&self) -> u128 {
        self.given_core_us
    }

    /// How many times as much the whole farm gives.
    pub(crate) fn scale(&self) -> f64 {
        if self.given_core_us == 0 {
            return 1.0;
        }
        self.given_in_all_core_us as f64 / self.given_core_us as f64
    }

    /// How much of all that the farm gives it gives, in percent.
    pub(crate) fn percent(&self) -> f64 {
        100.0 / self.scale()
    }
}
