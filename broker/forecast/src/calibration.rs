//! What became of earlier forecasts, and how much each future weighs by that.
//!
//! Of each checked forecast it is kept which rank the truth had among the futures. Where futures
//! are right, each rank is as likely. Where the truth is often among the lowest, the lowest
//! futures weigh more from then on.

use serde::{Deserialize, Serialize};

use crate::futures::Futures;
use crate::limits::{CHECKED_HOURS, RANK_HOURS, RANKS, UNIFORM_RANKS};

/// How often the truth had which rank, for each of some times ahead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    ranks: [[f64; RANKS]; CHECKED_HOURS.len()],
}

impl Default for Calibration {
    fn default() -> Self {
        Self { ranks: [[0.0; RANKS]; CHECKED_HOURS.len()] }
    }
}

impl Calibration {
    /// Counts the truth among the bounds between ranks of a forecast.
    pub(crate) fn count(&mut self, class: usize, bounds: &[f32], truth: f32) {
        // Checks are made every hour: those of a day ahead tell each other's news.
        let news = 1.0 / CHECKED_HOURS[class] as f64;
        let ranks = &mut self.ranks[class];
        let keep = libm::exp(-1.0 / RANK_HOURS);
        ranks.iter_mut().for_each(|count| *count *= keep);
        // As much as a core's thousandth is no difference.
        let low = bounds.partition_point(|bound| *bound < truth - 1e-3);
        let high = bounds.partition_point(|bound| *bound <= truth + 1e-3);
        let share = news / (high - low + 1) as f64;
        ranks[low..=high].iter_mut().for_each(|count| *count += share);
    }

    /// How much each path of `futures` weighs in what is said of the time until `until_s`.
    #[must_use]
    pub fn weights(&self, futures: &Futures, until_s: f64) -> Vec<f64> {
        let means = futures.means(until_s);
        let mut order: Vec<usize> = (0..means.len()).collect();
        order.sort_by(|a, b| means[*a].total_cmp(&means[*b]));
        let density = self.density(until_s);
        let mut weights = vec![1.0; means.len()];
        // Paths that are equal share what their ranks weigh.
        let mut from = 0;
        while from < order.len() {
            let alike = order[from..].iter().take_while(|path| means[**path] == means[order[from]]);
            let until = from + alike.count();
            let sum: f64 = (from..until).map(|rank| density[rank * RANKS / order.len()]).sum();
            for path in &order[from..until] {
                weights[*path] = sum / (until - from) as f64;
            }
            from = until;
        }
        weights
    }

    /// How much likelier each rank was than if all were alike, between two checked times.
    fn density(&self, until_s: f64) -> [f64; RANKS] {
        let hours = until_s / 3600.0;
        let above = CHECKED_HOURS.iter().position(|checked| *checked as f64 >= hours);
        let above = above.unwrap_or(CHECKED_HOURS.len() - 1);
        let below = above.saturating_sub(1);
        let log = |class: usize| libm::log(CHECKED_HOURS[class] as f64);
        let part = if above == below {
            1.0
        } else {
            ((libm::log(hours.max(0.1)) - log(below)) / (log(above) - log(below))).clamp(0.0, 1.0)
        };
        let (low, high) = (self.density_of(below), self.density_of(above));
        std::array::from_fn(|rank| (1.0 - part) * low[rank] + part * high[rank])
    }

    fn density_of(&self, class: usize) -> [f64; RANKS] {
        let ranks = &self.ranks[class];
        let sum: f64 = ranks.iter().sum::<f64>() + UNIFORM_RANKS;
        ranks.map(|count| RANKS as f64 * (count + UNIFORM_RANKS / RANKS as f64) / sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Vec<f32> {
        (1..RANKS).map(|bound| bound as f32).collect()
    }

    fn rising() -> Futures {
        let mut futures = Futures::steady(0.0, 3600.0, 100);
        let cells = futures.cells.len();
        for (place, cores) in futures.cores.iter_mut().enumerate() {
            *cores = (place / cells) as f32;
        }
        futures
    }

    #[test]
    fn where_nothing_was_checked_all_futures_weigh_the_same() {
        assert_eq!(Calibration::default().weights(&rising(), 3600.0), [1.0; 100]);
    }

    #[test]
    fn where_it_often_came_worse_the_worst_weigh_more() {
        let mut calibration = Calibration::default();
        (0..200).for_each(|_| calibration.count(0, &bounds(), 0.0));
        let weights = calibration.weights(&rising(), 3600.0);
        assert!(weights[0] > 5.0 && weights[99] < 0.5, "{weights:?}");
        let sum: f64 = weights.iter().sum();
        assert!((sum - 100.0).abs() < 1e-6, "{sum}");
        // What was checked an hour ahead says nothing of a day ahead.
        assert_eq!(calibration.weights(&rising(), 86_400.0), [1.0; 100]);
    }

    #[test]
    fn a_truth_that_is_as_all_futures_are_has_every_rank() {
        let mut calibration = Calibration::default();
        (0..200).for_each(|_| calibration.count(0, &[7.0; RANKS - 1], 7.0));
        let weights = calibration.weights(&rising(), 3600.0);
        assert!(weights.iter().all(|weight| (weight - 1.0).abs() < 1e-9), "{weights:?}");
    }
}
