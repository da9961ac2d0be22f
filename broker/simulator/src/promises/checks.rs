//! Statements about the farm alone, each hour: so many cores will be open on average over the
//! next hours. They are checked against what came, beside what the climatology says.
//!
//! The number of cores is drawn from all past hours, so that no statement is easy by its number.
//! The climatology is the share of all past hours, of which there are as many as of the farm.

use gleaner_forecast::Forecaster;

use super::PromisesConfig;
use super::farm::Farm;
use super::report::Tally;
use crate::dice::Dice;

/// Purpose of random numbers.
const NUMBERS: u64 = 3;
/// How far ahead, in hours.
pub(super) const HOURS: [usize; 4] = [1, 2, 4, 24];
/// Fewest past windows of which a climatology is made.
const WINDOWS_MIN: usize = 24;
/// Statements for each time ahead.
const STATEMENTS: usize = 2;
/// How many sampled futures.
const FUTURES: usize = 400;

pub(super) struct Checks {
    dice: Dice,
    /// Of the farm.
    place: usize,
    /// Past means for each of [`HOURS`], the least first.
    past: [Vec<f32>; HOURS.len()],
}

/// A statement, and whether it came true.
pub(super) struct Statement {
    /// The hour of the log in which it is made, and of how many hours it speaks.
    pub(super) at: usize,
    pub(super) hours: usize,
    pub(super) said: f64,
    pub(super) climatology: f64,
    pub(super) came: bool,
}

impl Checks {
    pub(super) fn new(config: &PromisesConfig, place: u64) -> Self {
        let dice = Dice::new(config.seed ^ place << 32, NUMBERS);
        Self { dice, place: place as usize, past: Default::default() }
    }

    /// An hour has passed.
    pub(super) fn hour(
        &mut self,
        farm: &Farm,
        minute: usize,
        is_judged: bool,
        forecaster: &Forecaster,
        tally: &mut Tally,
    ) {
        for (hours, past) in HOURS.iter().zip(&mut self.past) {
            if let Some(from) = minute.checked_sub(60 * hours) {
                let mean = farm.mean_open(from, minute) as f32;
                past.insert(past.partition_point(|other| *other < mean), mean);
            }
        }
        if !is_judged || self.past.iter().all(|past| past.len() < WINDOWS_MIN) {
            return;
        }
        let futures = forecaster.futures(86_400.0, FUTURES);
        for (hours, past) in HOURS.iter().zip(&self.past) {
            let until = minute + 60 * hours;
            if past.len() < WINDOWS_MIN || until > farm.minutes() {
                continue;
            }
            let ahead_s = 3600.0 * *hours as f64;
            let means = futures.means(ahead_s);
            let weights = forecaster.calibration().weights(&futures, ahead_s);
            let sum: f64 = weights.iter().sum();
            let truth = farm.mean_open(minute, until);
            for _ in 0..STATEMENTS {
                // A thousandth of a core less: what is as it always was has come true.
                let cores = f64::from(past[self.dice.below(past.len())]) - 1e-3;
                let enough = |mean: &f32| f64::from(*mean) >= cores;
                let reached = means.iter().zip(&weights).filter(|(mean, _)| enough(mean));
                tally.state(
                    self.place,
                    &Statement {
                        at: minute / 60,
                        hours: *hours,
                        said: reached.map(|(_, weight)| weight).sum::<f64>() / sum,
                        climatology: past.iter().filter(|mean| enough(mean)).count() as f64
                            / past.len() as f64,
                        came: truth >= cores,
                    },
                );
            }
        }
    }
}
