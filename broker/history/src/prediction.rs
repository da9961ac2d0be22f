//! What is predicted of one run.

use std::sync::Arc;

use crate::levels::Levels;
use crate::model::Model;
use crate::residuals::Residuals;

/// Longest time that is predicted, in microseconds: ten years.
const LONGEST_US: f64 = 3.2e14;

/// From what a prediction comes.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// Runs of the application on this kind of host.
    Own,
    /// Its runs on another kind, and how the kinds compare.
    OtherKind {
        /// Which.
        kind: String,
        /// How much longer runs take on the asked kind than there.
        ratio: f64,
    },
}

/// How long a run will take, as a distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Half of such runs take no longer, in microseconds.
    pub median_us: u64,
    /// Ended runs that it is learned from.
    pub runs: usize,
    /// Its spread, in logarithms.
    pub sigma: f64,
    /// From what it comes.
    pub basis: Basis,
    log: f64,
    spread: f64,
    residuals: Arc<Residuals>,
    levels: Levels,
}

impl Prediction {
    /// Of a model, at a logarithm that its fit expects; `spread` is by how much more it spreads than
    /// the residuals.
    pub(crate) fn of(model: &Model, log: f64, spread: f64, basis: Basis) -> Self {
        let mut prediction = Self {
            median_us: 0,
            runs: model.ended,
            sigma: spread * model.residuals.sigma(),
            basis,
            log,
            spread,
            residuals: Arc::clone(&model.residuals),
            levels: model.levels,
        };
        prediction.median_us = prediction.quantile(0.5).round() as u64;
        prediction
    }

    /// The time that a part `p` of such runs does not exceed, in microseconds. Its level is the
    /// corrected one.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let residual = self.residuals.quantile(self.levels.corrected(p));
        libm::exp(self.log + self.spread * residual).clamp(1.0, LONGEST_US)
    }

    /// One such run, in microseconds, for `u` drawn evenly from 0 to 1.
    #[must_use]
    pub fn sample(&self, u: f64) -> f64 {
        self.quantile(u)
    }

    /// One such run that has taken `so_far_us` already, for `u` drawn evenly from 0 to 1.
    #[must_use]
    pub fn sample_beyond(&self, so_far_us: f64, u: f64) -> f64 {
        let place = 1.0 - self.chance_beyond(so_far_us);
        self.quantile(place + (1.0 - place) * u).max(so_far_us)
    }

    /// The chance that such a run takes longer than this.
    #[must_use]
    pub fn chance_beyond(&self, time_us: f64) -> f64 {
        // Quantiles grow with their level.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..32 {
            let middle = 0.5 * (low + high);
            if self.quantile(middle) <= time_us { low = middle } else { high = middle }
        }
        1.0 - low
    }
}
