//! A batch of jobs and the machines that it is for.

use gleaner_scheduling::mixed::Times;

/// Jobs with their times on machines, in microseconds of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload {
    /// The kind of each machine. Those of one kind are next to each other, and alike.
    pub(super) kinds: Vec<String>,
    /// Job by job: the time on each machine.
    pub(super) times: Vec<u64>,
    /// What is said of that to the broker: as many times, or nothing.
    pub(super) said: Option<Vec<u64>>,
    /// Of each job its application, and a number that says how large its work is.
    pub(super) work: Vec<(usize, u64)>,
    /// When each job comes.
    pub(super) comes_us: Vec<u64>,
}

impl Workload {
    /// Of jobs that are all of one application, and of which the broker is told the times.
    pub(super) fn told(kinds: Vec<String>, times: Vec<u64>) -> Self {
        let jobs = times.len().checked_div(kinds.len()).unwrap_or(0);
        let work = (0..jobs as u64).map(|job| (0, job + 1)).collect();
        Self { kinds, said: Some(times.clone()), times, work, comes_us: vec![0; jobs] }
    }

    /// What is said of the time of a job on a machine.
    pub(super) fn said_us(&self, job: usize, machine: usize) -> Option<u64> {
        self.said.as_ref().map(|said| said[job * self.kinds.len() + machine])
    }

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
