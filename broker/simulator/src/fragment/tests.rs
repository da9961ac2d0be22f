//! The scenarios on a small farm.

use super::scenario::{LONG, SHORT};
use super::system::System;
use crate::scenario::{Order, Outcome, Quiet, Scenario};
use crate::setting::settings;

const SMALL: [&str; 6] =
    ["farm_hosts=6", "cores=4", "desktops=12", "warmup_h=2", "measured_h=10", "faulty_share=0"];

fn run(
    scenario: &dyn Scenario,
    sets: &[&str],
    policies: &[&'static str],
) -> Result<Outcome, String> {
    let sets = SMALL.iter().filter(|of| !sets.iter().any(|set| same_key(set, of))).chain(sets);
    let settings = settings(scenario, sets.copied()).expect("parameters of the scenario");
    scenario.run(&Order { settings: &settings, seed: 1, policies, measure: false }, &Quiet)
}

fn same_key(one: &str, other: &str) -> bool {
    one.split('=').next() == other.split('=').next()
}

fn number(outcome: &Outcome, policy: &str, metric: &str) -> f64 {
    let of = outcome.policies.iter().find(|(name, _)| *name == policy).expect("it was asked for");
    of.1[metric]
}

#[test]
fn nobody_beats_the_bound_and_the_same_seed_gives_the_same_figures() {
    for scenario in [&SHORT, &LONG] {
        let outcome = run(scenario, &[], System::NAMES).expect("good settings");
        assert_eq!(run(scenario, &[], System::NAMES), Ok(outcome.clone()));
        for policy in System::NAMES {
            let completed = number(&outcome, policy, "completed");
            assert!(completed > 0.0, "{policy}");
            for metric in [
                "completion_rate_per_hour",
                "accepted_share_percent",
                "farm_accepted_share_percent",
            ] {
                let (got, bound) = (number(&outcome, policy, metric), outcome.bound[metric]);
                assert!(0.0 < got && got <= bound, "{policy}, {metric}: {got} of {bound}");
            }
            let busy = number(&outcome, policy, "utilization_percent");
            assert!(busy <= outcome.bound["utilization_percent"] + 1e-6, "{policy}: {busy}");
            let wrong = number(&outcome, policy, "wrong_accepted");
            assert!(wrong <= 0.0, "{policy}: {wrong} without faulty hosts");
        }
    }
}

#[test]
fn who_freezes_loses_less() {
    let lost = |frozen: &str| {
        let sets = ["desktops=0", frozen];
        let outcome = run(&LONG, &sets, &["plain", "gleaner"]).expect("good settings");
        let of = |policy| number(&outcome, policy, "discarded_core_hours");
        (of("plain"), of("gleaner"))
    };
    let (ours, all, none) = (lost("frozen=gleaner"), lost("frozen=all"), lost("frozen=none"));
    assert_eq!((ours.0, ours.1), (none.0, all.1), "who freezes is no matter of the others");
    assert!(all.0 < none.0 / 2.0 && all.1 < none.1 / 4.0, "{all:?} {none:?}");
}

#[test]
fn what_a_desktop_takes_away_is_discarded_even_if_it_never_comes_back() {
    let sets = ["farm_hosts=1", "cores=1", "desktop_away_h=1000"];
    let outcome = run(&LONG, &sets, &["plain"]).expect("good settings");
    assert!(number(&outcome, "plain", "discarded_core_hours") > 0.0);
}

#[test]
fn with_few_workunits_at_once_one_side_does_not_wait_for_the_other() {
    let sets = ["open_workunits=6", "desktops=60", "warmup_h=4", "measured_h=20"];
    let outcome = run(&SHORT, &sets, &["plain", "fragment-aware"]).expect("good settings");
    let rate = |policy| number(&outcome, policy, "completion_rate_per_hour");
    assert!(rate("fragment-aware") > 1.3 * rate("plain"));
}

#[test]
fn accomplices_outvote_the_honest_only_where_they_meet() {
    let sets = ["colluding_share=0.5", "faulty_rate=1"];
    let outcome = run(&SHORT, &sets, &["plain"]).expect("good settings");
    assert!(number(&outcome, "plain", "wrong_accepted") > 0.0);
    let sets = ["faulty_share=0.5", "faulty_rate=1"];
    let outcome = run(&SHORT, &sets, &["plain", "gleaner"]).expect("good settings");
    for policy in ["plain", "gleaner"] {
        assert!(number(&outcome, policy, "wrong_accepted") <= 0.0, "{policy}");
    }
}

#[test]
fn parameters_that_contradict_each_other_are_named() {
    for (sets, says) in [
        (&["desktop_speed_min=0.9"][..], "desktop_speed_min is 0.9, more than desktop_speed_max"),
        (&["faulty_share=0.6", "attacker_share=0.6"][..], "add up to 1.2: expected 1 or less"),
        (&["workunit_min=10000", "reissue_lengths=1000"][..], "days: expected at most 3652"),
    ] {
        let why = run(&SHORT, sets, &["plain"]).expect_err(says);
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn one_person_with_many_names_decides_nothing_without_two_owners() {
    let wrong = |owners: &str| {
        let sets = ["sybils=0.3", "error_ppb=1000", "replication=3", owners];
        let outcome = run(&SHORT, &sets, &["plain", "gleaner"]).expect("good settings");
        assert!(number(&outcome, "plain", "completed") > 0.0);
        (number(&outcome, "plain", "wrong_accepted"), number(&outcome, "gleaner", "wrong_accepted"))
    };
    for owners in ["sybil_owners=0", "sybil_owners=1"] {
        assert_eq!(wrong(owners), (0.0, 0.0), "{owners}");
    }
    assert!(wrong("sybil_owners=2").0 > 0.0, "two votes of three are enough");
}

/// The farm's admin trusts some owners: then that person has to earn the trust of two.
#[test]
fn beside_owners_whom_the_admin_trusts_names_decide_nothing_that_have_not_earned_it() {
    let outcome = |sets: &[&str]| {
        let sets = [&["error_ppb=1000", "replication=3", "trusted_owners=3"], sets];
        let outcome = run(&SHORT, &sets.concat(), &["plain", "gleaner"]).expect("good settings");
        ["plain", "gleaner"].map(|policy| {
            assert!(number(&outcome, policy, "completed") > 0.0, "{policy}: {sets:?}");
            number(&outcome, policy, "wrong_accepted")
        })
    };
    for owners in ["sybil_owners=1", "sybil_owners=2", "sybil_owners=20"] {
        assert_eq!(outcome(&["sybils=0.05", owners]), [0.0, 0.0], "{owners}");
    }
    assert_eq!(
        outcome(&["sybils=0.3", "sybil_owners=1", "patient_sybils=true"]),
        [0.0, 0.0],
        "one voice"
    );
}
