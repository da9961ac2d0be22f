//! Storms over several seeds. A failure names its seed and the command that replays it.

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{StormConfig, StormReport, storm};

fn small(policy: PolicyName) -> StormConfig {
    let lasts = Span::from_secs(1800);
    StormConfig { policy, hosts: 20, lasts, ..StormConfig::default() }
}

fn run(seed: u64, config: &StormConfig) -> StormReport {
    storm(seed, config).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_few_storms_without_a_breach() {
    let mut sum = StormReport::default();
    for seed in 0..8 {
        let policy = PolicyName::ALL[(seed % 2) as usize];
        sum.add(&run(seed, &small(policy)));
    }
    println!("{sum:#?}");
    // A storm in which nothing of this happens shows nothing.
    for (what, count) in sum.counts() {
        assert!(count > 0, "no {what}: {sum:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    let config = small(PolicyName::FragmentAware);
    assert_eq!(run(7, &config), run(7, &config));
    assert_ne!(run(7, &config), run(8, &config));
}
