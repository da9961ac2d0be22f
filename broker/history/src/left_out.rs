//! How good a fit is: each run predicted by all the others.

use crate::fit::Fit;
use crate::run::{Clock, Run};

/// Runs that are left out, the last ones: each takes a fit of its own.
const LEFT_OUT_MAX: usize = 64;

/// Errors of runs, each predicted by all the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeftOut {
    /// Mean of them without their signs, in percent of what was measured.
    pub mean_percent: f64,
    /// The greatest.
    pub max_percent: f64,
    /// How many.
    pub runs: usize,
}

impl LeftOut {
    /// Of the runs of a series that ended; none where fewer than two did.
    #[must_use]
    pub fn of(runs: &[&Run], clock: Clock) -> Option<Self> {
        let ended = |run: &Run| run.ended && run.time_us(clock).is_some();
        let ended: Vec<usize> = (0..runs.len()).filter(|at| ended(runs[*at])).collect();
        if ended.len() < 2 {
            return None;
        }
        let last = &ended[ended.len().saturating_sub(LEFT_OUT_MAX)..];
        let error = |left_out: &usize| {
            let others = runs.iter().enumerate().filter(|(at, _)| at != left_out);
            let (fit, _) = Fit::of(others.map(|(_, run)| *run), clock)?;
            let run = runs[*left_out];
            let took = run.time_us(clock)? as f64;
            Some(100.0 * (libm::exp(fit.log_of(&run.features)) - took).abs() / took)
        };
        let errors: Vec<f64> = last.iter().filter_map(error).collect();
        let (sum, runs) = (errors.iter().sum::<f64>(), errors.len());
        let max_percent = errors.iter().copied().fold(0.0, f64::max);
        (runs > 0).then(|| Self { mean_percent: sum / runs as f64, max_percent, runs })
    }
}
