//! The family `fragment` at its full size.

use std::num::NonZero;

use gleaner_simulator::{Comparison, Experiment, Quiet, policies, scenario_named, settings};

fn compare(scenario: &str, sets: &[&str], names: &[&str], seeds: &str) -> Comparison {
    let scenario = scenario_named(scenario).expect("a scenario");
    let experiment = Experiment {
        scenario,
        settings: settings(scenario, sets.iter().copied()).expect("its parameters"),
        policies: policies(scenario, names.iter().copied()).expect("its policies"),
        seeds: seeds.parse().expect("seeds"),
        measure: false,
        threads: NonZero::new(2).expect("two"),
    };
    experiment.run(&Quiet).expect("it runs")
}

fn mean(of: &Comparison, policy: &str, metric: &str) -> f64 {
    let spreads = of.policies.iter().find(|(name, _)| *name == policy).expect("it ran");
    spreads.1[metric].mean()
}

#[test]
fn ours_completes_three_and_five_times_as_much_as_plain() {
    for (scenario, times) in [("fragment-short", 3.0), ("fragment-long", 5.0)] {
        let of = compare(scenario, &[], &["plain", "gleaner"], "1..6");
        let rate = |policy| mean(&of, policy, "completion_rate_per_hour");
        let ratio = rate("gleaner") / rate("plain");
        println!("{scenario}: gleaner / plain {ratio:.2}");
        assert!(ratio >= times, "{scenario}: {ratio}");
        assert!(mean(&of, "gleaner", "wrong_accepted_ppm") <= 1_000.0);
        if scenario == "fragment-short" {
            let share = mean(&of, "gleaner", "farm_accepted_share_percent");
            let all = mean(&of, "gleaner", "accepted_share_percent");
            println!("accepted share: {share:.1} % of the farm, {all:.1} % with the desktops");
            assert!(share >= 90.0, "{share}");
        }
    }
}

#[test]
fn fragment_aware_against_plain_over_thirty_seeds() {
    let names = &["plain", "fragment-aware"];
    for (scenario, sets, least, most) in [
        // With no end of workunits both fill all cores, and four that begin together on the farm
        // end together: the fourth is done in vain.
        ("fragment-short", &["warmup_h=24", "measured_h=48"][..], 0.93, 1.01),
        ("fragment-long", &["warmup_h=24", "measured_h=48"][..], 0.90, 1.10),
        // With few at once cores stand idle, and the rate is that of the turnaround.
        ("fragment-short", &["open_workunits=208", "warmup_h=24", "measured_h=48"][..], 1.15, 1.50),
    ] {
        let of = compare(scenario, sets, names, "1..31");
        let rate = |policy| mean(&of, policy, "completion_rate_per_hour");
        let ratio = rate("fragment-aware") / rate("plain");
        println!("{scenario} {sets:?}: fragment-aware / plain {ratio:.3}");
        assert!((least..=most).contains(&ratio), "{scenario} {sets:?}: {ratio}");
    }
}

#[test]
fn no_attack_rate_pays_and_boinc_has_more_wrong_at_more_replicas() {
    for rate in ["1", "0.5", "0.1", "0.03", "0.01"] {
        let attack = format!("attack_rate={rate}");
        let sets = ["attacker_share=0.05", attack.as_str()];
        let of = compare("fragment-short", &sets, &["boinc-adaptive", "gleaner"], "1..4");
        let of = |policy, metric| mean(&of, policy, metric);
        let share = of("gleaner", "attacker_wrong_percent");
        println!(
            "attack rate {rate}: gleaner {share:.3} % of the attackers' results, boinc {:.3} %",
            of("boinc-adaptive", "attacker_wrong_percent")
        );
        assert!(share <= 1.0, "{rate}: {share}");
        assert!(share <= of("boinc-adaptive", "attacker_wrong_percent"), "{rate}");
        let replicas = |policy| of(policy, "replicas_per_workunit");
        assert!(replicas("gleaner") <= replicas("boinc-adaptive"), "{rate}");
    }
}

/// The error asked for is 1 in a million; with 5 % of the hosts wrong in half of their results,
/// all in the same way, none of some half a million results is.
#[test]
fn a_job_gets_the_error_that_it_asks_for() {
    let sets = ["error_ppb=1000", "colluding_share=0.05", "faulty_share=0"];
    let of = compare("fragment-short", &sets, &["gleaner"], "1..11");
    let completed = 10.0 * mean(&of, "gleaner", "completed");
    let wrong = 10.0 * mean(&of, "gleaner", "wrong_accepted");
    println!("error 1e-6: {wrong} of {completed} wrong");
    assert!(completed > 300_000.0 && wrong <= 3.0, "{wrong} of {completed}");
}
