//! What became of promises on a recorded farm: jobs with due times are submitted to it, each is
//! accepted with a chance or declined with the earliest due time, and what was accepted runs on
//! the cores that the farm really left.
//!
//! The deciders know what was seen so far and nothing else: the forecast of `gleaner-forecast`
//! begins with an empty record, and learns as it goes. Beside it decide `as_now`, for which as many
//! cores stay open as are open now; `climatology`, for which any past hours come again; and
//! `clairvoyant`, which knows how many cores the farm will leave, and of run times as little as the
//! others. Each has a world of its own with the same submissions. A submitter whose wish is
//! declined takes the due time that is offered, if it is within `patience_h` hours.
//!
//! Nothing is fitted to the log that is replayed: the constants of the forecast were chosen on days
//! that its page names, and tests of its quality leave these out (`--from-day`).
//!
//! # What is modelled
//! A farm is the number of its open cores, minute by minute: what is idle after the quiet period.
//! A task runs on any one of them. When cores go, the job that is due last gives way first; its
//! tasks stand still and go on when cores come back, as where hosts freeze. Files of loads
//! (`name,288 values`) are days of one farm behind each other, on which a server is open while its
//! load is under [`IDLE_PERCENT`].

mod checks;
mod classes;
mod decider;
mod farm;
mod report;
mod submissions;
mod world;

use gleaner_forecast::Forecaster;

pub use report::{Baseline, PromisesReport};

use self::checks::Checks;
use self::decider::{Decider, Kind};
use self::farm::Farm;
use self::report::Tally;
use self::submissions::Submissions;
use crate::catalogue::{MetricPage, ParameterPage, ScenarioPage};
use crate::parameters::Parameter;

/// Under this percentage a server of a file of loads is idle.
pub(crate) const IDLE_PERCENT: f64 = 10.0;
const MINUTE_S: u64 = 60;

/// What is replayed, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct PromisesConfig {
    /// Recordings, logs in the Standard Workload Format or of HTCondor, or days of loads.
    pub logs: Vec<String>,
    /// Where chance comes from.
    pub seed: u64,
    /// The chance that every submitter asks for.
    pub confidence: f64,
    /// Work that is submitted, as a share of all that is harvested.
    pub load: f64,
    /// Standard deviation of the logarithm of a task's time.
    pub sigma: f64,
    /// The same of what the tasks of a job have in common.
    pub shared_sigma: f64,
    /// Sampled futures of each decision.
    pub futures: usize,
    /// Within how many hours an offered due time is taken.
    pub patience_h: f64,
    /// Days at the beginning of each log that are seen, and in which nothing is submitted.
    pub from_day: f64,
    /// Days at the beginning of each log that are replayed; infinite for all.
    pub until_day: f64,
}

impl Default for PromisesConfig {
    fn default() -> Self {
        Self {
            logs: Vec::new(),
            seed: 1,
            confidence: 0.9,
            load: 0.4,
            sigma: 0.3,
            shared_sigma: 0.15,
            futures: 200,
            patience_h: 24.0,
            from_day: 0.0,
            until_day: f64::INFINITY,
        }
    }
}

/// Replays all logs. `told` hears from time to time which part is over, of a million.
///
/// # Errors
/// In words for the user: a log cannot be read, or is too short.
pub fn promises(config: &PromisesConfig, told: &dyn Fn(u32)) -> Result<PromisesReport, String> {
    let farms = farm::farms(&config.logs, config.until_day)?;
    let minutes: usize = farms.iter().map(Farm::minutes).sum();
    let mut tally = Tally::new(&farms);
    let mut before = 0;
    for (place, farm) in farms.iter().enumerate() {
        let told = |minute: usize| {
            let part = (before + minute) as u64 * 1_000_000 / minutes.max(1) as u64;
            told(u32::try_from(part).unwrap_or(1_000_000));
        };
        replay(farm, place as u64, config, &mut tally, &told);
        before += farm.minutes();
    }
    Ok(tally.report(config.seed))
}

fn replay(
    farm: &Farm,
    place: u64,
    config: &PromisesConfig,
    tally: &mut Tally,
    told: &dyn Fn(usize),
) {
    let mut forecaster = Forecaster::new(config.seed);
    let mut deciders = Kind::ALL.map(|kind| Decider::new(kind, config));
    let mut submissions = Submissions::new(farm, place, config);
    let mut checks = Checks::new(config, place);
    let first = (config.from_day * 1440.0) as usize;
    for minute in 0..farm.minutes() {
        let at_s = minute as u64 * MINUTE_S;
        let (idle, open) = farm.at(minute);
        forecaster.observe(at_s, idle, open);
        if minute % 60 == 0 {
            checks.hour(farm, minute, minute >= first, &forecaster, tally);
            told(minute);
        }
        while let Some(submission) = submissions.next(minute) {
            // What is due behind the end of the log has no outcome.
            let rest_s = farm.length_s() - at_s as f64;
            if minute < first || submission.lead_s > rest_s {
                continue;
            }
            tally.submitted += 1;
            for decider in &mut deciders {
                decider.submit(&submission, minute, farm, &forecaster, tally);
            }
        }
        for decider in &mut deciders {
            decider.run(minute, open, place, &mut forecaster, tally);
        }
    }
}

/// The scenario as it is listed. Its parameters are options of a command of its own.
#[must_use]
pub fn promises_page() -> ScenarioPage {
    let of = PromisesConfig::default();
    let parameters = [
        Parameter::file("log", "a log of a farm, or a day of loads; may be given often: --log"),
        Parameter::number(
            "confidence",
            of.confidence,
            (0.5, 0.99),
            "chance that submitters ask for: --confidence",
            "the default of gleaner submit",
        ),
        Parameter::number(
            "load",
            of.load,
            (0.01, 10.0),
            "work that is submitted, as a share of all that is harvested: --load",
            "chosen: jobs meet each other, and most can be promised",
        ),
        Parameter::number(
            "sigma",
            of.sigma,
            (0.0, 2.0),
            "standard deviation of the logarithm of a task's time: --sigma",
            "assumed: half of the tasks are within 20 % of the prediction",
        ),
        Parameter::number(
            "shared_sigma",
            of.shared_sigma,
            (0.0, 2.0),
            "the same of what the tasks of a job have in common: --shared-sigma",
            "assumed: half of the jobs are within 10 %",
        ),
        Parameter::number(
            "patience_h",
            of.patience_h,
            (0.0, 72.0),
            "within how many hours an offered due time is taken: --patience-h",
            "assumed: who is told that a job is done by tomorrow takes it",
        ),
        Parameter::number(
            "from_day",
            of.from_day,
            (0.0, 10_000.0),
            "days at the beginning of each log that are seen and not judged: --from-day",
            "all is judged",
        ),
        Parameter::number(
            "until_day",
            10_000.0,
            (1.0, 10_000.0),
            "days of each log that are replayed: --until-day",
            "all of them",
        ),
    ];
    let metric = |(name, about, better)| MetricPage { name, unit: None, about, better };
    ScenarioPage {
        scenario: "promises",
        about: "deadline jobs on a recorded farm: how many promises are kept: gleaner simulate promises --help",
        policies: &["as_now", "climatology", "clairvoyant", "gleaner"],
        parameters: parameters.iter().map(ParameterPage::of).collect(),
        metrics: report::METRICS.iter().copied().map(metric).collect(),
    }
}

#[cfg(test)]
mod tests;
