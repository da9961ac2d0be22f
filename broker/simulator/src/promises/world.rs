//! What was accepted, running on the cores that the farm left.

use gleaner_forecast::{Claim, Left, Work};

use super::MINUTE_S;

/// What is late is given up after so long, in seconds.
const LATE_S: f64 = 86_400.0;

/// A job that was accepted.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) confidence: f64,
    /// The chance that was said.
    pub(super) said: f64,
    /// When it was accepted, and when it is due.
    pub(super) since_s: f64,
    pub(super) due_s: f64,
    /// How long its tasks take.
    pub(super) times: Vec<f32>,
    /// How many of them have begun.
    pub(super) begun: usize,
    /// Those that have begun and are not done, in their order.
    pub(super) running: Vec<Running>,
}

#[derive(Clone, Copy)]
pub(super) struct Running {
    left_s: f32,
    ran_s: f32,
}

/// What became of a promise.
pub(super) struct Outcome {
    pub(super) since_s: f64,
    pub(super) said: f64,
    pub(super) kept: bool,
}

/// The jobs of one decider.
#[derive(Default)]
pub(super) struct World {
    /// In the order of their due times.
    jobs: Vec<Job>,
    late: Vec<Job>,
}

impl World {
    pub(super) fn accept(&mut self, job: Job) {
        let place = self.jobs.partition_point(|other| other.due_s <= job.due_s);
        self.jobs.insert(place, job);
    }

    /// What is promised, as the broker knows it.
    pub(super) fn claims(&self, at_s: f64) -> Vec<Claim> {
        let claim = |job: &Job| {
            let Work { median_s, sigma, shared_sigma, .. } = job.work;
            let left = |tasks: usize, ran_s: f64| {
                let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
                Left { tasks, median_s, sigma: libm::hypot(sigma, shared_sigma), ran_s }
            };
            let waiting = left(job.times.len() - job.begun, 0.0);
            let running = job.running.iter().map(|task| left(1, task.ran_s.into()));
            let left = running.chain([waiting]).filter(|left| left.tasks > 0);
            Claim::of(job.due_s - at_s, job.confidence, shared_sigma, left)
        };
        self.jobs.iter().map(claim).collect()
    }

    /// Runs a minute on so many cores.
    pub(super) fn run(&mut self, at_s: f64, cores: u32, mut ended: impl FnMut(Outcome)) {
        let mut free = cores as usize;
        for job in self.jobs.iter_mut().chain(&mut self.late) {
            if free == 0 {
                break;
            }
            free -= job.run(free);
        }
        let until_s = at_s + MINUTE_S as f64;
        self.late.retain(|job| !job.is_done() && job.due_s + LATE_S > until_s);
        let is_over = |job: &mut Job| job.is_done() || job.due_s < until_s;
        for job in self.jobs.extract_if(.., is_over) {
            // One that ends in the minute of its due time is in time.
            let kept = job.is_done();
            ended(Outcome { since_s: job.since_s, said: job.said, kept });
            if !kept {
                self.late.push(job);
            }
        }
    }
}

impl Job {
    fn is_done(&self) -> bool {
        self.begun == self.times.len() && self.running.is_empty()
    }

    fn begin(&mut self) -> bool {
        let Some(time) = self.times.get(self.begun) else { return false };
        self.begun += 1;
        self.running.push(Running { left_s: *time, ran_s: 0.0 });
        true
    }

    /// Runs a minute on as many of these cores as it has tasks; says on how many.
    fn run(&mut self, cores: usize) -> usize {
        while self.running.len() < cores && self.begin() {}
        let used = self.running.len().min(cores);
        for core in 0..used {
            let (mut place, mut left_s) = (core, MINUTE_S as f32);
            loop {
                let task = &mut self.running[place];
                let ran_s = left_s.min(task.left_s);
                task.left_s -= ran_s;
                task.ran_s += ran_s;
                left_s -= ran_s;
                // The core goes on with the next task in the same minute.
                if left_s <= 0.0 || !self.begin() {
                    break;
                }
                place = self.running.len() - 1;
            }
        }
        self.running.retain(|task| task.left_s > 0.0);
        used
    }
}
