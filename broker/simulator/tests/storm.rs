//! Storms over many seeds. A failure names its seed and the command that replays it.

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{StormConfig, StormReport, storm};

fn run(seed: u64, policy: PolicyName) -> StormReport {
    let config = StormConfig { policy, ..StormConfig::default() };
    storm(seed, &config).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn two_hundred_storms_without_a_breach() {
    let mut sum = StormReport::default();
    for seed in 0..200 {
        let policy = PolicyName::ALL[(seed % 2) as usize];
        let report = run(seed, policy);
        sum.events += report.events;
        sum.jobs_cancelled += report.jobs_cancelled;
        sum.decided += report.decided;
        sum.given_up += report.given_up;
        sum.wrong += report.wrong;
        sum.adopted += report.adopted;
        sum.refused += report.refused;
        sum.preempted += report.preempted;
        sum.links_broken += report.links_broken;
        sum.crashes += report.crashes;
        sum.facts_lost += report.facts_lost;
    }
    println!("{sum:?}");
    // A storm in which nothing of this happens shows nothing.
    let happened = [
        ("cancelled jobs", u64::from(sum.jobs_cancelled)),
        ("decided workunits", sum.decided),
        ("given-up workunits", sum.given_up),
        ("wrong outputs by a single vote", sum.wrong),
        ("adopted replicas", sum.adopted),
        ("refused reports", sum.refused),
        ("preempted replicas", sum.preempted),
        ("broken links", sum.links_broken),
        ("crashes", sum.crashes),
        ("lost facts", sum.facts_lost),
    ];
    for (what, count) in happened {
        assert!(count > 50, "only {count} {what} in 200 storms: {sum:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    for policy in PolicyName::ALL {
        assert_eq!(run(7, policy), run(7, policy));
        assert_ne!(run(7, policy), run(8, policy));
    }
}

#[test]
fn all_work_ends_soon_after_the_faults() {
    for policy in PolicyName::ALL {
        for seed in 1000..1010 {
            let lasts = StormConfig::default().lasts;
            let ended = run(seed, policy).ended_at;
            let after = ended.since(gleaner_protocol::Time::ZERO + lasts);
            assert!(after < Span::from_secs(3 * 3600), "seed {seed}, {policy}: {after} after");
        }
    }
}

/// The storm that `GLEANER_STORM_SEED` and `GLEANER_STORM_POLICY` name, to replay one.
#[test]
fn one_storm() {
    let seed = std::env::var("GLEANER_STORM_SEED").ok();
    let policy = std::env::var("GLEANER_STORM_POLICY").ok();
    let seed = seed.map_or(0, |seed| seed.parse().expect("GLEANER_STORM_SEED is a number"));
    let policy = policy.map_or(PolicyName::FragmentAware, |policy| {
        policy.parse().expect("GLEANER_STORM_POLICY names a policy")
    });
    println!("{:?}", run(seed, policy));
}
