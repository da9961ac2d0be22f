//! Storms over several seeds, and what is planted to show that each check can fail.

mod storm {
    pub(crate) mod builders;
    mod deaths;
    mod planted;
    mod sabotage;
}

use gleaner_scheduling::PolicyName;
use gleaner_simulator::StormReport;

use storm::builders::{PUBLISHED, run, small};

#[test]
fn a_few_storms_without_a_breach() {
    let mut sum = StormReport::default();
    for seed in 0..8 {
        sum.add(&run(seed, &small(PUBLISHED[seed as usize % PUBLISHED.len()])));
    }
    // A storm in which nothing of this happens shows nothing. Deaths amid writing have a test of
    // their own, at every so-manieth step; here they come by chance.
    let rare = ["deaths_amid_writing", "commits_lost", "commits_torn", "snapshots"];
    for (what, count) in sum.counts() {
        assert!(count > 0 || rare.contains(&what), "no {what}: {sum:#?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    let config = small(PolicyName::FragmentAware);
    assert_eq!(run(7, &config), run(7, &config));
    assert_ne!(run(7, &config), run(8, &config));
}
