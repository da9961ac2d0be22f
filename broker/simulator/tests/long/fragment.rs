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

/// Accepted work over idle core-time, in percent, that is asked of ours on short workunits. It is
/// held to it by the idle cores of the farm, of which it reaches 93.
const ACCEPTED_SHARE_ASKED: f64 = 90.0;
/// What it is held to with the time of the desktops added to both sides: 85.8 is reached. Desktops
/// leave after 1.5 h on average without a word and take along what they were at, which without
/// checkpoints is lost; and they are checked more seldom, so that results of theirs are still not
/// final two days after the measurement.
const ACCEPTED_SHARE_WITH_DESKTOPS: f64 = 85.0;

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
            assert!(share >= ACCEPTED_SHARE_ASKED, "{share}");
            assert!(all >= ACCEPTED_SHARE_WITH_DESKTOPS, "{all}");
        }
    }
}

/// What the policy brings where freezing is no matter of it. The factors 3 and 5 are asked of
/// `gleaner` with what belongs to it; these are reached, and less is a step back.
#[test]
fn who_freezes_makes_the_difference_for_long_workunits() {
    for (scenario, frozen, reached) in [
        ("fragment-short", "frozen=all", 3.2),
        ("fragment-short", "frozen=none", 3.1),
        ("fragment-long", "frozen=all", 2.7),
        ("fragment-long", "frozen=none", 1.5),
    ] {
        let of = compare(scenario, &[frozen], &["plain", "gleaner"], "1..6");
        let rate = |policy| mean(&of, policy, "completion_rate_per_hour");
        let ratio = rate("gleaner") / rate("plain");
        println!("{scenario}, {frozen}: gleaner / plain {ratio:.2}");
        assert!(ratio >= reached - 0.1, "{scenario}, {frozen}: {ratio}");
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

/// Results that ours may take over those that boinc-adaptive takes for as many workunits. Asked is
/// no more replicas. By leases it is so, but ours freezes what a render drives out and boinc loses
/// it; by results ours takes 1.09 a workunit and boinc 1.02. A host that gave ten valid results in a
/// row is checked by boinc ever more seldom, whatever it does then: attackers bring through 1.7 to
/// 2.2 % of their results. Ours goes on checking as often as the allowed error asks for; with three
/// times the error it takes 1.07, and still lets through fewer.
const RESULTS_OF_BOINC_MAX: f64 = 1.10;

#[test]
fn no_attack_rate_pays_and_boinc_has_more_wrong() {
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
        let ratio = |metric| of("gleaner", metric) / of("boinc-adaptive", metric);
        let (results, leases) = (ratio("results_per_workunit"), ratio("replicas_per_workunit"));
        println!("{results:.3} of the results of boinc, {leases:.3} of its leases");
        assert!(leases <= 1.0, "{rate}: {leases}");
        assert!(results <= RESULTS_OF_BOINC_MAX, "{rate}: {results}");
    }
}

/// Results that have to be without a wrong one, so that an error of 1e-6 holds with 95 %
/// confidence: -ln(0.05) / 1e-6.
const RESULTS_FOR_1E_6: f64 = 2_995_733.0;

/// Each seed brings some 118,000.
const SEEDS_FOR_1E_6: &str = "1..28";

/// A job that asks for an error of 1e-6 gets it: of hosts of which one in a hundred is faulty, as
/// asked, no wrong result is accepted in as many as it takes to say so.
#[test]
fn a_job_gets_the_error_that_it_asks_for() {
    let of = compare("fragment-short", &["error_ppb=1000"], &["gleaner"], SEEDS_FOR_1E_6);
    let (completed, wrong) = totals(&of, "gleaner");
    println!("error 1e-6: {wrong} of {completed} wrong");
    assert!(completed >= RESULTS_FOR_1E_6, "{completed} results say too little");
    assert!(wrong < 0.5, "{wrong} of {completed}");
}

/// The same against hosts that collude, which is more than is asked: with 5 % of the hosts wrong
/// in half of their results, all in the same way, fewer than one in 100,000 is accepted, the most
/// that so many results can tell.
#[test]
fn accomplices_get_little_past_a_job_that_asks_for_a_small_error() {
    let sets = ["error_ppb=1000", "colluding_share=0.05", "faulty_share=0"];
    let of = compare("fragment-short", &sets, &["gleaner"], "1..11");
    let (completed, wrong) = totals(&of, "gleaner");
    println!("error 1e-6, accomplices: {wrong} of {completed} wrong");
    assert!(completed > 300_000.0 && wrong <= 3.0, "{wrong} of {completed}");
}

/// Completed and wrong over all seeds.
fn totals(of: &Comparison, policy: &str) -> (f64, f64) {
    let seeds = of.policies.iter().find(|(name, _)| *name == policy).expect("it ran");
    let count = seeds.1["completed"].count() as f64;
    (count * mean(of, policy, "completed"), count * mean(of, policy, "wrong_accepted"))
}
