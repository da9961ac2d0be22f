//! How much of a shared server others use.

use crate::dice::Dice;

/// Length of one sample, in seconds.
pub(super) const SAMPLE_S: f64 = 300.0;
/// Samples of a day.
pub(crate) const SAMPLES: usize = 288;
/// The CPU percentages of one server over a day, one every five minutes; the day repeats.
pub(crate) type Day = [f64; SAMPLES];

/// Under this percentage a server counts as idle.
const IDLE_PERCENT: f64 = 10.0;
/// Median run of idle samples, in samples; with its spread the mean is eight.
const IDLE_RUN: f64 = 1.9;
/// Standard deviation of the logarithm of an idle run.
const IDLE_RUN_SIGMA: f64 = 1.8;
/// Median run of busy samples, in samples; the mean is between four and five.
const BUSY_RUN: f64 = 1.1;
/// Standard deviation of the logarithm of a busy run.
const BUSY_RUN_SIGMA: f64 = 1.7;
/// Mean percentage while idle.
const IDLE_MEAN: f64 = 3.2;
/// Mean percentage while busy, beyond the idle limit.
const BUSY_MEAN: f64 = 20.0;
/// Standard deviation of the logarithm of that mean's samples.
const BUSY_SIGMA: f64 = 0.9;
/// Longest run that is drawn, in samples.
const RUN_MAX: f64 = 2.0 * SAMPLES as f64;

/// A made-up day with the statistics of recorded ones: runs of idle and of busy samples in turn,
/// both log-normal, a level for each run and a tenth of noise on each sample.
///
/// The recorded day of 2011-03-03 of 1052 PlanetLab nodes: mean 12.3 %, 65 % of samples under
/// 10 %, an idle run lasts 40 min on average and 10 min in the median, a busy one 22 and 5 min;
/// idle samples are at 3.2 % on average, busy ones at 29 %.
///
/// Source: the CoMon traces published by A. Beloglazov, planetlab-workload-traces.
pub(super) fn synthetic_day(dice: &mut Dice) -> Day {
    let mut day = [0.0; SAMPLES];
    let mut idle = dice.happens(0.65);
    let mut at = 0;
    let mut is_first = true;
    while at < SAMPLES {
        let (median, sigma) =
            if idle { (IDLE_RUN, IDLE_RUN_SIGMA) } else { (BUSY_RUN, BUSY_RUN_SIGMA) };
        let drawn = (median * libm::exp(sigma * dice.normal())).clamp(1.0, RUN_MAX);
        // The day begins somewhere within its first run.
        let run = if is_first { drawn * dice.unit() } else { drawn };
        is_first = false;
        let level = if idle {
            dice.exponential(IDLE_MEAN).min(0.9 * IDLE_PERCENT)
        } else {
            IDLE_PERCENT + dice.log_normal(BUSY_MEAN, BUSY_SIGMA)
        };
        let samples = (libm::round(run) as usize).clamp(1, SAMPLES - at);
        for sample in &mut day[at..at + samples] {
            let noisy = level * dice.uniform(0.9, 1.1);
            let (least, most) = if idle { (0.0, 9.9) } else { (IDLE_PERCENT, 100.0) };
            *sample = libm::round(noisy.clamp(least, most));
            if idle {
                *sample = sample.min(9.0);
            }
        }
        at += samples;
        idle = !idle;
    }
    day
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the runs of samples that are idle, or busy, in minutes.
    fn runs(days: &[Day], idle: bool) -> Vec<usize> {
        let mut runs: Vec<usize> = Vec::new();
        for day in days {
            let mut before = !idle;
            for sample in day {
                let is_idle = *sample < IDLE_PERCENT;
                if is_idle == idle {
                    if before == idle {
                        *runs.last_mut().expect("a run began") += 5;
                    } else {
                        runs.push(5);
                    }
                }
                before = is_idle;
            }
        }
        runs.sort_unstable();
        runs
    }

    #[test]
    fn made_up_days_have_the_statistics_of_recorded_ones() {
        let mut dice = Dice::new(1, 1);
        let days: Vec<Day> = (0..1052).map(|_| synthetic_day(&mut dice)).collect();
        let samples: Vec<f64> = days.iter().flatten().copied().collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let idle = samples.iter().filter(|load| **load < IDLE_PERCENT).count();
        let idle_share = idle as f64 / samples.len() as f64;
        assert!((11.0..14.0).contains(&mean), "mean {mean} %");
        assert!((0.63..0.68).contains(&idle_share), "idle share {idle_share}");
        let idle = runs(&days, true);
        let mean_run = idle.iter().sum::<usize>() as f64 / idle.len() as f64;
        let median = idle[idle.len() / 2];
        assert!((36.0..42.0).contains(&mean_run), "mean idle run {mean_run} min");
        assert_eq!(median, 10, "median idle run in minutes");
    }
}
