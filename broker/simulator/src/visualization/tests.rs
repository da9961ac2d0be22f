//! Stories of small services, checked after every event, and the figures of the first scenario.

use super::rows::{FIRST, FOURTH, Row, policy};
use super::service::Service;
use super::settings::{cluster, demand};
use super::workload::Workload;
use crate::parameters::{Settings, Value};
use crate::scenario::{Numbers, Order, Outcome, Quiet, Scenario};

const ALL: &[&str] = &["fcfs", "fcfsl", "fcfsu", "sf", "fs", "ours", "gleaner"];

fn with(row: &Row, values: &[(&'static str, Value)]) -> Settings {
    let mut settings = Settings::defaults(&row.parameters());
    for (name, value) in values {
        settings.set(name, value.clone());
    }
    settings
}

/// Three nodes with room for two of three chunks each, four datasets of two chunks.
fn small(more: &[(&'static str, Value)]) -> Settings {
    let values = [
        ("length_s", Value::Number(2.0)),
        ("nodes", Value::Count(3)),
        ("quota_mib", Value::Count(1024)),
        ("datasets", Value::Count(4)),
        ("dataset_mib", Value::Count(1024)),
        ("interactive_jobs", Value::Count(120)),
        ("batch_jobs", Value::Count(12)),
        ("batch_frames", Value::Count(3)),
        ("action_s", Value::Number(0.5)),
        ("load_s", Value::Number(0.2)),
    ];
    with(&FOURTH, &[&values, more].concat())
}

/// Runs a policy with all invariants checked after every event.
fn run_checked(settings: &Settings, name: &str, seed: u64) -> Numbers {
    let load = Workload::draw(&demand(settings), seed);
    let cluster = cluster(settings, name == "fcfsu").expect("a cluster");
    let policy = policy(name, settings).expect("a policy of this name");
    let mut service = Service::new(&cluster, &load, policy);
    service.begin().expect("nodes come");
    while let Some(now) = service.step().unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"))
    {
        if let Err(violation) = service.check() {
            panic!("{name}, seed {seed}, {now:?}: {violation}");
        }
    }
    service.tally.numbers(&load)
}

fn run(scenario: &Row, settings: &Settings, policies: &[&'static str]) -> Outcome {
    let order = Order { settings, seed: 1, policies, measure: false };
    scenario.run(&order, &Quiet).expect("a run")
}

fn number(outcome: &Outcome, policy: &str, metric: &str) -> f64 {
    let numbers = outcome.policies.iter().find(|(name, _)| *name == policy);
    numbers.expect("the policy was run").1[metric]
}

#[test]
fn every_policy_keeps_the_invariants_and_finishes_every_job() {
    for seed in 0..2 {
        for name in ALL {
            let numbers = run_checked(&small(&[]), name, seed);
            assert!(numbers["interactive_latency_s"] > 0.0, "{name}");
            assert!(numbers["hit_rate_percent"] < 100.0, "{name} loads at least once");
        }
    }
}

#[test]
fn nodes_that_load_while_they_render_change_no_rule() {
    for name in ALL {
        run_checked(&small(&[("overlap", Value::Flag(true))]), name, 5);
    }
}

#[test]
fn the_frames_of_nodes_that_crash_are_rendered_by_others() {
    let crash = [
        ("crash_nodes", Value::Count(1)),
        ("crash_at_s", Value::Number(0.7)),
        ("crash_s", Value::Number(0.9)),
    ];
    for name in ALL {
        for overlap in [false, true] {
            let more = [&crash[..], &[("overlap", Value::Flag(overlap))]].concat();
            run_checked(&small(&more), name, 6);
        }
    }
}

#[test]
fn datasets_that_do_not_come_out_even_with_the_nodes_are_rendered() {
    let odd = [("nodes", Value::Count(2)), ("dataset_mib", Value::Count(1500))];
    for name in ALL {
        run_checked(&small(&odd), name, 7);
    }
}

#[test]
fn a_seed_gives_the_same_numbers_again() {
    let settings = small(&[]);
    assert_eq!(run(&FOURTH, &settings, ALL), run(&FOURTH, &settings, ALL));
}

#[test]
fn only_a_run_that_measures_tells_what_scheduling_costs() {
    let settings = small(&[]);
    let order =
        Order { settings: &settings, seed: 1, policies: &["ours", "gleaner"], measure: true };
    let outcome = FOURTH.run(&order, &Quiet).expect("a run");
    for metric in ["scheduling_us_per_job", "serving_us_per_job"] {
        assert!(number(&outcome, "ours", metric) > 0.0, "{metric}");
    }
    let order = Order { measure: false, ..order };
    let outcome = FOURTH.run(&order, &Quiet).expect("a run");
    assert!(!outcome.policies[0].1.contains_key("scheduling_us_per_job"));
}

#[test]
fn more_chunks_than_can_be_told_apart_are_refused_in_words() {
    let settings =
        small(&[("dataset_mib", Value::Count(1 << 24)), ("chunk_max_mib", Value::Count(1))]);
    let order = Order { settings: &settings, seed: 1, policies: &["ours"], measure: false };
    let why = FOURTH.run(&order, &Quiet).expect_err("too many chunks");
    assert!(why.contains("expected at most 1048576 in all"), "{why}");
}

/// Table III and Figure 4: those that look for data reach the target.
#[test]
fn the_first_scenario_comes_out_as_published_for_who_looks_for_data() {
    let outcome = run(&FIRST, &with(&FIRST, &[]), &["fcfsl", "ours", "gleaner"]);
    for name in ["fcfsl", "ours", "gleaner"] {
        let fps = number(&outcome, name, "framerate_fps");
        assert!(fps >= 25.0 && fps <= outcome.bound["framerate_fps"], "{outcome:?}");
    }
    for name in ["fcfsl", "ours"] {
        let hits = number(&outcome, name, "hit_rate_percent");
        assert!((hits - 99.94).abs() <= 0.3, "{name}: {outcome:?}");
    }
}

/// The same: the uniform partition reaches half of it, the others next to nothing.
#[test]
fn the_first_scenario_comes_out_as_published_for_the_others() {
    let outcome = run(&FIRST, &with(&FIRST, &[]), &["fcfs", "fcfsu", "fs"]);
    let fps = |name| number(&outcome, name, "framerate_fps");
    assert!(fps("fcfs") < 1.0 && fps("fs") < 1.0, "{outcome:?}");
    assert!((13.0..=20.0).contains(&fps("fcfsu")), "{outcome:?}");
    assert!((number(&outcome, "fcfsu", "hit_rate_percent") - 99.95).abs() <= 0.3, "{outcome:?}");
}
