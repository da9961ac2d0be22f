//! What became of all promises.

use std::collections::BTreeMap;

use serde::Serialize;

use super::checks::Statement;
use super::classes::{Classes, Statements, error_by_chance};
use super::decider::Kind;
use super::farm::Farm;
use super::world::Outcome;

/// Fewest promises of a week that is looked at alone.
const WEEK_PROMISES_MIN: u64 = 20;
const WEEK_S: f64 = 7.0 * 86_400.0;

/// Names, what they are, and which way is better.
pub(super) const METRICS: &[(&str, &str, &str)] = &[
    ("accepted", "jobs that were promised, as wished or as offered", "neither"),
    ("in_time_share", "of these, done by their due times", "neither"),
    (
        "worst_week_share",
        "the same of the week where it is least, of those with 20 promises",
        "higher",
    ),
    ("calibration_error", "mean distance of said chances of open cores from what came", "lower"),
    (
        "calibration_error_by_chance",
        "the same where all chances are right: what so few that overlap leave to chance",
        "neither",
    ),
    ("brier", "mean squared error of said chances of open cores, 1, 2 and 4 hours ahead", "lower"),
    ("brier_climatology", "the same of the share of all past hours", "neither"),
    ("of_clairvoyant", "jobs in time, for each one of who knows the open cores to come", "higher"),
];

/// What became of the promises of a decider.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baseline {
    /// Jobs that were promised.
    pub accepted: u64,
    /// Of these, with the due time that was wished.
    pub as_wished: u64,
    /// Share of the promised jobs that were done in time.
    pub in_time_share: Option<f64>,
}

/// What became of all promises.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromisesReport {
    /// What was run.
    pub scenario: &'static str,
    /// Farms, each with its days.
    pub farms: Vec<(String, f64)>,
    /// Jobs that were submitted.
    pub submitted: u64,
    /// Jobs that were promised.
    pub accepted: u64,
    /// Of these, with the due time that was wished.
    pub as_wished: u64,
    /// Share of the promised jobs that were done in time.
    pub in_time_share: Option<f64>,
    /// The same of the worst week.
    pub worst_week_share: Option<f64>,
    /// Mean distance of said chances of open cores from what came.
    pub calibration_error: Option<f64>,
    /// The same where all chances are right: what so few statements that overlap leave to chance.
    pub calibration_error_by_chance: Option<f64>,
    /// The same of the chances that promises were said to have.
    pub promise_calibration_error: Option<f64>,
    /// Mean squared error of said chances, up to four hours ahead.
    pub brier: Option<f64>,
    /// The same of the climatology.
    pub brier_climatology: Option<f64>,
    /// Mean squared error of said chances, a day ahead.
    pub brier_24h: Option<f64>,
    /// The same of the climatology.
    pub brier_climatology_24h: Option<f64>,
    /// Jobs in time, for each one of the clairvoyant decider.
    pub of_clairvoyant: Option<f64>,
    /// The other deciders.
    pub baselines: BTreeMap<&'static str, Baseline>,
}

/// What one decider's promises add up to.
#[derive(Debug, Default)]
pub(super) struct Promises {
    accepted: u64,
    pub(super) as_wished: u64,
    in_time: u64,
    /// Promises and how many were kept, by farm and week.
    weeks: BTreeMap<(u64, u64), (u64, u64)>,
    classes: Classes,
}

impl Promises {
    /// Adds one that was made so long after the first judged moment.
    pub(super) fn add(&mut self, farm: u64, since_s: f64, outcome: &Outcome) {
        self.accepted += 1;
        self.in_time += u64::from(outcome.kept);
        let week = self.weeks.entry((farm, (since_s / WEEK_S) as u64)).or_default();
        week.0 += 1;
        week.1 += u64::from(outcome.kept);
        self.classes.add(outcome.said, outcome.kept);
    }

    fn baseline(&self) -> Baseline {
        let Self { accepted, as_wished, in_time, .. } = *self;
        Baseline { accepted, as_wished, in_time_share: share(in_time as f64, accepted as f64) }
    }

    fn worst_week(&self) -> Option<f64> {
        let weeks = self.weeks.values().filter(|week| week.0 >= WEEK_PROMISES_MIN);
        weeks.map(|week| week.1 as f64 / week.0 as f64).min_by(f64::total_cmp)
    }
}

/// Squared errors.
#[derive(Debug, Default)]
struct Squares {
    count: f64,
    said: f64,
    climatology: f64,
}

/// Adds up all farms.
pub(super) struct Tally {
    farms: Vec<(String, f64)>,
    pub(super) submitted: u64,
    deciders: [Promises; Kind::ALL.len()],
    classes: Classes,
    /// Of each farm.
    statements: Vec<Statements>,
    near: Squares,
    day: Squares,
}

impl Tally {
    pub(super) fn new(farms: &[Farm]) -> Self {
        let farm = |farm: &Farm| (farm.name.clone(), farm.length_s() / 86_400.0);
        Self {
            farms: farms.iter().map(farm).collect(),
            submitted: 0,
            deciders: Default::default(),
            classes: Classes::default(),
            statements: farms.iter().map(|_| Statements::default()).collect(),
            near: Squares::default(),
            day: Squares::default(),
        }
    }

    pub(super) fn of(&mut self, kind: Kind) -> &mut Promises {
        &mut self.deciders[kind as usize]
    }

    pub(super) fn state(&mut self, farm: usize, statement: &Statement) {
        let came = if statement.came { 1.0 } else { 0.0 };
        let squares = if statement.hours < 24 { &mut self.near } else { &mut self.day };
        let square = |chance: f64| (chance - came) * (chance - came);
        squares.count += 1.0;
        squares.said += square(statement.said);
        squares.climatology += square(statement.climatology);
        self.classes.add(statement.said, statement.came);
        self.statements[farm].add(statement);
    }

    pub(super) fn report(self, seed: u64) -> PromisesReport {
        let of = |kind: Kind| &self.deciders[kind as usize];
        let ours = of(Kind::Gleaner);
        let Baseline { accepted, as_wished, in_time_share } = ours.baseline();
        let (near, day) = (&self.near, &self.day);
        let baselines = [
            ("as_now", Kind::AsNow),
            ("climatology", Kind::Climatology),
            ("clairvoyant", Kind::Clairvoyant),
        ];
        PromisesReport {
            scenario: "promises",
            submitted: self.submitted,
            accepted,
            as_wished,
            in_time_share,
            worst_week_share: ours.worst_week(),
            calibration_error: self.classes.error(),
            calibration_error_by_chance: error_by_chance(&self.statements, seed),
            promise_calibration_error: ours.classes.error(),
            brier: share(near.said, near.count),
            brier_climatology: share(near.climatology, near.count),
            brier_24h: share(day.said, day.count),
            brier_climatology_24h: share(day.climatology, day.count),
            of_clairvoyant: share(ours.in_time as f64, of(Kind::Clairvoyant).in_time as f64),
            baselines: baselines.map(|(name, kind)| (name, of(kind).baseline())).into(),
            farms: self.farms,
        }
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
