//! A schedule in the making.

use crate::policy::mixed::relaxation::{Part, Relaxation, Scaled};

/// Some jobs are fixed; for the others there is a solution of the linear relaxation.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    /// Jobs that are not fixed.
    pub(super) open: Vec<usize>,
    /// By job: where it is fixed, or where most of it is.
    pub(super) machine: Vec<Option<usize>>,
    /// When each machine has done what is fixed on it.
    pub(super) ready: Vec<f64>,
    /// The parts of open jobs that are split.
    pub(super) split: Vec<Part>,
    /// When all would be done if jobs could stay split.
    pub(super) makespan: f64,
}

impl Partial {
    /// Nothing is fixed.
    pub(super) fn of(relaxation: &Relaxation, times: &Scaled, jobs: usize) -> Self {
        let mut partial = Self {
            open: Vec::new(),
            machine: vec![None; jobs],
            ready: times.ready().to_vec(),
            split: Vec::new(),
            makespan: relaxation.bound() / times.unit(),
        };
        partial.take(relaxation.parts());
        partial
    }

    /// Takes over a solution for its open jobs.
    pub(super) fn take(&mut self, parts: &[Part]) {
        self.open.clear();
        self.split.clear();
        for parts in parts.chunk_by(|a, b| a.job == b.job) {
            let greatest = parts.iter().max_by(|a, b| a.share.total_cmp(&b.share));
            let Part { job, machine, .. } = *greatest.expect("a chunk has an element");
            self.machine[job] = Some(machine);
            self.open.push(job);
            if parts.len() > 1 {
                self.split.extend(parts);
            }
        }
    }

    /// Fixes an open job.
    pub(super) fn fix(&mut self, times: &Scaled, job: usize, machine: usize) {
        self.machine[job] = Some(machine);
        self.ready[machine] += times.get(job, machine);
        self.open.retain(|open| *open != job);
        self.split.retain(|part| part.job != job);
    }

    /// Whether part of a job is on another machine than the rest of it.
    pub(super) fn is_split(&self, job: usize) -> bool {
        self.split.iter().any(|part| part.job == job)
    }

    /// Whether part of an open job is on this machine that is longer than `room`.
    pub(super) fn exceeds(&self, times: &Scaled, machine: usize, room: f64) -> bool {
        let whole = self.open.iter().filter(|job| self.machine[**job] == Some(machine)).copied();
        let parts = self.split.iter().filter(|part| part.machine == machine).map(|part| part.job);
        whole.chain(parts).any(|job| times.get(job, machine) > room)
    }
}
