//! A farm's record, and what was learned from what became of forecasts.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;
use crate::futures::Futures;
use crate::limits::{CHECK_FUTURES, CHECKED_HOURS, RANKS, STEPS_PER_HOUR};
use crate::record::CapacityRecord;
use crate::scale::Scale;

/// Foretells one farm. It may be stored, and goes on as it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Forecaster {
    record: CapacityRecord,
    calibration: Calibration,
    scale: Scale,
    /// Forecasts whose time has not come: at most as many as [`CHECKED_HOURS`] adds up to.
    checks: VecDeque<Check>,
    /// Hours that were closed when the last ones were made.
    checked_hours: u64,
    seed: u64,
}

/// A forecast that will be checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Check {
    class: usize,
    /// The number of its first step.
    from: u64,
    until: u64,
    /// Bounds between ranks, of mean open cores.
    bounds: Vec<f32>,
}

impl Forecaster {
    /// Of a farm of which nothing is known yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, scale: Scale::modest(), ..Self::default() }
    }

    /// From `at_s` on so many cores are idle, and so many of these open.
    pub fn observe(&mut self, at_s: u64, idle: u32, open: u32) {
        self.record.observe(at_s, idle, open);
        self.check();
    }

    /// From `at_s` on nobody knows.
    pub fn lose_sight(&mut self, at_s: u64) {
        self.record.lose_sight(at_s);
        self.check();
    }

    /// Lets time pass.
    pub fn advance(&mut self, at_s: u64) {
        self.record.advance(at_s);
        self.check();
    }

    /// What was seen.
    #[must_use]
    pub fn record(&self) -> &CapacityRecord {
        &self.record
    }

    /// What became of forecasts.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// What became of promises.
    #[must_use]
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Samples what may come.
    #[must_use]
    pub fn futures(&self, horizon_s: f64, count: usize) -> Futures {
        Futures::sampled(&self.record, horizon_s, count, self.seed ^ self.record.closed())
    }

    /// Learns what became of a promise.
    pub fn learn(&mut self, said: f64, kept: bool) {
        self.scale.learn(said, kept);
    }

    /// Once an hour: counts what has come, and forecasts what will be checked.
    fn check(&mut self) {
        let closed = self.record.closed();
        let hours = closed / STEPS_PER_HOUR as u64;
        if hours == self.checked_hours {
            return;
        }
        self.checked_hours = hours;
        let (record, calibration) = (&self.record, &mut self.calibration);
        self.checks.retain(|check| {
            let is_due = check.until <= closed;
            if let Some(truth) = record.mean_open(check.from, check.until).filter(|_| is_due) {
                calibration.count(check.class, &check.bounds, truth as f32);
            }
            !is_due
        });
        let horizon_s = CHECKED_HOURS[CHECKED_HOURS.len() - 1] as f64 * 3600.0;
        let futures = self.futures(horizon_s, CHECK_FUTURES);
        for (class, hours) in CHECKED_HOURS.iter().enumerate() {
            let mut means = futures.means(*hours as f64 * 3600.0);
            means.sort_unstable_by(f32::total_cmp);
            let bounds = (1..RANKS).map(|rank| means[rank * means.len() / RANKS]).collect();
            let until = closed + (hours * STEPS_PER_HOUR) as u64;
            self.checks.push_back(Check { class, from: closed, until, bounds });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STEP_S;

    fn farm(steps: u64) -> Forecaster {
        let mut forecaster = Forecaster::new(1);
        for step in 0..steps {
            let open = 10 + (step / 40 % 7) as u32;
            forecaster.observe(step * STEP_S, open + 2, open);
        }
        forecaster
    }

    #[test]
    fn it_checks_itself_within_bounds() {
        let forecaster = farm(288 * 9);
        assert!(forecaster.checks.len() <= CHECKED_HOURS.iter().sum::<usize>());
        assert_ne!(forecaster.calibration, Calibration::default());
    }

    #[test]
    fn it_goes_on_as_it_was_after_it_was_stored() {
        let mut forecaster = farm(1000);
        forecaster.learn(0.9, false);
        let bytes = postcard::to_stdvec(&forecaster).expect("it is plain data");
        let stored: Forecaster = postcard::from_bytes(&bytes).expect("its own");
        assert_eq!(stored, forecaster);
        assert_eq!(stored.futures(3600.0, 50), forecaster.futures(3600.0, 50));
    }
}
