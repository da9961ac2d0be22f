//! A partitioned dataset on 80 shared servers: the published figures, and ours.

use std::collections::BTreeMap;

use gleaner_protocol::boottime;
use gleaner_simulator::{Order, Outcome, Quiet, Settings, Value, scenario_named};

const SEEDS: u64 = 30;

/// Medians over the seeds, by policy and metric.
type Medians = BTreeMap<&'static str, BTreeMap<&'static str, f64>>;

fn outcomes(set: &[(&'static str, Value)]) -> Vec<Outcome> {
    let scenario = scenario_named("replication").expect("there is one");
    let mut settings = Settings::defaults(&scenario.parameters());
    set.iter().for_each(|(name, value)| settings.set(name, value.clone()));
    let policies = scenario.policies();
    let run = |seed| {
        let order = Order { settings: &settings, seed, policies, measure: false };
        let began = boottime();
        let outcome = scenario.run(&order, &Quiet).expect("it runs");
        let took_s = boottime().since(began).as_secs_f64();
        assert!(took_s <= 10.0, "seed {seed} took {took_s} s");
        outcome
    };
    (1..=SEEDS).map(run).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[middle] + values[(values.len() - 1) / 2]) / 2.0
}

fn medians(set: &[(&'static str, Value)]) -> Medians {
    let outcomes = outcomes(set);
    let mut medians = Medians::new();
    for (index, (name, numbers)) in outcomes[0].policies.iter().enumerate() {
        let of =
            |metric: &str| median(outcomes.iter().map(|outcome| outcome.policies[index].1[metric]));
        let mut row: BTreeMap<_, _> = numbers.keys().map(|metric| (*metric, of(metric))).collect();
        let relative = outcomes.iter().map(|outcome| {
            outcome.policies[index].1["execution_s"] / outcome.policies[0].1["execution_s"]
        });
        row.insert("of_work_queue", median(relative));
        println!("{set:?} {name}: {row:.3?}");
        medians.insert(name, row);
    }
    for outcome in &outcomes {
        for (name, numbers) in &outcome.policies {
            assert!(numbers["execution_s"] >= outcome.bound["execution_s"], "{name}");
        }
    }
    medians
}

#[test]
fn volume_rendering_with_two_copies_is_as_published() {
    let medians = medians(&[]);
    let published = &medians["co-scheduling"];
    let within = |metric: &str, least: f64, most: f64| {
        let value = published[metric];
        assert!((least..=most).contains(&value), "{metric} is {value}, not {least} to {most}");
    };
    within("of_work_queue", 0.65, 0.73);
    within("ratio_super_optimal", 1.12, 1.20);
    within("moved_partitions", 36.0, 76.0);
    let utilization = |name: &str| medians[name]["utilization_percent"];
    let gain = utilization("co-scheduling") / utilization("work-queue");
    assert!((1.26..=1.40).contains(&gain), "utilization times {gain}");
    assert!(medians["adaptive"]["execution_s"] < medians["work-queue"]["execution_s"]);
    let ours = &medians["gleaner"];
    assert!(ours["execution_s"] <= 0.95 * published["execution_s"]);
    assert!(ours["ratio_super_optimal"] <= 1.11);
}

#[test]
fn more_copies_help_and_a_narrower_window_does_not() {
    let with = |name, value| medians(&[(name, Value::Count(value))]);
    let (two, three) = (medians(&[]), with("k", 3));
    for policy in ["work-queue", "adaptive", "co-scheduling"] {
        let time = |medians: &Medians| medians[policy]["execution_s"];
        let utilization = |medians: &Medians| medians[policy]["utilization_percent"];
        assert!(time(&three) < time(&two), "{policy}");
        assert!(utilization(&three) > utilization(&two), "{policy}");
    }
    let (w400, w200) = (with("w", 400), with("w", 200));
    for policy in ["work-queue", "adaptive", "co-scheduling", "gleaner"] {
        let time = |medians: &Medians| medians[policy]["execution_s"];
        assert!(time(&two) < time(&w400) && time(&w400) < time(&w200), "{policy}");
        let duplicated = |medians: &Medians| medians[policy]["duplicated_tasks"];
        assert!(duplicated(&two) <= duplicated(&w400), "{policy}");
        assert!(duplicated(&w400) < duplicated(&w200), "{policy}");
    }
}

#[test]
fn light_tasks_gain_less_from_moves() {
    let (heavy, light) =
        (medians(&[]), medians(&[("application", Value::Word("isosurface", &[]))]));
    let gain = |medians: &Medians| {
        medians["co-scheduling"]["execution_s"] / medians["adaptive"]["execution_s"]
    };
    assert!(gain(&light) > gain(&heavy) + 0.05, "{} and {}", gain(&light), gain(&heavy));
    let given_up = |medians: &Medians| medians["co-scheduling"]["moves_given_up"];
    assert!(given_up(&light) > given_up(&heavy), "more is tried in vain");
    assert!(light["gleaner"]["ratio_super_optimal"] <= 1.11);
}
