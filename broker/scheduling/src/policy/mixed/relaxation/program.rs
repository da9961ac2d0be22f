//! Linear programs over a batch, and what they bring.

use super::Part;
use crate::policy::mixed::times::{NEVER, Times};

/// Expected times in units of about the makespan, for all programs over one batch.
#[derive(Debug)]
pub(crate) struct Scaled {
    machines: usize,
    unit: f64,
    /// Job by job; infinite where it cannot run.
    times: Vec<f64>,
    ready: Vec<f64>,
}

impl Scaled {
    /// `unit` is above 0, in microseconds.
    pub(crate) fn new(times: &Times, unit: u64) -> Self {
        let unit = unit as f64;
        let scaled = |time: &u64| if *time == NEVER { f64::INFINITY } else { *time as f64 / unit };
        let rows = (0..times.jobs()).flat_map(|job| times.of(job));
        let rows = rows.map(scaled).collect();
        let ready = times.ready().iter().map(scaled).collect();
        Self { machines: times.machines(), unit, times: rows, ready }
    }

    pub(crate) fn machines(&self) -> usize {
        self.machines
    }

    pub(crate) fn unit(&self) -> f64 {
        self.unit
    }

    pub(crate) fn ready(&self) -> &[f64] {
        &self.ready
    }

    pub(crate) fn get(&self, job: usize, machine: usize) -> f64 {
        self.times[job * self.machines + machine]
    }

    pub(crate) fn of(&self, job: usize) -> &[f64] {
        &self.times[job * self.machines..(job + 1) * self.machines]
    }
}

/// A share that a job may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) job: u32,
    pub(crate) machine: u32,
    /// How long the job takes there, wholly.
    pub(crate) time: f64,
}

/// A linear program over some jobs of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) times: &'a Scaled,
    /// The jobs that are to be placed, at least one.
    pub(crate) jobs: &'a [usize],
    /// By the numbers of jobs: a machine for each of them to begin with, where it fits.
    pub(crate) key: &'a [usize],
    /// When each machine is ready for them.
    pub(crate) ready: &'a [f64],
    /// A job runs only where it would be done by then, as the first that the machine runs.
    pub(crate) limit: f64,
    /// The shares that may be, those that most probably are first; all of them where not given.
    pub(crate) columns: Option<&'a [Share]>,
}

/// The optimum of a [`Program`].
#[derive(Debug)]
pub(crate) struct Optimum {
    pub(crate) makespan: f64,
    /// Not negative, of sum 1.
    pub(crate) prices: Vec<f64>,
    /// The shares that are not 0, in the order of the program's jobs.
    pub(crate) parts: Vec<Part>,
    /// What it took, in entries of matrices that were looked at.
    pub(crate) effort: u64,
}
