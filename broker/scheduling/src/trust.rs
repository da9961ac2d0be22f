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

use gleaner_protocol::Trust;

/// Assumed share of the hosts that give wrong outputs, all of them the same ones.
const ASSUMED_FAULTY: f64 = 0.05;
/// A host is left alone only after it has passed so many checks since its last disagreement;
/// four times as many after each disagreement.
const PROVEN_AFTER: u32 = 10;
/// Results are accepted alone only where no more later checks than this are needed.
const CHECKS_MAX: u32 = 64;
/// Reports of a proven host per check of it, at first (a share of 1 in 2) and in the end.
const FEWEST_PER_CHECK: u64 = 2;
const MOST_PER_CHECK: u64 = 32;
/// A host of n reports is checked once in n of this many ones.
const REPORTS_PER_STEP: u64 = 64;

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

/// How often a host's lone results are checked: once in so many.
///
/// A host that was caught has to prove itself at four times the length, each time.
pub(crate) fn reports_per_check(passed_since: u32, failures: u16, reported: u64) -> u64 {
    let proven_after = PROVEN_AFTER.saturating_mul(4_u32.saturating_pow(failures.into()));
    if passed_since < proven_after {
        return 1;
    }
    (reported / REPORTS_PER_STEP).clamp(FEWEST_PER_CHECK, MOST_PER_CHECK)
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
    fn proof_is_longer_after_each_disagreement_and_checks_become_rare_but_never_stop() {
        assert_eq!(reports_per_check(9, 0, 1_000_000), 1);
        assert_eq!(reports_per_check(10, 0, 20), 2);
        assert_eq!(reports_per_check(10, 0, 640), 10);
        assert_eq!(reports_per_check(10, 0, u64::MAX), 32);
        assert_eq!(reports_per_check(39, 1, 640), 1);
        assert_eq!(reports_per_check(40, 1, 640), 10);
        assert_eq!(reports_per_check(u32::MAX - 1, u16::MAX, 640), 1);
    }
}
