//! A batch of jobs and the machines that it is for.

use gleaner_scheduling::mixed::Times;

/// Jobs with their times on machines, in microseconds of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload {
    /// The kind of each machine. Those of one kind are next to each other, and alike.
    pub(super) kinds: Vec<String>,
    /// Job by job: the time on each machine.
    pub(super) times: Vec<u64>,
}

impl Workload {
    pub(super) fn machines(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn jobs(&self) -> usize {
        self.times.len() / self.kinds.len()
    }

    pub(super) fn time_us(&self, job: usize, machine: usize) -> u64 {
        self.times[job * self.kinds.len() + machine]
    }

    pub(super) fn matrix(&self) -> Times {
        Times::new(self.machines(), self.times.clone())
    }
}
