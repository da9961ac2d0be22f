//! Predicts how long a task runs from what its application says of its input.

use std::collections::BTreeMap;

use thiserror::Error;

use super::least_squares::least_squares;

/// Most parameters of an application: a product of so many contributions has 2^6 terms.
pub const PARAMETERS_MAX: usize = 6;

/// A recorded run of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRun {
    /// What it worked on, by name.
    pub subject: String,
    /// The application's parameters of it, such as the dimensions of an image.
    pub parameters: Vec<f64>,
    /// How long it ran on a whole core, in seconds.
    pub time_s: f64,
}

/// Why no predictor can be made of some runs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FitError {
    /// There is nothing to learn from.
    #[error("no recorded run to learn from")]
    NoRuns,
    /// An application with too many parameters.
    #[error("{0} parameters, at most {PARAMETERS_MAX} can be used")]
    TooManyParameters(usize),
    /// Runs that say different numbers of parameters.
    #[error("run {run} has {found} parameters, the first one has {expected}")]
    UnlikeParameters {
        /// Which, from 0.
        run: usize,
        /// How many it has.
        found: usize,
        /// How many the first one has.
        expected: usize,
    },
    /// A value that nothing can be learned from.
    #[error("run {0} has a parameter or a time that is not a positive finite number")]
    NotPositive(usize),
}

/// Execution time as the product of first-order contributions of the application's parameters,
/// `Π (a_i + b_i · l_i)`, whose expansion, a sum of products, is fitted by regression; terms of
/// low degree first, and only those that the recorded runs determine. A subject that was run
/// before contributes a factor of its own: how it compared to what its parameters say.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Equation (1) of Section IV.2 and the Predictor of Section V.2.2; that a subject
/// repeats its own time (within 2 %) is its Section III.5.2.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictor {
    terms: Vec<Term>,
    /// Mean of each parameter; parameters enter the terms in multiples of it.
    scales: Vec<f64>,
    subjects: BTreeMap<String, f64>,
}

/// A product of some parameters with its coefficient.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Term {
    /// Bit `i` is set where parameter `i` is a factor.
    factors: u32,
    coefficient: f64,
}

impl Predictor {
    /// Learns from recorded runs.
    ///
    /// # Errors
    /// There are none, or they say nothing usable.
    pub fn fit(runs: &[RecordedRun]) -> Result<Self, FitError> {
        let first = runs.first().ok_or(FitError::NoRuns)?;
        let width = first.parameters.len();
        if width > PARAMETERS_MAX {
            return Err(FitError::TooManyParameters(width));
        }
        for (run, entry) in runs.iter().enumerate() {
            let found = entry.parameters.len();
            if found != width {
                return Err(FitError::UnlikeParameters { run, found, expected: width });
            }
            let mut values = entry.parameters.iter().chain([&entry.time_s]);
            if !values.all(|value| value.is_finite() && *value > 0.0) {
                return Err(FitError::NotPositive(run));
            }
        }
        let mean =
            |of: usize| runs.iter().map(|run| run.parameters[of]).sum::<f64>() / runs.len() as f64;
        let scales: Vec<f64> = (0..width).map(mean).collect();
        let mut factors: Vec<u32> = (0..1 << width).collect();
        factors.sort_by_key(|factors| (factors.count_ones(), *factors));
        let column = |of: &u32| {
            runs.iter().map(|run| product(*of, &run.parameters, &scales)).collect::<Vec<_>>()
        };
        let columns: Vec<_> = factors.iter().map(column).collect();
        let times: Vec<f64> = runs.iter().map(|run| run.time_s).collect();
        let coefficients = least_squares(&columns, &times);
        let terms = factors.into_iter().zip(coefficients);
        let terms = terms
            .filter(|(_, coefficient)| *coefficient != 0.0)
            .map(|(factors, coefficient)| Term { factors, coefficient })
            .collect();
        let mut predictor = Self { terms, scales, subjects: BTreeMap::new() };
        predictor.subjects = predictor.learn_subjects(runs);
        Ok(predictor)
    }

    /// The time of a subject of these parameters that was never run, in seconds; 0 where the
    /// recorded runs lead to a negative one.
    #[must_use]
    pub fn predict(&self, parameters: &[f64]) -> f64 {
        let terms = self.terms.iter();
        terms
            .map(|term| term.coefficient * product(term.factors, parameters, &self.scales))
            .sum::<f64>()
            .max(0.0)
    }

    /// The time of a subject, in seconds: as [`Predictor::predict`], with its own contribution
    /// where it was run before.
    #[must_use]
    pub fn predict_subject(&self, subject: &str, parameters: &[f64]) -> f64 {
        self.predict(parameters) * self.subjects.get(subject).copied().unwrap_or(1.0)
    }

    /// What each subject took on average, over what its parameters say.
    fn learn_subjects(&self, runs: &[RecordedRun]) -> BTreeMap<String, f64> {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for run in runs {
            let sum = sums.entry(&run.subject).or_default();
            sum.0 += run.time_s;
            sum.1 += self.predict(&run.parameters);
        }
        let known = sums.into_iter().filter(|(_, (_, predicted))| *predicted > 0.0);
        known.map(|(subject, (took, predicted))| (subject.into(), took / predicted)).collect()
    }
}

fn product(factors: u32, parameters: &[f64], scales: &[f64]) -> f64 {
    let all = parameters.iter().zip(scales).enumerate();
    all.filter(|(of, _)| factors & (1 << of) != 0)
        .map(|(_, (value, scale))| value / scale)
        .product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(subject: &str, parameters: &[f64], time_s: f64) -> RecordedRun {
        RecordedRun { subject: subject.into(), parameters: parameters.into(), time_s }
    }

    #[test]
    fn a_product_of_contributions_is_learned_from_its_corners() {
        let time = |x: f64, y: f64| (2.0 + 3.0 * x) * (5.0 + y);
        let corners = [(1.0, 1.0), (1.0, 4.0), (2.0, 1.0), (2.0, 4.0)];
        let runs: Vec<_> =
            corners.iter().map(|(x, y)| run("corner", &[*x, *y], time(*x, *y))).collect();
        let predictor = Predictor::fit(&runs).expect("four runs");
        let error = predictor.predict(&[7.0, 9.0]) - time(7.0, 9.0);
        assert!(error.abs() < 1e-9, "{error}");
    }

    #[test]
    fn sizes_that_look_alike_are_met_in_their_mean() {
        let runs = [run("a", &[8.0], 90.0), run("b", &[8.0], 110.0), run("c", &[16.0], 300.0)];
        let predictor = Predictor::fit(&runs).expect("three runs");
        assert!((predictor.predict(&[8.0]) - 100.0).abs() < 1e-9);
        assert!((predictor.predict_subject("a", &[8.0]) - 90.0).abs() < 1e-9);
        assert!((predictor.predict_subject("never run", &[16.0]) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn runs_that_say_nothing_are_refused() {
        assert_eq!(Predictor::fit(&[]), Err(FitError::NoRuns));
        let unlike = [run("a", &[1.0], 1.0), run("b", &[1.0, 2.0], 1.0)];
        let refused = FitError::UnlikeParameters { run: 1, found: 2, expected: 1 };
        assert_eq!(Predictor::fit(&unlike), Err(refused));
        assert_eq!(Predictor::fit(&[run("a", &[1.0], f64::NAN)]), Err(FitError::NotPositive(0)));
        let wide = run("a", &[1.0; 7], 1.0);
        assert_eq!(Predictor::fit(&[wide]), Err(FitError::TooManyParameters(7)));
    }
}
