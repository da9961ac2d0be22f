//! What ratios of many rounds come to.

use serde::Serialize;

/// Fewest rounds of which an interval can be said.
pub(super) const ROUNDS_MIN: i64 = 6;

/// A median, and the interval in which it is with 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// Of so many rounds that there is one.
    pub(super) fn of(ratios: &[f64]) -> Self {
        let sorted = sorted(ratios);
        let outside = outside(sorted.len());
        let (low, high) = (sorted[outside], sorted[sorted.len() - 1 - outside]);
        Self { median: median(ratios), low, high }
    }
}

/// How many of so many ratios are left out at each end: each is below the median with one chance in two, and
/// with 2.5 % at most no more than these are.
fn outside(count: usize) -> usize {
    // The chance that `at` are below it, and that fewer are.
    let none = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut chance, mut sum, mut at) = (none, 0.0, 0);
    while at < count / 2 && sum + chance <= 0.025 {
        sum += chance;
        chance *= (count - at) as f64 / (at + 1) as f64;
        at += 1;
    }
    at.saturating_sub(1)
}

pub(super) fn median(all: &[f64]) -> f64 {
    let sorted = sorted(all);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn sorted(all: &[f64]) -> Vec<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_sign_test() {
        // As tables have it: of 6 all, of 10 from the 2nd to the 9th, of 20 from the 6th to the 15th.
        assert_eq!([6, 10, 20, 100].map(outside), [0, 1, 5, 39]);
        let ratios: Vec<f64> = (0..20).map(|at| f64::from((at * 7) % 20)).collect();
        assert_eq!(Ratio::of(&ratios), Ratio { median: 9.5, low: 5.0, high: 14.0 });
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
