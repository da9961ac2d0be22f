//! What work is asked for, and what is promised already.

use crate::chances::below;

/// A job as it is asked for: tasks of one core each, whose times are log-normal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// How many tasks.
    pub tasks: u32,
    /// Median time of one on one core, in seconds.
    pub median_s: f64,
    /// Standard deviation of the logarithm of a task's time, for each task by itself.
    pub sigma: f64,
    /// The same of what all tasks of the job have in common: by how much its application was
    /// misjudged as a whole.
    pub shared_sigma: f64,
}

/// Tasks of a promised job that are not done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left {
    /// How many of them are alike.
    pub tasks: u32,
    /// Median time of one.
    pub median_s: f64,
    /// Standard deviation of the logarithm of its time.
    pub sigma: f64,
    /// For how long each has run.
    pub ran_s: f64,
}

/// What a promised job still needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// When it is due, in seconds from now.
    pub due_s: f64,
    /// At how much confidence it was promised.
    pub confidence: f64,
    /// Most cores that it can use.
    pub cores: u32,
    /// Core-seconds that it is expected to need.
    pub mean_s: f64,
    /// Their standard deviation.
    pub deviation_s: f64,
}

impl Claim {
    /// Of the tasks that are left. What a task ran already tells of how long it takes.
    #[must_use]
    pub fn of(
        due_s: f64,
        confidence: f64,
        shared_sigma: f64,
        left: impl IntoIterator<Item = Left>,
    ) -> Self {
        let (mut cores, mut mean_s, mut variance) = (0_u32, 0.0, 0.0);
        for left in left {
            let (mean, square) = rest(&left);
            let count = f64::from(left.tasks);
            cores = cores.saturating_add(left.tasks);
            mean_s += count * mean;
            variance += count * (square - mean * mean).max(0.0);
        }
        let spread = libm::exp(shared_sigma * shared_sigma);
        mean_s *= libm::sqrt(spread);
        let variance = variance + mean_s * mean_s * (spread - 1.0);
        Self { due_s, confidence, cores, mean_s, deviation_s: libm::sqrt(variance) }
    }
}

/// The mean time that a task still needs, and the mean of its square.
fn rest(left: &Left) -> (f64, f64) {
    let Left { median_s, sigma, ran_s, .. } = *left;
    let half = sigma * sigma / 2.0;
    let (mean, square) = (median_s * libm::exp(half), median_s * median_s * libm::exp(4.0 * half));
    if ran_s <= 0.0 || median_s <= 0.0 {
        return (mean, square);
    }
    let at = libm::log(ran_s / median_s) / sigma.max(1e-6);
    let beyond = below(-at);
    if beyond < 1e-9 {
        // It has run far longer than was thought possible: about as long again.
        return (ran_s, 2.0 * ran_s * ran_s);
    }
    let whole = mean * below(sigma - at) / beyond;
    let whole_square = square * below(2.0 * sigma - at) / beyond;
    let rest = (whole - ran_s).max(0.0);
    let rest_square = whole_square - 2.0 * ran_s * whole + ran_s * ran_s;
    (rest, rest_square.max(rest * rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(ran_s: f64) -> Left {
        Left { tasks: 1, median_s: 100.0, sigma: 0.3, ran_s }
    }

    #[test]
    fn what_ran_long_is_expected_to_need_less_but_never_nothing() {
        let fresh = rest(&left(0.0)).0;
        assert!((fresh - 100.0 * libm::exp(0.045)).abs() < 1e-9);
        let (early, late) = (rest(&left(30.0)).0, rest(&left(150.0)).0);
        assert!((early - (fresh - 30.0)).abs() < 1.0, "{early}");
        assert!(late > 10.0 && late < early, "{late}");
        assert!(rest(&left(100_000.0)).0 > 0.0);
    }

    #[test]
    fn a_claim_adds_up_its_tasks_and_what_they_have_in_common() {
        let tasks = Left { tasks: 9, ..left(0.0) };
        let alone = Claim::of(60.0, 0.9, 0.0, [tasks]);
        let (mean, square) = rest(&left(0.0));
        assert!((alone.mean_s - 9.0 * mean).abs() < 1e-9);
        assert!((alone.deviation_s - 3.0 * libm::sqrt(square - mean * mean)).abs() < 1e-9);
        let shared = Claim::of(60.0, 0.9, 0.2, [tasks]);
        assert!(shared.deviation_s > alone.deviation_s && shared.cores == 9);
        assert_eq!(Claim::of(1.0, 0.9, 0.2, []).mean_s, 0.0);
    }
}
