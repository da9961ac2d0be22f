//! A log-linear fit: the logarithm of a time as a sum over logarithms of features.
//!
//! Features enter one after the other, each time the one that explains most of what is left, as long
//! as that makes what was left out better predicted. Runs that were cut off count with what they
//! would have taken on average, given how long they ran.
//!
//! Sources: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing Systems",
//! 2012, Section IV.2 (products of contributions of an application's parameters, by regression);
//! D. M. Allen, "The relationship between variable selection and data augmentation and a method for
//! prediction", 1974 (the error of what is left out); J. Schmee and G. J. Hahn, "A simple method for
//! regression analysis with censored data", 1979.

use std::collections::BTreeMap;

use crate::limits::FEATURES_USED_MAX;
use crate::normal;
use crate::residuals::Residual;
use crate::run::{Clock, Run};

/// How often what cut-off runs would have taken is guessed anew.
const GUESSES: usize = 6;
/// A column adds something where more than this part of it is left beside the earlier ones.
const RANK_TOLERANCE: f64 = 1e-6;
/// A run that decides a coefficient alone says nothing of how good the fit is.
const LEVERAGE_MAX: f64 = 0.999;
/// By how much more a prediction far outside of all runs may spread.
const SPREAD_MAX: f64 = 5.0;
/// Spread of a fit to one run.
const SIGMA_UNKNOWN: f64 = 0.5;

/// What was learned from some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Mean of the logarithms of the times.
    mean: f64,
    terms: Vec<Term>,
    rows: f64,
    sigma: Option<f64>,
}

/// A feature that the fit uses.
#[derive(Debug, Clone, PartialEq)]
struct Term {
    column: Column,
    /// Its parts along the directions of the terms before it.
    before: Vec<f64>,
    /// What is left of it.
    length: f64,
    /// The part of the times along that.
    along: f64,
}

/// How a feature becomes a number of the fit.
#[derive(Debug, Clone, PartialEq)]
struct Column {
    name: String,
    /// Whether its logarithm is meant: it is positive in each run.
    is_log: bool,
    mean: f64,
    scale: f64,
    least: f64,
    most: f64,
}

/// A run as a fit sees it.
struct Row {
    log: f64,
    ended: bool,
}

impl Fit {
    /// Learns from runs, where one of them ended; and how far each that has a time by this clock is
    /// from what was learned.
    #[must_use]
    pub fn of<'a>(
        runs: impl IntoIterator<Item = &'a Run>,
        clock: Clock,
    ) -> Option<(Self, Vec<Residual>)> {
        let timed = runs.into_iter().filter_map(|run| Some((run, run.log_time(clock)?)));
        let (mut ended, mut cut): (Vec<_>, Vec<_>) = timed.partition(|(run, _)| run.ended);
        if ended.is_empty() {
            return None;
        }
        let ended_runs: Vec<&Run> = ended.iter().map(|(run, _)| *run).collect();
        let columns = columns(&ended_runs);
        let rows: Vec<Row> = ended.iter().map(|(_, log)| Row { log: *log, ended: true }).collect();
        let mut fit = Self::to(&ended_runs, &rows, columns.clone());
        // Those that say more than that they were cut off before anything was to be expected.
        let sigma = fit.0.sigma.unwrap_or(SIGMA_UNKNOWN).max(0.05);
        let telling = |run: &Run, log: f64| log > fit.0.log_of(&run.features) - 2.0 * sigma;
        let (telling, idle): (Vec<_>, Vec<_>) =
            cut.drain(..).partition(|(run, log)| telling(run, *log));
        if !telling.is_empty() {
            let bounds = telling.clone();
            ended.extend(telling);
            let all: Vec<&Run> = ended.iter().map(|(run, _)| *run).collect();
            for _ in 0..GUESSES {
                let sigma = fit.0.sigma.unwrap_or(SIGMA_UNKNOWN).max(0.05);
                let guessed = bounds.iter().map(|(run, log)| {
                    let expected = fit.0.log_of(&run.features);
                    let z = (log - expected) / sigma;
                    Row { log: expected + sigma * normal::mean_above(z), ended: false }
                });
                let rows = rows.iter().map(|row| Row { log: row.log, ended: true });
                let rows: Vec<Row> = rows.chain(guessed).collect();
                fit = Self::to(&all, &rows, columns.clone());
            }
            // Of those cut off it counts where that was.
            fit.1.truncate(rows.len());
            cut.extend(bounds);
        }
        cut.extend(idle);
        let (fit, mut residuals) = fit;
        residuals.extend(cut.iter().map(|(run, log)| {
            let spread = fit.spread(&run.features);
            Residual { log: (log - fit.log_of(&run.features)) / spread, ended: false }
        }));
        residuals.retain(|one| one.log.is_finite());
        Some((fit, residuals))
    }

    /// The fit to rows, and what is left over of each, as it would be if the row were another.
    fn to(runs: &[&Run], rows: &[Row], columns: Vec<Column>) -> (Self, Vec<Residual>) {
        let count = rows.len();
        let mean = rows.iter().map(|row| row.log).sum::<f64>() / count as f64;
        let mut left: Vec<f64> = rows.iter().map(|row| row.log - mean).collect();
        let mut leverage = vec![1.0 / count as f64; count];
        let mut waiting: Vec<Candidate> =
            columns.into_iter().map(|column| Candidate::of(column, runs)).collect();
        let ended = rows.iter().filter(|row| row.ended).count();
        let most = FEATURES_USED_MAX.min(ended.saturating_sub(2) / 2);
        let mut path = vec![Step::of(&left, &leverage, None)];
        let mut terms = Vec::new();
        while terms.len() < most
            && let Some(best) = best_of(&waiting, &left)
        {
            let Candidate { column, rest, before, .. } = waiting.swap_remove(best);
            let length = dot(&rest, &rest).sqrt();
            let direction: Vec<f64> = rest.iter().map(|value| value / length).collect();
            let along = dot(&direction, &left);
            subtract(&mut left, along, &direction);
            for (leverage, part) in leverage.iter_mut().zip(&direction) {
                *leverage += part * part;
            }
            waiting.iter_mut().for_each(|candidate| candidate.leave_out(&direction));
            waiting.retain(Candidate::adds);
            terms.push(Term { column, before, length, along });
            let step = Step::of(&left, &leverage, path.last());
            path.push(step);
        }
        // The fewest terms of those that predict best.
        let mut used = 0;
        for at in 1..path.len() {
            if path[at].error < path[used].error * (1.0 - 1e-9) {
                used = at;
            }
        }
        terms.truncate(used);
        let step = path.swap_remove(used);
        let squares = rows.iter().zip(&step.left).filter(|(row, _)| row.ended);
        let squares: f64 = squares.map(|(_, left)| left * left).sum();
        let free = ended as f64 - used as f64 - 1.0;
        let sigma = (free > 0.0).then(|| (squares / free).sqrt());
        let residuals = rows.iter().zip(&step.left).zip(&step.leverage);
        let residuals = residuals.map(|((row, left), leverage)| {
            let free = if *leverage > LEVERAGE_MAX { 0.0 } else { 1.0 - leverage };
            Residual { log: left / free.sqrt(), ended: row.ended }
        });
        let residuals = residuals.collect();
        (Self { mean, terms, rows: count as f64, sigma }, residuals)
    }

    /// The logarithm of the time in microseconds that is expected of such features.
    #[must_use]
    pub fn log_of(&self, features: &BTreeMap<String, f64>) -> f64 {
        let places = self.places(features);
        self.mean + self.terms.iter().zip(places).map(|(term, at)| term.along * at).sum::<f64>()
    }

    /// By how much more the times of such features spread than those of the runs did.
    #[must_use]
    pub fn spread(&self, features: &BTreeMap<String, f64>) -> f64 {
        let squares: f64 = self.places(features).iter().map(|at| at * at).sum();
        (1.0 + 1.0 / self.rows + squares).sqrt().min(SPREAD_MAX)
    }

    /// The spread of what is left over, in logarithms; none of so few runs that nothing is.
    #[must_use]
    pub fn sigma(&self) -> Option<f64> {
        self.sigma
    }

    /// Where features are along the direction of each term.
    fn places(&self, features: &BTreeMap<String, f64>) -> Vec<f64> {
        let mut places: Vec<f64> = Vec::with_capacity(self.terms.len());
        for Term { column, before, length, .. } in &self.terms {
            let known = dot(before, &places);
            places.push((column.value(features) - known) / length);
        }
        places
    }

    /// The fit as a formula for people: seconds of features.
    #[must_use]
    pub fn formula(&self) -> String {
        let mut coefficients = vec![0.0; self.terms.len()];
        for at in (0..self.terms.len()).rev() {
            let after = at + 1..self.terms.len();
            let taken: f64 = after.map(|of| coefficients[of] * self.terms[of].before[at]).sum();
            coefficients[at] = (self.terms[at].along - taken) / self.terms[at].length;
        }
        let (mut constant, mut factors) = (self.mean - libm::log(1e6), String::new());
        for (Term { column, .. }, coefficient) in self.terms.iter().zip(coefficients) {
            let Column { name, is_log, mean, scale, .. } = column;
            let power = coefficient / scale;
            constant -= power * mean;
            let factor = match is_log {
                true => format!(" × {name}^{power:.2}"),
                false => format!(" × exp({power:.3e} × {name})"),
            };
            factors.push_str(&factor);
        }
        format!("{} s{factors}", short(libm::exp(constant)))
    }
}

/// A number with three digits that count.
fn short(value: f64) -> String {
    if (0.01..10_000.0).contains(&value) { format!("{value:.3}") } else { format!("{value:.2e}") }
}

/// One feature more or less.
struct Step {
    left: Vec<f64>,
    leverage: Vec<f64>,
    /// What each row is off by where it is left out.
    left_out: Vec<f64>,
    error: f64,
}

impl Step {
    fn of(left: &[f64], leverage: &[f64], before: Option<&Self>) -> Self {
        let left_out = left.iter().zip(leverage).enumerate().map(|(at, (left, leverage))| {
            // Without it nothing would be known of it that was not known with one feature less.
            match (*leverage > LEVERAGE_MAX, before) {
                (false, _) => left / (1.0 - leverage),
                (true, Some(before)) => before.left_out[at],
                (true, None) => 0.0,
            }
        });
        let left_out: Vec<f64> = left_out.collect();
        let error = dot(&left_out, &left_out);
        Self { left: left.to_vec(), leverage: leverage.to_vec(), left_out, error }
    }
}

/// A feature that no term uses yet.
struct Candidate {
    column: Column,
    /// What is left of it beside the terms.
    rest: Vec<f64>,
    before: Vec<f64>,
    whole: f64,
}

impl Candidate {
    fn of(column: Column, runs: &[&Run]) -> Self {
        let mut rest: Vec<f64> = runs.iter().map(|run| column.value(&run.features)).collect();
        let mean = rest.iter().sum::<f64>() / rest.len() as f64;
        // Of rows that were cut off as well.
        let column = Column { mean: column.mean + mean * column.scale, ..column };
        rest.iter_mut().for_each(|value| *value -= mean);
        let whole = dot(&rest, &rest).sqrt();
        Self { column, rest, before: Vec::new(), whole }
    }

    fn leave_out(&mut self, direction: &[f64]) {
        let mut along = 0.0;
        for _ in 0..2 {
            let part = dot(direction, &self.rest);
            subtract(&mut self.rest, part, direction);
            along += part;
        }
        self.before.push(along);
    }

    fn adds(&self) -> bool {
        dot(&self.rest, &self.rest).sqrt() > RANK_TOLERANCE * self.whole
    }
}

/// The one that explains most of what is left.
fn best_of(waiting: &[Candidate], left: &[f64]) -> Option<usize> {
    let explained = |one: &Candidate| dot(&one.rest, left).powi(2) / dot(&one.rest, &one.rest);
    let all = waiting.iter().map(explained).enumerate();
    all.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map(|(at, _)| at)
}

/// The features that most of the runs have and that differ among them.
fn columns(runs: &[&Run]) -> Vec<Column> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(|run| &run.features) {
        values.entry(name).or_default().push(*value);
    }
    let common = values.into_iter().filter(|(_, values)| 2 * values.len() >= runs.len());
    common.filter_map(|(name, values)| Column::of(name, values)).collect()
}

impl Column {
    fn of(name: &str, mut values: Vec<f64>) -> Option<Self> {
        let is_log = values.iter().all(|value| *value > 0.0);
        if is_log {
            values.iter_mut().for_each(|value| *value = libm::log(*value));
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let scale = variance.sqrt();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let differs = scale.is_finite() && scale > 1e-9 * mean.abs().max(1e-9);
        let name = name.to_owned();
        differs.then_some(Self { name, is_log, mean, scale, least, most })
    }

    /// In multiples of its spread from its mean, which is also what is taken where it is missing.
    fn value(&self, features: &BTreeMap<String, f64>) -> f64 {
        let Some(value) = features.get(&self.name) else { return 0.0 };
        let value = match self.is_log {
            true if *value > 0.0 => libm::log(*value),
            true => self.least,
            // A power of what was never seen would be anything.
            false => {
                let range = self.most - self.least;
                value.clamp(self.least - range, self.most + range)
            }
        };
        (value - self.mean) / self.scale
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn subtract(from: &mut [f64], factor: f64, direction: &[f64]) {
    from.iter_mut().zip(direction).for_each(|(value, part)| *value -= factor * part);
}

#[cfg(test)]
mod tests;
