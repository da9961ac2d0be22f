//! Jobs that are submitted: at random times, of random sizes, with random due times.
//!
//! Due times are as tight as promises matter: by a job that would be done in any case nothing is
//! told. A job wishes to be done within a half to four times of the time that it would take at
//! least, had it all cores that the farm leaves on average; so some wishes cannot be met at all.

use gleaner_forecast::Work;

use super::PromisesConfig;
use super::farm::Farm;
use crate::dice::Dice;

/// Purposes of random numbers.
const JOBS: u64 = 1;
const MEAN_JOB: u64 = 2;

/// Least and greatest work of a job, in seconds of all cores that the farm leaves on average.
const WORK_S: (f64, f64) = (72.0, 7200.0);
/// Least and greatest median of a task's time, in seconds.
const TASK_S: (f64, f64) = (180.0, 3600.0);
/// Within how many times of the shortest time a job is wished to be done.
const SLACK: (f64, f64) = (0.5, 4.0);
/// A job's longest task takes about so many medians.
const LONGEST: f64 = 1.5;
/// The least time until a due time, in seconds.
const LEAD_MIN_S: f64 = 600.0;
/// Most tasks of a job.
const TASKS_MAX: f64 = 2000.0;
/// Jobs from whose mean it is reckoned how often one comes.
const SAMPLED_JOBS: usize = 2000;

/// A job as it is submitted.
pub(super) struct Submission {
    pub(super) work: Work,
    /// Until it is wished to be done, in seconds.
    pub(super) lead_s: f64,
    /// How long its tasks really take.
    pub(super) times: Vec<f32>,
    pub(super) seed: u64,
}

/// All submissions of a replay, in order.
pub(super) struct Submissions<'a> {
    config: &'a PromisesConfig,
    dice: Dice,
    /// Cores that the farm leaves on average.
    cores: f64,
    interval_min: f64,
    next_min: f64,
    count: u64,
}

impl<'a> Submissions<'a> {
    pub(super) fn new(farm: &Farm, place: u64, config: &'a PromisesConfig) -> Self {
        let mean = farm.mean_open(0, farm.minutes()).max(1.0);
        let mut sampled = Dice::new(config.seed, MEAN_JOB);
        let work = |dice: &mut Dice| {
            let (work, _) = draw(dice, mean, config);
            f64::from(work.tasks) * work.median_s
        };
        let sum: f64 = (0..SAMPLED_JOBS).map(|_| work(&mut sampled)).sum();
        let interval_min = sum / SAMPLED_JOBS as f64 / (config.load * mean) / 60.0;
        let mut dice = Dice::new(config.seed ^ place << 32, JOBS);
        let next_min = interval_min * dice.unit();
        Self { config, dice, cores: mean, interval_min, next_min, count: 0 }
    }

    /// The next one of this minute.
    pub(super) fn next(&mut self, minute: usize) -> Option<Submission> {
        if self.next_min >= (minute + 1) as f64 {
            return None;
        }
        self.next_min -= self.interval_min * libm::log(1.0 - self.dice.unit());
        self.count += 1;
        let (work, lead_s) = draw(&mut self.dice, self.cores, self.config);
        let shared = libm::exp(work.shared_sigma * self.dice.normal());
        let mut time =
            || (work.median_s * shared * libm::exp(work.sigma * self.dice.normal())) as f32;
        let times = (0..work.tasks).map(|_| time()).collect();
        Some(Submission { work, lead_s, times, seed: self.config.seed ^ self.count << 20 })
    }
}

fn draw(dice: &mut Dice, cores: f64, config: &PromisesConfig) -> (Work, f64) {
    let core_s = cores * between(dice, WORK_S.0, WORK_S.1);
    let median_s = between(dice, TASK_S.0, TASK_S.1).max(core_s / TASKS_MAX);
    let tasks = libm::round(core_s / median_s).max(1.0);
    let shortest_s = (LONGEST * median_s).max(tasks * median_s / cores);
    let lead_s = (between(dice, SLACK.0, SLACK.1) * shortest_s).max(LEAD_MIN_S);
    let (sigma, shared_sigma) = (config.sigma, config.shared_sigma);
    (Work { tasks: tasks as u32, median_s, sigma, shared_sigma }, lead_s)
}

/// A number whose logarithm may be any between these.
fn between(dice: &mut Dice, least: f64, most: f64) -> f64 {
    least * libm::exp(dice.unit() * libm::log(most / least))
}
