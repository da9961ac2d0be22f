//! What a heuristic says: which machine runs what, and in which order.

use super::times::{NEVER, Times};

/// Jobs on machines.
///
/// # Invariants
/// - Each job is in one queue at most, and only in that of a machine that can run it; a job that
///   no machine can run is in none.
/// - `loads` holds when each machine has done its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    queues: Vec<Vec<usize>>,
    loads: Vec<u64>,
}

impl Mapping {
    /// Nothing is mapped; each machine is done when it is ready.
    pub(crate) fn empty(times: &Times) -> Self {
        Self { queues: vec![Vec::new(); times.machines()], loads: times.ready().to_vec() }
    }

    /// From the machine of each job. The longest of a machine run first: what then goes
    /// otherwise than expected can still be made up for with the short ones.
    pub(crate) fn longest_first(times: &Times, machine_of: &[Option<usize>]) -> Self {
        let mut mapping = Self::empty(times);
        let placed = machine_of.iter().enumerate();
        for (job, machine) in placed.filter_map(|(job, machine)| Some((job, (*machine)?))) {
            mapping.push(times, job, machine);
        }
        for (machine, queue) in mapping.queues.iter_mut().enumerate() {
            queue.sort_by_key(|job| std::cmp::Reverse(times.get(*job, machine)));
        }
        mapping
    }

    /// Puts a job at the end of a machine's queue.
    pub(crate) fn push(&mut self, times: &Times, job: usize, machine: usize) {
        let time = times.get(job, machine);
        debug_assert_ne!(time, NEVER, "a machine that can run it");
        self.queues[machine].push(job);
        self.loads[machine] += time;
    }

    /// The jobs of a machine in the order in which it is to run them.
    #[must_use]
    pub fn queue(&self, machine: usize) -> &[usize] {
        &self.queues[machine]
    }

    /// When each machine has done its queue, in microseconds.
    #[must_use]
    pub fn loads(&self) -> &[u64] {
        &self.loads
    }

    /// When the last machine has done its queue, in microseconds.
    #[must_use]
    pub fn makespan(&self) -> u64 {
        self.loads.iter().copied().max().unwrap_or(0)
    }

    /// When a machine would have done this job too; [`NEVER`] where it cannot run it.
    pub(crate) fn completion(&self, times: &Times, job: usize, machine: usize) -> u64 {
        self.loads[machine].saturating_add(times.get(job, machine))
    }

    /// The machine of each of `jobs` jobs.
    #[must_use]
    pub fn machine_of(&self, jobs: usize) -> Vec<Option<usize>> {
        let mut machine_of = vec![None; jobs];
        for (machine, queue) in self.queues.iter().enumerate() {
            queue.iter().for_each(|job| machine_of[*job] = Some(machine));
        }
        machine_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_sums_over_queues_and_begin_when_machines_are_ready() {
        let times = Times::with_ready(vec![10, 0], vec![1, 2, 3, 4, NEVER, 6]);
        let mapping = Mapping::longest_first(&times, &[Some(0), Some(0), Some(1)]);
        assert_eq!(mapping.queue(0), [1, 0], "the longer one first");
        assert_eq!((mapping.loads(), mapping.makespan()), (&[14, 6][..], 14));
        assert_eq!(mapping.completion(&times, 2, 0), NEVER);
        assert_eq!(mapping.machine_of(4), [Some(0), Some(0), Some(1), None]);
    }
}
