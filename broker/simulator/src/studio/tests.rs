//! Tests of the studio at a small size.

use std::sync::OnceLock;

use gleaner_protocol::job::Lane;

use super::figures;
use super::scenario::{Runs, Studio};
use crate::parameters::{Settings, Value};
use crate::scenario::{Numbers, Order, Outcome, Quiet, Scenario};

/// A minute of a few hosts, with something of each lane.
pub(super) fn settings() -> Settings {
    let mut settings = Settings::defaults(&Studio.parameters());
    let counts = [
        ("fat_hosts", 2),
        ("light_hosts", 2),
        ("cores", 4),
        ("desktops", 1),
        ("users", 1),
        ("animation_frames", 20),
        ("volumes", 2),
        ("chunks", 12),
        ("batch_jobs", 4),
        ("deadline_jobs_max", 4),
    ];
    for (name, value) in counts {
        settings.set(name, Value::Count(value));
    }
    let numbers = [
        ("length_s", 60.0),
        ("interval_s", 0.25),
        ("action_s", 15.0),
        ("render_mean_min", 0.5),
        ("render_utilization_percent", 20.0),
        ("quiet_s", 2.0),
        ("dataset_at_s", 5.0),
        ("chunk_work_s", 3.0),
        ("batch_at_s", 10.0),
        ("batch_light_s", 8.0),
        ("deadline_shorter", 200.0),
        ("workunit_s", 5.0),
        ("window_s", 1.0),
    ];
    for (name, value) in numbers {
        settings.set(name, Value::Number(value));
    }
    settings
}

fn outcome(seed: u64) -> Outcome {
    let settings = settings();
    let policies = Studio.policies();
    let order = Order { settings: &settings, seed, policies, measure: false };
    Studio.run(&order, &Quiet).expect("the studio runs")
}

/// That of the first seed, which several tests look at.
fn first() -> &'static Numbers {
    static FIRST: OnceLock<Outcome> = OnceLock::new();
    &FIRST.get_or_init(|| outcome(1)).policies[0].1
}

#[test]
fn all_is_measured_and_nothing_is_lost() {
    let numbers = first();
    let mut listed: Vec<_> = Studio.metrics().iter().map(|metric| metric.name).collect();
    listed.sort_unstable();
    assert_eq!(numbers.keys().copied().collect::<Vec<_>>(), listed);
    assert_eq!(numbers["lost"], 0.0);
    for (name, number) in numbers.iter().filter(|(name, _)| name.ends_with("share")) {
        assert!((0.0..=1.0).contains(number), "{name} is {number}");
    }
    assert!(numbers["deadline.met_share"] > 0.0 && numbers["background.of_leftover_share"] > 0.5);
}

#[test]
fn the_same_seed_gives_the_same_and_another_other_renders() {
    assert_eq!(&outcome(1).policies[0].1, first());
    assert_ne!(&outcome(2).policies[0].1, first());
}

#[test]
fn the_invariants_hold_after_every_event_and_no_core_is_held_twice() {
    let mut runs = Runs::draw(&settings(), 3).expect("the defaults of a small one");
    runs.is_checked = true;
    let tally = runs.all_lanes(&|_| {}).expect("the invariants hold");
    assert_eq!(figures::lost(&tally, runs.loads(), &Lane::ALL), 0.0);
    assert_eq!(tally.held.held_twice(&runs.cores()), None);
    let held: u64 = tally.held.total_us.iter().sum();
    assert!(held <= tally.given_us, "{held} of {}", tally.given_us);
    assert!(tally.held.total_us.iter().all(|lane| *lane > 0), "{:?}", tally.held.total_us);
}

#[test]
fn nothing_is_lost_of_lanes_that_have_nothing_to_do() {
    let nothing = ["users", "animation_frames", "chunks", "batch_jobs", "deadline_jobs_max"];
    for name in nothing {
        let mut settings = settings();
        settings.set(name, Value::Count(0));
        settings.set("length_s", Value::Number(20.0));
        let runs = Runs::draw(&settings, 1).expect("none of it is needed");
        let tally = runs.all_lanes(&|_| {}).expect("it runs");
        assert_eq!(figures::lost(&tally, runs.loads(), &Lane::ALL), 0.0, "without {name}");
    }
}

#[test]
fn more_copies_than_hosts_are_refused_in_words() {
    let mut settings = settings();
    settings.set("copies", Value::Count(5));
    let error = Runs::draw(&settings, 1).err().expect("five copies on four hosts");
    assert!(error.starts_with("copies is 5 and there are 4 render hosts"), "{error}");
}
