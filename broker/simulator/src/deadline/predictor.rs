//! How well run times are predicted.

use std::collections::BTreeMap;

use gleaner_scheduling::deadline::{Predictor, RecordedRun};

use super::tables;
use crate::parameters::Parameter;
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Scenario};

/// The predictor on a table of recorded runs.
pub(super) struct PredictorErrors;

/// Names of mean, greatest and least error.
type Names = [&'static str; 3];

const IN_SAMPLE: Names =
    ["in_sample_mean_percent", "in_sample_max_percent", "in_sample_min_percent"];
const LEAVE_ONE_OUT: Names =
    ["leave_one_out_mean_percent", "leave_one_out_max_percent", "leave_one_out_min_percent"];
const TWO_SIZES: Names =
    ["two_sizes_mean_percent", "two_sizes_max_percent", "two_sizes_min_percent"];
const OTHER_SIZES: Names =
    ["other_sizes_mean_percent", "other_sizes_max_percent", "other_sizes_min_percent"];

impl Scenario for PredictorErrors {
    fn name(&self) -> &'static str {
        "deadline-predictor"
    }

    fn about(&self) -> &'static str {
        "errors of predicted run times on a table of recorded runs"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![tables::runs_file()]
    }

    fn policies(&self) -> &'static [&'static str] {
        &["predictor"]
    }

    fn metrics(&self) -> &'static [Metric] {
        const fn metric(name: &'static str, about: &'static str) -> Metric {
            Metric { name, about, better: Better::Lower }
        }
        const ALL: &[Metric] = &[
            metric(IN_SAMPLE[0], "mean error over the runs that it has learned from"),
            metric(IN_SAMPLE[1], "greatest error over the runs that it has learned from"),
            metric(IN_SAMPLE[2], "least error over the runs that it has learned from"),
            metric(LEAVE_ONE_OUT[0], "mean error over runs, each after learning from all others"),
            metric(
                LEAVE_ONE_OUT[1],
                "greatest error over runs, each after learning from all others",
            ),
            metric(LEAVE_ONE_OUT[2], "least error over runs, each after learning from all others"),
            metric(
                TWO_SIZES[0],
                "mean error over all runs of two sizes after learning from one run of each",
            ),
            metric(
                TWO_SIZES[1],
                "greatest error over all runs of two sizes after learning from one run of each",
            ),
            metric(
                TWO_SIZES[2],
                "least error over all runs of two sizes after learning from one run of each",
            ),
            metric(
                OTHER_SIZES[0],
                "mean error over runs of sizes of which it has seen none: it cannot extrapolate from two",
            ),
            metric(OTHER_SIZES[1], "greatest error over runs of sizes of which it has seen none"),
            metric(OTHER_SIZES[2], "least error over runs of sizes of which it has seen none"),
        ];
        ALL
    }

    fn run(&self, order: &Order<'_>, _progress: &dyn Progress) -> Result<Outcome, String> {
        let runs = tables::runs(order.settings.file("runs_file"))?;
        let mut numbers = Numbers::new();
        report(&mut numbers, IN_SAMPLE, &in_sample(&runs)?);
        report(&mut numbers, LEAVE_ONE_OUT, &leave_one_out(&runs)?);
        let (two, others) = two_sizes(&runs)?;
        report(&mut numbers, TWO_SIZES, &two);
        report(&mut numbers, OTHER_SIZES, &others);
        let policies = order.policies.iter().map(|name| (*name, numbers.clone())).collect();
        Ok(Outcome { policies, ..Outcome::default() })
    }
}

fn fit(runs: &[RecordedRun]) -> Result<Predictor, String> {
    Predictor::fit(runs).map_err(|error| error.to_string())
}

/// Error of a prediction in percent of what was measured, without its sign.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Equation 3.
fn error_percent(predictor: &Predictor, run: &RecordedRun) -> f64 {
    100.0 * (predictor.predict(&run.parameters) - run.time_s).abs() / run.time_s
}

fn in_sample(runs: &[RecordedRun]) -> Result<Vec<f64>, String> {
    let predictor = fit(runs)?;
    Ok(runs.iter().map(|run| error_percent(&predictor, run)).collect())
}

fn leave_one_out(runs: &[RecordedRun]) -> Result<Vec<f64>, String> {
    let without = |place: usize| {
        let others = runs.iter().enumerate().filter(|(at, _)| *at != place);
        let others: Vec<_> = others.map(|(_, run)| run.clone()).collect();
        Ok(error_percent(&fit(&others)?, &runs[place]))
    };
    if runs.len() < 2 { Ok(Vec::new()) } else { (0..runs.len()).map(without).collect() }
}

/// For each pair of sizes: the errors over their runs after learning from one run of each, that
/// of median time, and the errors over the runs of all other sizes.
fn two_sizes(runs: &[RecordedRun]) -> Result<(Vec<f64>, Vec<f64>), String> {
    let mut sizes: BTreeMap<Vec<u64>, Vec<&RecordedRun>> = BTreeMap::new();
    for run in runs {
        let size = run.parameters.iter().map(|value| value.to_bits()).collect();
        sizes.entry(size).or_default().push(run);
    }
    for of_size in sizes.values_mut() {
        of_size.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    }
    let sizes: Vec<_> = sizes.into_values().collect();
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for first in 0..sizes.len() {
        for second in first + 1..sizes.len() {
            let median = |size: usize| sizes[size][(sizes[size].len() - 1) / 2].clone();
            let predictor = fit(&[median(first), median(second)])?;
            for (size, of_size) in sizes.iter().enumerate() {
                let errors = of_size.iter().map(|run| error_percent(&predictor, run));
                if [first, second].contains(&size) {
                    seen.extend(errors);
                } else {
                    unseen.extend(errors);
                }
            }
        }
    }
    Ok((seen, unseen))
}

/// Nothing is said of no errors at all.
fn report(numbers: &mut Numbers, names: Names, errors: &[f64]) {
    if errors.is_empty() {
        return;
    }
    numbers.insert(names[0], errors.iter().sum::<f64>() / errors.len() as f64);
    numbers.insert(names[1], errors.iter().copied().fold(0.0, f64::max));
    numbers.insert(names[2], errors.iter().copied().fold(f64::INFINITY, f64::min));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Settings;
    use crate::scenario::Quiet;

    #[test]
    fn the_published_errors_are_met() {
        let settings = Settings::defaults(&PredictorErrors.parameters());
        let order =
            Order { settings: &settings, seed: 1, policies: &["predictor"], measure: false };
        let outcome = PredictorErrors.run(&order, &Quiet).expect("the published runs");
        let numbers = &outcome.policies[0].1;
        let rounds_to = |name, digits: f64, published: f64| {
            let found: f64 = numbers[name];
            assert_eq!((found * digits).round() / digits, published, "{name}");
        };
        rounds_to("in_sample_mean_percent", 100.0, 2.94);
        rounds_to("in_sample_max_percent", 10.0, 7.2);
        rounds_to("leave_one_out_mean_percent", 100.0, 3.73);
        rounds_to("leave_one_out_max_percent", 100.0, 9.27);
        assert!(numbers["in_sample_min_percent"] < 0.1);
        assert!(numbers["two_sizes_max_percent"] < 10.0);
    }
}
