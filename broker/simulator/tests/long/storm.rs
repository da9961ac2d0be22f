//! The storms that are promised: a thousand small ones, twenty large ones, and a death at every
//! step of writing.

use gleaner_protocol::{Span, boottime};
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{StormConfig, StormReport, storm};

/// In turn.
const POLICIES: [PolicyName; PolicyName::ALL.len()] = PolicyName::ALL;

fn storms(seeds: std::ops::Range<u64>, hosts: u32, hours: u64) -> StormReport {
    let mut sum = StormReport::default();
    for seed in seeds {
        let policy = POLICIES[seed as usize % POLICIES.len()];
        let lasts = Span::from_secs(hours * 3600);
        let config = StormConfig { policy, hosts, lasts, ..StormConfig::default() };
        let report = storm(seed, &config).unwrap_or_else(|failure| panic!("{failure}"));
        println!("storm {seed}, {policy}: {} events", report.events);
        sum.add(&report);
    }
    println!("{sum:#?}");
    sum
}

#[test]
fn a_thousand_storms_of_two_hours_over_fifty_hosts() {
    let begun = boottime();
    let sum = storms(0..1_000, 50, 2);
    let speed = sum.events as f64 / boottime().since(begun).as_secs_f64();
    println!("{speed:.0} events a second");
    // The rarest, a commit that is torn, comes about once in ten storms.
    assert!(sum.counts().iter().all(|(_, count)| *count >= 50), "{sum:#?}");
    assert!(speed >= 50_000.0, "{speed} events a second");
}

#[test]
fn twenty_storms_of_a_day_over_two_hundred_hosts() {
    storms(1_000..1_020, 200, 24);
}

#[test]
fn a_death_at_every_step_of_writing() {
    let lasts = Span::from_secs(240);
    for (seed, policy) in (0..).zip(POLICIES) {
        let config = StormConfig { policy, hosts: 10, lasts, ..StormConfig::default() };
        let run = |step| {
            let config = StormConfig { dies_at_write: Some(step), ..config.clone() };
            storm(seed, &config).unwrap_or_else(|failure| panic!("step {step}: {failure}"))
        };
        for step in 1..=run(u64::MAX).writes {
            assert!(run(step).deaths_amid_writing > 0, "{policy}, step {step}");
        }
    }
}
