//! A workload under all policies that are asked for, and the bound.

use gleaner_scheduling::mixed::{BatchConfig, Effort, Relaxation, Rule};

use super::workload::Workload;
use super::world::{self, Record};
use crate::dice::Dice;
use crate::parameters::Parameter;
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress};

/// Stream of chance for the orders of arrival.
const ORDERS: u64 = 0x6d69_7865_645f_0001;

pub(super) const MAKESPAN: Metric =
    lower("makespan", "when the last job is done; for fcfs the average over its orders");
pub(super) const BEST: Metric = lower("makespan_best", "the same in the best of the random orders");
pub(super) const WORST: Metric =
    lower("makespan_worst", "the same in the worst of the random orders");
pub(super) const OVER_BOUND: Metric =
    lower("over_bound_percent", "by how much the makespan is over the bound");
pub(super) const UTILIZATION: Metric =
    higher("utilization_percent", "how much of the makespan the machines work, on average");

pub(super) const RATIO: Metric = lower(
    "ratio_to_true_times",
    "the makespan over that of sufferage to whom the true times are said, from the same seed",
);
pub(super) const FLOW: Metric =
    lower("mean_flow", "from when a job comes to when it is done, on average");
pub(super) const FLOW_RATIO: Metric =
    lower("flow_ratio_to_true_times", "the mean flow over that of the same sufferage");
pub(super) const UNTRIED: Metric = lower(
    "untried_at_once",
    "most replicas that ran at once of one application on one kind of node on which none was done",
);

const fn lower(name: &'static str, about: &'static str) -> Metric {
    Metric { name, about, better: Better::Lower }
}

pub(super) const fn higher(name: &'static str, about: &'static str) -> Metric {
    Metric { name, about, better: Better::Higher }
}

/// Parameters of all scenarios of the family.
pub(super) fn parameters() -> [Parameter; 2] {
    [
        Parameter::count(
            "fcfs_orders",
            200,
            (1, 10_000),
            "random orders of arrival that fcfs is run with",
            "R. S. Nakhjavani et al. 2014, Section V",
        ),
        Parameter::count(
            "search_entries",
            Effort::default().entries,
            (0, 1_000_000_000_000),
            "how much gleaner searches, in entries of matrices looked at; 10⁹ take about a second",
            "a search of under a second on one core of 2020; a number instead of a clock, so that the same seed gives the same schedule",
        ),
    ]
}

/// What comes of a policy that is told the true times.
pub(super) fn reference(workload: &Workload, rule: Rule, effort: Effort) -> Result<Record, String> {
    let workload = Workload { said: Some(workload.times.clone()), ..workload.clone() };
    let in_order: Vec<_> = (0..workload.jobs()).collect();
    world::run(&workload, &in_order, config(rule, effort), false)
}

/// Plans whenever there is cause.
fn config(rule: Rule, effort: Effort) -> BatchConfig {
    let unbounded = usize::MAX;
    BatchConfig {
        rule,
        effort,
        steps_max: unbounded,
        steps_at_once: unbounded,
        rest_ns_per_step: 0,
    }
}

/// Runs the policies; `plans` is how many of them share the search, and `also` tells more of a run than
/// all scenarios do.
pub(super) fn contest(
    workload: &Workload,
    plans: u64,
    order: &Order<'_>,
    progress: &dyn Progress,
    also: impl Fn(&[f64]) -> Numbers,
) -> Result<Outcome, String> {
    let entries = order.settings.count("search_entries") / plans;
    let effort = Effort { entries, ..Effort::default() };
    let matrix = workload.matrix();
    let start = Rule::Mct.map(&matrix, effort);
    let bound = Relaxation::solve(&matrix, &start).bound() / 1e6;
    let mut outcome = Outcome::default();
    outcome.bound.insert(MAKESPAN.name, bound);
    for (place, name) in (0_u32..).zip(order.policies) {
        progress.done(place * 1_000_000 / order.policies.len() as u32, name);
        let rule = Rule::ALL.into_iter().find(|rule| rule.as_str() == *name);
        let rule = rule.ok_or_else(|| format!("{name} is no policy of this scenario"))?;
        let config = config(rule, effort);
        let records = match rule {
            Rule::Fcfs => in_random_orders(workload, order, config)?,
            _ => {
                let in_order: Vec<_> = (0..workload.jobs()).collect();
                vec![world::run(workload, &in_order, config, false)?]
            }
        };
        let mut numbers = numbers(&records, bound, &also);
        if rule == Rule::Fcfs {
            let makespans = records.iter().map(Record::makespan);
            numbers.insert(BEST.name, makespans.clone().fold(f64::INFINITY, f64::min));
            numbers.insert(WORST.name, makespans.fold(0.0, f64::max));
        }
        outcome.policies.push((name, numbers));
    }
    Ok(outcome)
}

fn in_random_orders(
    workload: &Workload,
    order: &Order<'_>,
    config: BatchConfig,
) -> Result<Vec<Record>, String> {
    let mut dice = Dice::new(order.seed, ORDERS);
    let mut arrival: Vec<_> = (0..workload.jobs()).collect();
    let orders = 0..order.settings.count("fcfs_orders");
    orders
        .map(|_| {
            dice.shuffle(&mut arrival);
            world::run(workload, &arrival, config, false)
        })
        .collect()
}

impl Record {
    /// In units of a million microseconds, as all numbers here.
    pub(super) fn makespan(&self) -> f64 {
        self.makespan_us as f64 / 1e6
    }

    pub(super) fn flow(&self) -> f64 {
        self.flow_us as f64 / 1e6
    }
}

/// Averages over runs.
fn numbers(records: &[Record], bound: f64, also: impl Fn(&[f64]) -> Numbers) -> Numbers {
    let count = records.len() as f64;
    let makespan = records.iter().map(Record::makespan).sum::<f64>() / count;
    let machines = records.first().map_or(0, |record| record.busy_us.len());
    let mut used = vec![0.0; machines];
    for record in records {
        for (used, busy) in used.iter_mut().zip(&record.busy_us) {
            let share = *busy as f64 / record.makespan_us.max(1) as f64;
            *used += 100.0 * share / count;
        }
    }
    let mut numbers = also(&used);
    numbers.insert(MAKESPAN.name, makespan);
    numbers.insert(FLOW.name, records.iter().map(Record::flow).sum::<f64>() / count);
    numbers.insert(UTILIZATION.name, mean(&used));
    let over = if bound > 0.0 { 100.0 * (makespan / bound - 1.0) } else { 0.0 };
    numbers.insert(OVER_BOUND.name, over);
    let untried = records.iter().map(|record| record.untried_at_once).max().unwrap_or(0);
    numbers.insert(UNTRIED.name, untried as f64);
    numbers
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
