//! How far runs were from what was predicted for them: the distribution of what was left over, some
//! of which is known as a lower bound only.

use crate::normal;

/// Spread that is taken for one of nothing, in logarithms: most runs within a factor of 1.5.
const PRIOR_SIGMA: f64 = 0.3;
/// For how many runs that counts.
const PRIOR_RUNS: f64 = 1.0;
/// Least spread that is believed.
const SIGMA_MIN: f64 = 1e-3;

/// A run's residual: the logarithm of what it took over what was predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// The logarithm.
    pub log: f64,
    /// Whether the run came to its end; else its residual is this or more.
    pub ended: bool,
}

/// Their distribution, by the product-limit estimate, with normal tails beyond what was seen.
///
/// Source: E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", 1958.
#[derive(Debug, Clone, PartialEq)]
pub struct Residuals {
    /// Residuals of runs that ended, ascending, and the part of all runs up to each.
    steps: Vec<(f64, f64)>,
    sigma: f64,
}

impl Residuals {
    /// Of these residuals; `sigma` is the spread that their fit says.
    #[must_use]
    pub fn of(mut residuals: Vec<Residual>, sigma: Option<f64>) -> Self {
        let ended = residuals.iter().filter(|one| one.ended).count() as f64;
        let own = sigma.unwrap_or(0.0).powi(2);
        let degrees = if sigma.is_some() { (ended - 1.0).max(0.0) } else { 0.0 };
        let variance = (degrees * own + PRIOR_RUNS * PRIOR_SIGMA.powi(2)) / (degrees + PRIOR_RUNS);
        let sigma = variance.sqrt().max(SIGMA_MIN);
        // Of two alike the one that ended comes first: the other one took longer.
        residuals.sort_by(|a, b| a.log.total_cmp(&b.log).then(b.ended.cmp(&a.ended)));
        let (mut steps, mut above) = (Vec::new(), 1.0);
        for (at, one) in residuals.iter().enumerate() {
            if one.ended {
                let at_risk = (residuals.len() - at) as f64;
                let before = above;
                above *= 1.0 - 1.0 / at_risk;
                // In the middle of its step, so that none of them is the very end.
                steps.push((one.log, 1.0 - 0.5 * (before + above)));
            }
        }
        Self { steps, sigma }
    }

    /// The spread, in logarithms.
    #[must_use]
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// The residual that `p` of all runs stay below.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let beyond =
            |log: f64, at: f64| log + self.sigma * (normal::quantile(p) - normal::quantile(at));
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return self.sigma * normal::quantile(p);
        };
        if p <= first.1 {
            return beyond(first.0, first.1);
        }
        if p >= last.1 {
            return beyond(last.0, last.1);
        }
        let next = self.steps.partition_point(|(_, at)| *at < p).max(1);
        let ((low, from), (high, to)) = (self.steps[next - 1], self.steps[next]);
        if to > from { low + (high - low) * (p - from) / (to - from) } else { high }
    }

    /// The part of all runs whose residual is above this.
    #[must_use]
    pub fn above(&self, log: f64) -> f64 {
        // The quantile function is continuous and grows: bisection ends at its inverse.
        let (mut low, mut high) = (1e-6, 1.0 - 1e-6);
        for _ in 0..32 {
            let middle = 0.5 * (low + high);
            if self.quantile(middle) < log { low = middle } else { high = middle }
        }
        1.0 - 0.5 * (low + high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(log: f64) -> Residual {
        Residual { log, ended: true }
    }

    fn at_least(log: f64) -> Residual {
        Residual { log, ended: false }
    }

    #[test]
    fn quantiles_are_those_of_what_was_seen_and_grow() {
        let seen = (0..100).map(|at| ended(f64::from(at) / 100.0)).collect();
        let residuals = Residuals::of(seen, Some(0.29));
        for p in [0.1, 0.5, 0.9] {
            assert!((residuals.quantile(p) - p).abs() < 0.011, "{p}: {}", residuals.quantile(p));
            assert!((residuals.above(residuals.quantile(p)) - (1.0 - p)).abs() < 1e-3);
        }
        let all: Vec<f64> = (1..1000).map(|p| residuals.quantile(f64::from(p) / 1e3)).collect();
        assert!(all.is_sorted(), "{all:?}");
        assert!(residuals.quantile(0.9999) > 1.0, "the tail goes on");
    }

    #[test]
    fn lower_bounds_move_what_is_left_to_the_right() {
        // Half of the runs were cut off at 0.6: without them the rest looks fast.
        let mut seen: Vec<_> = (0..50).map(|at| ended(f64::from(at) / 50.0)).collect();
        let without = Residuals::of(seen.clone(), Some(0.3));
        seen.extend([at_least(0.6); 50]);
        let with = Residuals::of(seen, Some(0.3));
        assert!(with.quantile(0.5) > without.quantile(0.5) + 0.1);
        // 31 had ended by then. The rest is as what went on: of 19, nine were above 0.8.
        assert!((with.above(0.8) - 0.69 * 9.5 / 19.0).abs() < 0.02, "{}", with.above(0.8));
    }

    #[test]
    fn few_runs_are_not_believed_to_know_the_spread() {
        let none = Residuals::of(Vec::new(), None);
        assert!((none.quantile(0.9) - PRIOR_SIGMA * 1.2816).abs() < 1e-3);
        let two = Residuals::of(vec![ended(0.0); 2], Some(0.0));
        assert!(two.quantile(0.9) > 0.1, "{}", two.quantile(0.9));
        let many = Residuals::of(vec![ended(0.0); 200], Some(0.001));
        assert!(many.quantile(0.9) < 0.01);
        assert!(Residuals::of(vec![at_least(1.0)], None).quantile(0.5).is_finite());
    }
}
