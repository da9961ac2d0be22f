//! The difference between the two arms, and how far it can be trusted.
//!
//! Hosts of one day share its jobs, so days are what is independent. Within a day the arms' means
//! are compared; the days' differences D are weighted with w = n₁n₀ / (n₁ + n₀), as by hosts of both
//! arms (the weights of W. G. Cochran, *Some Methods for Strengthening the Common χ² Tests*, 1954).
//! The estimate is d = Σ wD / Σ w. Its variance is taken from the days themselves, whatever makes
//! them differ: k / (k − 1) · Σ w²(D − d)² / (Σ w)², and the interval is Student's with k − 1 degrees
//! of freedom.

use gleaner_protocol::student_975;
use serde::{Deserialize, Serialize};

use crate::limits::COMPARED_DAYS_MIN;

/// One measure of one arm on one day: a number for each of its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sums {
    pub(super) hosts: u32,
    pub(super) sum: f64,
}

impl Sums {
    pub(super) fn add(&mut self, number: f64) {
        self.hosts += 1;
        self.sum += number;
    }

    fn mean(self) -> f64 {
        self.sum / f64::from(self.hosts)
    }
}

/// A measure of both arms, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricView {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Whether more of it is better for the farm.
    pub more_is_better: bool,
    /// Days on which there were hosts of both.
    pub days: u64,
    /// What may be harvested; none where no day has both.
    pub harvested: Option<ArmView>,
    /// What is held out.
    pub held_out: Option<ArmView>,
    /// The former less the latter; none with fewer days than say anything.
    pub difference: Option<DifferenceView>,
}

/// A measure of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ArmView {
    /// Hosts, each day's counted anew.
    pub host_days: u64,
    /// The mean of the days' means, with the days' weights.
    pub mean: f64,
}

/// A difference between the arms, in the measure's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DifferenceView {
    /// As estimated.
    pub estimate: f64,
    /// The 95 % interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Compares a measure: of each day, what is harvested and what is held out.
pub(super) fn compare(
    name: &'static str,
    more_is_better: bool,
    days: impl Iterator<Item = (Sums, Sums)>,
) -> MetricView {
    let days: Vec<(Sums, Sums)> =
        days.filter(|(harvested, held_out)| harvested.hosts > 0 && held_out.hosts > 0).collect();
    let weight = |(a, b): &(Sums, Sums)| {
        let (a, b) = (f64::from(a.hosts), f64::from(b.hosts));
        a * b / (a + b)
    };
    let total: f64 = days.iter().map(weight).sum();
    let arm = |of: fn(&(Sums, Sums)) -> Sums| {
        (!days.is_empty()).then(|| ArmView {
            host_days: days.iter().map(|day| u64::from(of(day).hosts)).sum(),
            mean: days.iter().map(|day| weight(day) * of(day).mean()).sum::<f64>() / total,
        })
    };
    let (harvested, held_out) = (arm(|day| day.0), arm(|day| day.1));
    let count = days.len();
    let difference =
        harvested.zip(held_out).filter(|_| count >= COMPARED_DAYS_MIN).map(|(a, b)| {
            let estimate = a.mean - b.mean;
            let spread = |day: &(Sums, Sums)| {
                (weight(day) * (day.0.mean() - day.1.mean() - estimate)).powi(2)
            };
            let days_of_freedom = (count - 1) as f64;
            let variance = days.iter().map(spread).sum::<f64>() / (total * total) * count as f64
                / days_of_freedom;
            let half = student_975(count as u64 - 1) * variance.sqrt();
            DifferenceView { estimate, low: estimate - half, high: estimate + half }
        });
    MetricView { name, more_is_better, days: count as u64, harvested, held_out, difference }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use siphasher::sip::SipHasher24;

    use super::*;

    fn sums(numbers: &[f64]) -> Sums {
        let mut sums = Sums::default();
        numbers.iter().for_each(|number| sums.add(*number));
        sums
    }

    #[test]
    fn days_are_weighted_by_hosts_of_both_arms() {
        let even = (sums(&[10.0, 12.0]), sums(&[10.0, 10.0]));
        let lone = (sums(&[20.0; 4]), sums(&[26.0]));
        // Nothing to compare with.
        let half = (sums(&[500.0]), sums(&[]));
        let view = compare("m", true, [even, half, lone].into_iter());
        // Weights 1 and 0.8, differences 1 and -6.
        assert_eq!(view.days, 2);
        let (a, b) = (view.harvested.expect("both"), view.held_out.expect("both"));
        assert_eq!((a.host_days, b.host_days), (6, 3));
        assert!((a.mean - b.mean - (1.0 - 4.8) / 1.8).abs() < 1e-12);
        assert_eq!(view.difference, None, "two days say nothing");
        assert_eq!(compare("m", true, std::iter::empty()).harvested, None);
    }

    /// From 0 to 1, the same for the same numbers.
    fn chance(numbers: [u64; 3]) -> f64 {
        let mut hash = SipHasher24::new();
        numbers.iter().for_each(|number| hash.write_u64(*number));
        (hash.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A farm of 40 hosts for 30 days whose jobs change by the day, of which harvest takes a share.
    fn farm(number: u64, cost: f64) -> DifferenceView {
        let day = |day: u64| {
            let jobs = 5.0 + 10.0 * chance([number, day, 1_000]);
            let (mut harvested, mut held_out) = (Sums::default(), Sums::default());
            for host in 0..40 {
                let rate = jobs * (0.5 + chance([number, day, host]));
                match chance([number, day, 2_000 + host]) < 0.1 {
                    true => held_out.add(rate),
                    false => harvested.add(rate * (1.0 - cost)),
                }
            }
            (harvested, held_out)
        };
        compare("m", true, (0..30).map(day)).difference.expect("enough days")
    }

    #[test]
    fn what_harvest_costs_is_found_and_nothing_where_it_costs_nothing() {
        // Of the mean rate, 10.
        let cost = farm(1, 0.2);
        assert!(cost.high < 0.0 && (cost.low..=cost.high).contains(&-2.0), "{cost:?}");
        let is_false_alarm = |number: &u64| {
            let found = farm(*number, 0.0);
            !(found.low..=found.high).contains(&0.0)
        };
        let alarms = (0..400).filter(is_false_alarm).count();
        // 5 % are 20.
        assert!((8..=36).contains(&alarms), "{alarms} of 400");
    }

    #[test]
    fn the_interval_is_students_of_the_days() {
        // With equal weights the estimate is the plain mean of the days' differences.
        let differences = [0.3, -0.1, 0.4, 0.2, 0.0, 0.5, -0.3, 0.2];
        let day = |d: &f64| (sums(&[7.0 + d, 7.0 + d]), sums(&[7.0, 7.0]));
        let view = compare("m", true, differences.iter().map(day));
        let found = view.difference.expect("enough days");
        let mean = differences.iter().sum::<f64>() / 8.0;
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 7.0;
        let half = 2.3646 * (variance / 8.0).sqrt();
        assert!((found.estimate - mean).abs() < 1e-12);
        assert!((found.high - mean - half).abs() < 1e-3 && (mean - found.low - half).abs() < 1e-3);
    }
}
