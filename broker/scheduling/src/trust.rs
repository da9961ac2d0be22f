//! How many votes, and how many later checks, an error allows: the arithmetic of trust.
//!
//! A *check* is a workunit on which two hosts gave the same output independently of each other:
//! both have passed one. A result that one host gave alone is not final before its host has
//! passed so many checks **after** it: a host that was honest until it was trusted, and then
//! gives wrong outputs at any rate, is caught before most of them are final. Neither side can
//! tell beforehand, because whether a result is checked is drawn only when it is there.
//!
//! Source: L. F. G. Sarmenta, "Volunteer Computing", 2001, chapter 5: a host that gives wrong
//! outputs at the rate s passes k checks with probability (1 - s)^k, so at most 1 / (e k) of its
//! results are wrong and unnoticed, whatever s is. There the checks come before the result and
//! bind only those who do not change their mind; here they come after it.

use gleaner_protocol::{Span, Trust};

/// Assumed share of the hosts that give wrong outputs, all of them the same ones.
const ASSUMED_FAULTY: f64 = 0.05;
/// A host is left alone only after it has passed so many checks since its last disagreement;
/// four times as many after each disagreement.
const PROVEN_AFTER: u32 = 10;
/// Results are accepted alone only where no more later checks than this are needed.
const CHECKS_MAX: u32 = 64;
/// Results of a proven host per check of it.
const FEWEST_PER_CHECK: u64 = 2;
pub(crate) const MOST_PER_CHECK: u64 = 32;
/// Hosts are checked so often that they pass the later checks that a lone result takes in about
/// this time, within the bounds above.
const FINAL_AFTER: Span = Span::from_secs(86_400);
/// The later checks that this is about.
const CHECKS_TYPICAL: u64 = 37;
/// Before a host has reported so many results, its rate is not known.
const RATED_MIN: u64 = 16;

/// The error that a job allows, where it wants to be replicated adaptively.
pub(crate) fn allowed_error(trust: Trust) -> Option<f64> {
    match trust {
        Trust::Fixed => None,
        Trust::Adaptive { error_ppb } => Some(f64::from(error_ppb) / 1e9),
    }
}

/// Odds that a vote is wrong after its host has passed so many checks since.
fn odds(later_checks: u32) -> f64 {
    let unknown = ASSUMED_FAULTY / (1.0 - ASSUMED_FAULTY);
    match later_checks {
        0 => unknown,
        checks => unknown / (std::f64::consts::E * f64::from(checks)),
    }
}

/// The chance that as many hosts are all wrong, and agree.
fn all_wrong(later_checks: u32, votes: usize) -> f64 {
    std::iter::repeat_n(odds(later_checks), votes).product()
}

/// Equal votes that are enough at once, whoever gave them; at least two.
pub(crate) fn certain(error: f64) -> usize {
    (2..).find(|votes| all_wrong(0, *votes) <= error).expect("each vote makes it less likely")
}

/// Checks that the host of each of `votes` equal ones has to pass after it before they are
/// final; `None` where they are too few for that error. `unchecked` is the share of the results
/// of such a host that are not checked, where there is one vote.
pub(crate) fn later_checks(error: f64, votes: usize, unchecked: f64) -> Option<u32> {
    let unnoticed = if votes == 1 { unchecked } else { 1.0 };
    (1..=CHECKS_MAX).find(|checks| all_wrong(*checks, votes) * unnoticed <= error)
}

/// Fewest equal votes that can become final.
pub(crate) fn fewest(error: f64) -> usize {
    let can = |votes: &usize| later_checks(error, *votes, 1.0).is_some();
    (1..).find(can).expect("each vote makes it less likely")
}

/// Whether a host that has passed so many checks since its last failure is left alone at times.
pub(crate) fn is_proven(passed_since: u32, failures: u16) -> bool {
    passed_since >= PROVEN_AFTER.saturating_mul(4_u32.saturating_pow(failures.into()))
}

/// How often a proven host is checked that reported so many results in this time: once in so many.
pub(crate) fn reports_per_check(reported: u64, elapsed: Span) -> u64 {
    if reported < RATED_MIN {
        return FEWEST_PER_CHECK;
    }
    let expected = u128::from(reported) * u128::from(FINAL_AFTER.as_micros());
    let checks = u128::from(elapsed.as_micros().max(1)) * u128::from(CHECKS_TYPICAL);
    u64::try_from(expected / checks)
        .unwrap_or(MOST_PER_CHECK)
        .clamp(FEWEST_PER_CHECK, MOST_PER_CHECK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_unknown_hosts_are_enough_for_one_in_a_thousand_and_five_for_one_in_a_million() {
        assert_eq!(certain(5e-2), 2);
        assert_eq!(certain(1e-3), 3);
        assert_eq!(certain(5e-4), 3);
        assert_eq!(certain(1e-6), 5);
        assert_eq!(certain(1e-9), 8);
    }

    #[test]
    fn fewer_votes_take_more_checks() {
        assert_eq!(later_checks(5e-4, 1, 1.0), Some(39));
        assert_eq!(later_checks(5e-4, 1, 0.5), Some(20), "half of its results are checked");
        assert_eq!(later_checks(5e-4, 2, 1.0), Some(1));
        assert_eq!(later_checks(1e-6, 1, 1.0), None, "nobody is trusted that far alone");
        assert_eq!(later_checks(1e-6, 2, 1.0), Some(20));
        assert_eq!((fewest(5e-4), fewest(1e-6), fewest(1e-9)), (1, 2, 3));
    }

    /// Whatever rate a host chooses after it is trusted, at most 1 in 100 of its results is wrong
    /// and final, at the error that the documentation names.
    #[test]
    fn no_rate_of_wrong_results_pays() {
        for per_check in [2_u32, 4, 8, 16, 32] {
            let unchecked = 1.0 - 1.0 / f64::from(per_check);
            let checks = later_checks(5e-4, 1, unchecked).expect("alone");
            let worst = (1..=1000).map(|permille| {
                let rate = f64::from(permille) / 1000.0;
                let unnoticed: f64 = std::iter::repeat_n(1.0 - rate, checks as usize).product();
                rate * unchecked * unnoticed
            });
            let worst = worst.fold(0.0, f64::max);
            assert!(worst <= 0.01, "once in {per_check}: {worst}");
        }
    }

    #[test]
    fn proof_is_longer_after_each_disagreement() {
        assert!(!is_proven(9, 0) && is_proven(10, 0));
        assert!(!is_proven(39, 1) && is_proven(40, 1));
        assert!(!is_proven(u32::MAX - 1, u16::MAX));
    }

    #[test]
    fn who_reports_much_is_checked_rarely_but_never_not_at_all() {
        let day = Span::from_secs(86_400);
        assert_eq!(reports_per_check(15, day), 2, "its rate is not known");
        assert_eq!(reports_per_check(20, day), 2);
        assert_eq!(reports_per_check(370, day), 10);
        assert_eq!(reports_per_check(740, day.times(2)), 10);
        assert_eq!(reports_per_check(u64::MAX, Span::ZERO), 32);
    }
}
