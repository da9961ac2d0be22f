//! What the resource monitor writes down of a farm is what a replay finds in it.

mod farm;

use std::io::Write;

use gleaner_monitor::{Orders, Stop};
use gleaner_protocol::recording::Line;
use gleaner_simulator::{Numbers, Order, Quiet, Settings, Value, scenarios};

use crate::farm::{Farm, QUIET_S};

/// Replays lines under the plain policy.
fn replay(lines: &[Line], quiet_s: f64) -> Numbers {
    replay_with(lines, quiet_s, 0)
}

fn replay_with(lines: &[Line], quiet_s: f64, reserve_cores: u64) -> Numbers {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for line in lines {
        serde_json::to_writer(&mut file, line).expect("written");
        file.write_all(b"\n").expect("written");
    }
    let replay = scenarios().find(|scenario| scenario.name() == "replay").expect("it is there");
    let mut settings = Settings::defaults(&replay.parameters());
    settings.set("log", Value::File(file.path().to_str().expect("a plain path").into()));
    settings.set("quiet_s", Value::Number(quiet_s));
    settings.set("reserve_cores", Value::Count(reserve_cores));
    let order = Order { settings: &settings, seed: 1, policies: &["plain"], measure: false };
    let outcome = replay.run(&order, &Quiet).expect("a good recording");
    outcome.policies.into_iter().next().expect("one policy").1
}

/// Core-hours between openings and closings, as the monitor told them.
fn opened_core_hours(lines: &[Line]) -> f64 {
    let mut open = std::collections::BTreeMap::new();
    let end = lines.last().expect("there are lines").t_us();
    let mut sum = 0_u64;
    let mut close = |before: Option<(u64, u32)>, until: u64| {
        let (from, cores) = before.unwrap_or_default();
        sum += u64::from(cores) * (until - from);
    };
    for line in lines {
        match line {
            Line::Opened(line) => {
                let before = open.insert(line.host.clone(), (line.t_us, line.cores));
                close(before, line.t_us);
            }
            Line::Closed(line) => close(open.remove(&line.host), line.t_us),
            _ => {}
        }
    }
    open.into_values().for_each(|before| close(Some(before), end));
    sum as f64 / 3.6e9
}

#[track_caller]
fn assert_near(got: f64, expected: f64, permille: f64) {
    let off = 1000.0 * (got / expected - 1.0).abs();
    assert!(off <= permille, "{got} is {off:.3} permille off {expected}");
}

#[test]
fn a_replay_gives_away_exactly_what_the_monitor_gave() {
    for seed in 1..3 {
        let mut farm = Farm::new(seed, 12);
        farm.run(3 * 3600);
        let numbers = replay(&farm.lines, QUIET_S as f64);
        let given = opened_core_hours(&farm.lines);
        assert!(given > 50.0, "the farm is idle at times: {given} core-hours");
        assert_near(numbers["harvestable_core_hours"], given, 1e-6);
        assert_near(numbers["monitor_gave_core_hours"], given, 1e-6);
        assert_eq!(numbers["hosts"], 12.0);
        assert_eq!(numbers["farm_jobs"], farm.renders as f64);
    }
}

#[test]
fn a_replay_does_not_know_what_was_ordered_but_what_came_of_it() {
    let mut farm = Farm::new(1, 12);
    farm.run(3600);
    let at = jiff::Timestamp::UNIX_EPOCH;
    let stop = Stop::new("anna", "renders are late", at).expect("a stop");
    farm.order(Orders::stopped(stop));
    farm.run(3600);
    farm.order(Orders::default());
    farm.run(3600);
    let numbers = replay(&farm.lines, QUIET_S as f64);
    let given = opened_core_hours(&farm.lines);
    assert_near(numbers["monitor_gave_core_hours"], given, 1e-6);
    let harvestable = numbers["harvestable_core_hours"];
    assert!(harvestable > 1.2 * given, "{harvestable} and {given}");
}

#[test]
fn a_replay_keeps_the_reserve_that_the_monitor_kept() {
    for (seed, reserve) in [(1, 1), (2, 3), (3, 11)] {
        let mut farm = Farm::with_reserve(seed, 12, reserve);
        (farm.hooks_lost_permille, farm.agents_silent_permille) = (50, 10);
        farm.run(3 * 3600);
        let numbers = replay_with(&farm.lines, QUIET_S as f64, reserve.into());
        let given = opened_core_hours(&farm.lines);
        assert!(given > 1.0, "{given}");
        assert_near(numbers["harvestable_core_hours"], given, 1e-6);
    }
}

#[test]
fn a_replay_finds_the_idle_cores_that_the_farm_had() {
    let mut farm = Farm::new(7, 12);
    farm.run(3 * 3600);
    let numbers = replay(&farm.lines, QUIET_S as f64);
    assert_near(numbers["idle_core_hours"], farm.idle_core_hours(), 1e-6);
    assert!(numbers["workunits_completed"] > 0.0);
}

#[test]
fn lost_hooks_and_silent_agents_open_nothing_more_in_a_replay() {
    for seed in 1..3 {
        let mut farm = Farm::new(seed, 12);
        farm.hooks_lost_permille = 150;
        farm.agents_silent_permille = 30;
        farm.run(3 * 3600);
        let numbers = replay(&farm.lines, QUIET_S as f64);
        let given = opened_core_hours(&farm.lines);
        assert!(given > 10.0, "{given}");
        assert_near(numbers["harvestable_core_hours"], given, 1e-6);
    }
}

#[test]
fn a_longer_quiet_period_would_have_given_less() {
    let mut farm = Farm::new(3, 12);
    farm.run(3 * 3600);
    let given = |quiet_s| replay(&farm.lines, quiet_s)["harvestable_core_hours"];
    let idle = replay(&farm.lines, 0.0);
    assert_near(given(0.0), idle["idle_core_hours"], 1e-6);
    assert!(given(0.0) > given(60.0) && given(60.0) > given(600.0));
}
