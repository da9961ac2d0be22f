//! `mixed-etc`: a matrix of expected times to compute, from a file.

mod file;

use super::figures::{self, BEST, MAKESPAN, OVER_BOUND, UTILIZATION, WORST, higher};
use crate::parameters::Parameter;
use crate::scenario::{Metric, Numbers, Order, Outcome, Progress, Scenario};

const POLICIES: &[&str] = &[
    "fcfs",
    "torque",
    "olb",
    "met",
    "mct",
    "sjf",
    "ljf",
    "min-min",
    "max-min",
    "sufferage",
    "sufferage-step",
    "gleaner",
];

const LEAST: Metric =
    higher("utilization_percent_least", "the same of the machine that works least");
const MOST: Metric = higher("utilization_percent_most", "the same of the machine that works most");
const METRICS: &[Metric] = &[MAKESPAN, BEST, WORST, OVER_BOUND, UTILIZATION, LEAST, MOST];

/// Jobs in the order of the file; every machine is a kind of its own; times in the file's unit.
pub(super) struct EtcFile;

impl Scenario for EtcFile {
    fn name(&self) -> &'static str {
        "mixed-etc"
    }

    fn about(&self) -> &'static str {
        "a batch on machines that are all different, by a file of expected times to compute"
    }

    fn parameters(&self) -> Vec<Parameter> {
        let form = "expected times to compute: a line with the numbers of jobs and machines, then the times on all machines job by job";
        let mut list = vec![Parameter::file("file", form)];
        list.extend(figures::parameters());
        list
    }

    fn policies(&self) -> &'static [&'static str] {
        POLICIES
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let path = order.settings.file("file");
        let path = path.ok_or("mixed-etc needs a matrix: give it with --set file=PATH")?;
        let workload = file::read(path)?;
        figures::contest(&workload, 1, order, progress, |used| {
            let least = used.iter().copied().fold(f64::INFINITY, f64::min);
            let most = used.iter().copied().fold(0.0, f64::max);
            Numbers::from([(LEAST.name, least), (MOST.name, most)])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Settings, Value};
    use crate::scenario::Quiet;

    fn run(name: &str) -> Outcome {
        let path = format!("{}/tests/etc/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut settings = Settings::defaults(&EtcFile.parameters());
        settings.set("file", Value::File(path));
        settings.set("fcfs_orders", Value::Count(3));
        settings.set("search_entries", Value::Count(30_000_000));
        let order = Order { settings: &settings, seed: 1, policies: POLICIES, measure: false };
        EtcFile.run(&order, &Quiet).expect("the file is a right one")
    }

    fn makespan(outcome: &Outcome, policy: &str) -> f64 {
        let found = outcome.policies.iter().find(|(name, _)| *name == policy);
        found.expect("it was asked for").1["makespan"]
    }

    /// File, makespans of policies, bound.
    type Known = (&'static str, [(&'static str, f64); 7], f64);

    /// Makespans that were computed independently, and agree with those published for the files.
    #[test]
    fn the_heuristics_give_the_known_makespans_through_the_core() {
        let known: [Known; 2] = [
            (
                "u_c_lolo.0",
                [
                    ("olb", 7306.60),
                    ("met", 39582.30),
                    ("mct", 6360.05),
                    ("min-min", 5441.43),
                    ("max-min", 6945.36),
                    ("sufferage-step", 5658.54),
                    ("sufferage", 5703.23),
                ],
                5132.83,
            ),
            (
                "u_i_lolo.0",
                [
                    ("olb", 8938.03),
                    ("met", 3399.28),
                    ("mct", 3137.35),
                    ("min-min", 2785.65),
                    ("max-min", 5177.71),
                    ("sufferage-step", 2639.32),
                    ("sufferage", 2673.83),
                ],
                2529.03,
            ),
        ];
        for (file, makespans, bound) in known {
            let outcome = run(file);
            assert_eq!(format!("{:.2}", outcome.bound["makespan"]), format!("{bound:.2}"));
            for (policy, expected) in makespans {
                let got = makespan(&outcome, policy);
                assert_eq!(format!("{got:.2}"), format!("{expected:.2}"), "{file} {policy}");
            }
            assert_eq!(makespan(&outcome, "torque"), makespan(&outcome, "met"), "all kinds differ");
            assert!(makespan(&outcome, "gleaner") <= 1.01 * bound, "{file} {outcome:?}");
        }
    }
}
