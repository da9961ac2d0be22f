use std::io::Write;

use super::Replay;
use crate::ability::Ability;
use crate::parameters::{Settings, Value};
use crate::scenario::{Order, Outcome, Quiet, Scenario};

fn replay(log: &str, set: &[(&'static str, Value)]) -> Result<Outcome, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(log.as_bytes()).expect("written");
    let mut settings = Settings::defaults(&Replay.parameters());
    settings.set("log", Value::File(file.path().to_str().expect("a plain path").into()));
    for (name, value) in set {
        settings.set(name, value.clone());
    }
    let policies = Replay.policies();
    Replay.run(&Order { settings: &settings, seed: 1, policies, measure: false }, &Quiet)
}

/// A metric that is the same whatever the policy.
fn fact(outcome: &Outcome, metric: &str) -> f64 {
    let numbers: Vec<f64> = outcome.policies.iter().map(|(_, of)| of[metric]).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]), "{metric}: {numbers:?}");
    numbers[0]
}

/// A machine of two nodes with four processors each for ten hours. A job takes one of them
/// wholly from 2 h to 4 h; another takes half of it from 5 h to 10 h.
const DAY: &str = "\
; MaxNodes: 2
; MaxProcs: 8
1     0 0      1 8 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1
2  7200 0   7200 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1
3 18000 0  18000 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1
";

#[test]
fn an_admin_learns_what_lies_idle_and_for_how_long() {
    let outcome = replay(DAY, &[]).expect("a log");
    for (metric, expected) in [
        ("hosts", 2.0),
        ("cores", 8.0),
        ("recorded_h", 10.0),
        ("farm_jobs", 3.0),
        ("peak_busy_cores", 8.0),
        ("fragments", 4.0 + 4.0 + 4.0),
        ("idle_over_10_min_percent", 100.0),
    ] {
        assert_eq!(fact(&outcome, metric), expected, "{metric}");
    }
    let idle = 80.0 - 8.0 / 3600.0 - 8.0 - 10.0;
    let near = |metric: &str, expected: f64| {
        let got = fact(&outcome, metric);
        assert!((got - expected).abs() < 1e-9, "{metric}: {got}, not {expected}");
    };
    near("idle_core_hours", idle);
    near("busy_percent", 100.0 * (80.0 - idle) / 80.0);
    // Two cores were idle for an hour, and no longer, between the second job and the third.
    near("idle_over_60_min_percent", 100.0 * (idle - 2.0) / idle);
    // A minute of quiet for eight cores behind the first job, for four behind the second. Two
    // cores of it are given until the third job takes the other two, and stay so.
    near("harvestable_core_hours", idle - 12.0 / 60.0);
    near("fragment_p90_min", (36_000.0 - 1.0) / 60.0);
}

#[test]
fn what_was_harvested_adds_up() {
    for quiet_s in [0.0, 60.0, 1800.0] {
        for replication in [1, 2, 3] {
            let set =
                [("quiet_s", Value::Number(quiet_s)), ("replication", Value::Count(replication))];
            let outcome = replay(DAY, &set).expect("a log");
            for (policy, of) in &outcome.policies {
                let parts = of["harvested_core_hours"]
                    + of["lost_to_preemption_core_hours"]
                    + of["aborted_core_hours"]
                    + of["unfinished_core_hours"];
                let given = of["harvestable_core_hours"];
                // There is always work: each core that is given runs some.
                assert!((parts - given).abs() < 1e-9, "{policy}: {parts} of {given}");
                let each = of["harvested_core_hours"] / of["accepted_core_hours"];
                let least = match *policy {
                    "plain" | "fragment-aware" => (replication / 2 + 1) as f64 - 0.1,
                    _ => 1.0,
                };
                assert!(each >= least, "{policy}: {each} replicas of each");
            }
        }
    }
}

#[test]
fn work_does_not_end_before_the_farm_does() {
    // Workunits of six seconds: five jobs of them, one after the other.
    let set = [("workunit_min", Value::Number(6.0 / 60.0)), ("replication", Value::Count(1))];
    let outcome = replay(DAY, &set).expect("a log");
    for (policy, of) in &outcome.policies {
        let (harvested, given) = (of["harvested_core_hours"], of["harvestable_core_hours"]);
        assert!(harvested >= 0.999 * given, "{policy}: {harvested} of {given}");
    }
}

#[test]
fn replicas_are_lost_where_the_farm_takes_its_cores() {
    // Four cores are given from minute 1 until hour 2: eleven workunits each, and the twelfth is
    // lost after 9 minutes. Two are taken again an hour after the second job, less the quiet
    // period: five workunits each, and the sixth is lost.
    let set = [("replication", Value::Count(1)), ("quiet_s", Value::Number(59.0))];
    let outcome = replay(DAY, &set).expect("a log");
    for (policy, of) in &outcome.policies {
        let preempted = (4.0 * 540.0 + 2.0 * 541.0) / 3600.0;
        assert_eq!(of["preemptions"], 6.0, "{policy}");
        let lost = of["lost_to_preemption_core_hours"];
        assert!((lost - preempted).abs() < 1e-9, "{policy}: {lost}, not {preempted}");
    }
}

#[test]
fn a_reserve_is_never_given() {
    let outcome = replay(DAY, &[("reserve_cores", Value::Count(4))]).expect("a log");
    assert_eq!(fact(&outcome, "harvestable_core_hours"), 0.0);
    assert_eq!(fact(&outcome, "workunits_completed"), 0.0);
}

#[test]
fn the_kind_of_log_can_be_forced() {
    let error = replay(DAY, &[("format", Value::Word("htcondor", super::format::FORMATS))]);
    let error = error.expect_err("another kind");
    assert!(error.contains("line 1") && error.contains("expected an event"), "{error}");
}

#[test]
fn a_replay_without_a_log_says_what_it_needs() {
    let settings = Settings::defaults(&Replay.parameters());
    let order = Order { settings: &settings, seed: 1, policies: &["plain"], measure: false };
    let error = Replay.run(&order, &Quiet).expect_err("no log");
    assert!(error.contains("--log FILE"), "{error}");
}

/// A machine of four processors that is taken wholly for half an hour of ten.
const BREAK: &str = "\
; MaxNodes: 1
; MaxProcs: 4
1     0 0     1 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1
2  7200 0  1800 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1
3 35999 0     1 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1
";

#[test]
fn what_is_frozen_goes_on_unless_the_farm_needs_its_memory() {
    let under = |policy: &str, whose: &'static str, share: f64| {
        let set = [
            ("freeze_fails_share", Value::Number(share)),
            ("replication", Value::Count(1)),
            ("frozen", Value::Word(whose, Ability::NOBODY_FIRST)),
        ];
        let outcome = replay(BREAK, &set).expect("a log");
        let found = outcome.policies.into_iter().find(|(name, _)| *name == policy);
        found.expect("it ran").1
    };
    for (policy, whose) in [("plain", "none"), ("plain", "gleaner"), ("gleaner", "none")] {
        let killed = under(policy, whose, 0.0);
        assert_eq!((killed["preemptions"], killed["freezes"]), (8.0, 0.0), "{policy}, {whose}");
    }
    let plain = under("plain", "none", 0.0);
    for (policy, whose) in [("plain", "all"), ("gleaner", "gleaner"), ("gleaner", "all")] {
        let frozen = under(policy, whose, 0.0);
        assert_eq!((frozen["preemptions"], frozen["freezes"]), (0.0, 8.0), "{policy}, {whose}");
        assert_eq!(frozen["lost_to_preemption_core_hours"], 0.0, "{policy}, {whose}");
        assert!(frozen["harvested_core_hours"] > plain["harvested_core_hours"]);
    }
    let unlucky = under("gleaner", "all", 1.0);
    assert_eq!((unlucky["preemptions"], unlucky["freezes"]), (8.0, 0.0));
}
