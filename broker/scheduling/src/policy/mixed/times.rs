//! What is known beforehand of a batch: expected times of jobs on machines.

/// Says that a job cannot run on a machine.
pub const NEVER: u64 = u64::MAX;

/// Expected times to compute, in microseconds: a dense matrix of jobs by machines, and when each
/// machine is ready for the first of them.
///
/// # Invariants
/// - Each time is [`NEVER`] or at most [`Times::LONGEST`], so that sums over a batch stay exact
///   in integers and, up to 2⁵³, in floating point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    machines: usize,
    times: Vec<u64>,
    ready: Vec<u64>,
}

impl Times {
    /// The longest time of one job that is told apart from longer ones: about 35 years.
    pub const LONGEST: u64 = 1 << 50;

    /// From the times job by job, on machines that are all ready at 0.
    ///
    /// # Panics
    /// `times` has not as many values as whole rows of `machines` take.
    #[must_use]
    pub fn new(machines: usize, times: Vec<u64>) -> Self {
        Self::with_ready(vec![0; machines], times)
    }

    /// From the times job by job, on machines that are ready at `ready`.
    ///
    /// # Panics
    /// `times` has not as many values as whole rows of machines take.
    #[must_use]
    pub fn with_ready(ready: Vec<u64>, mut times: Vec<u64>) -> Self {
        let machines = ready.len();
        let whole =
            if machines == 0 { times.is_empty() } else { times.len().is_multiple_of(machines) };
        assert!(whole, "{} times for {machines} machines", times.len());
        times.iter_mut().filter(|time| **time != NEVER).for_each(|time| {
            *time = (*time).min(Self::LONGEST);
        });
        Self { machines, times, ready }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.times.len().checked_div(self.machines).unwrap_or(0)
    }

    /// How many machines there are.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// When each machine is ready, in microseconds.
    #[must_use]
    pub fn ready(&self) -> &[u64] {
        &self.ready
    }

    /// The times of a job on all machines, in microseconds.
    #[must_use]
    pub fn of(&self, job: usize) -> &[u64] {
        &self.times[job * self.machines..(job + 1) * self.machines]
    }

    /// The time of a job on a machine, in microseconds; [`NEVER`] where it cannot run there.
    #[must_use]
    pub fn get(&self, job: usize, machine: usize) -> u64 {
        self.times[job * self.machines + machine]
    }

    /// The time of a job where it runs fastest; [`NEVER`] where it runs nowhere.
    #[must_use]
    pub fn shortest(&self, job: usize) -> u64 {
        self.of(job).iter().copied().min().unwrap_or(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_jobs() {
        let times = Times::new(2, vec![3, 4, 5, NEVER, 7, u64::MAX - 1]);
        assert_eq!((times.jobs(), times.machines()), (3, 2));
        assert_eq!((times.get(1, 0), times.get(1, 1), times.shortest(1)), (5, NEVER, 5));
        assert_eq!(times.get(2, 1), Times::LONGEST, "a time is not mistaken for never");
        assert_eq!(Times::new(0, Vec::new()).jobs(), 0);
    }
}
