//! How many units make a slice, of one kind of units ([`run`](crate::run) has a pace for each kind).

use gleaner_protocol::Span;

use crate::limits::{SLICE_GROWTH_MAX, SLICE_TARGET};

/// Sizes slices by what the last ones took.
///
/// # Invariants
/// Slices have at least one unit. One that was measured lets the next have `SLICE_GROWTH_MAX` times
/// its units at most, or as many as this one might have had: where there were fewer of a stretch
/// left, that says nothing of how many fit.
#[derive(Debug, Clone)]
pub struct Pace {
    target: Span,
    units: u64,
}

impl Pace {
    /// Slices of the usual length. The first one is a single unit.
    #[must_use]
    pub const fn new() -> Self {
        Self { target: SLICE_TARGET, units: 1 }
    }

    /// Slices that take about `target`.
    #[must_use]
    pub const fn of(target: Span) -> Self {
        Self { target, units: 1 }
    }

    /// One for the same target that has learned nothing.
    pub(crate) const fn anew(&self) -> Self {
        Self::of(self.target)
    }

    /// Units of the next slice.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Learns that `units` took `span`. A slice that was too long counts at once, one that was
    /// quick only by half: work is uneven, and a long slice is what a release has to wait for.
    pub fn learn(&mut self, units: u64, span: Span) {
        let micros = span.as_micros().max(1);
        let fit = u64::try_from(
            u128::from(units) * u128::from(self.target.as_micros()) / u128::from(micros),
        )
        .unwrap_or(u64::MAX);
        let most = units.saturating_mul(SLICE_GROWTH_MAX);
        self.units = if fit > self.units {
            // A slice that a stretch's end had cut short takes nothing back.
            (self.units + (fit - self.units).div_ceil(2)).min(most).max(self.units)
        } else {
            fit
        }
        .max(1);
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_finds_the_units_that_fit_in_a_slice() {
        let mut pace = Pace::of(Span::from_millis(4));
        assert_eq!(pace.units(), 1);
        for _ in 0..20 {
            // A unit takes 20 us.
            let units = pace.units();
            pace.learn(units, Span::from_micros(20 * units));
        }
        assert!((190..=200).contains(&pace.units()), "{}", pace.units());
    }

    #[test]
    fn a_slice_that_was_too_long_is_cut_at_once_and_grows_back_slowly() {
        let mut pace = Pace::of(Span::from_millis(1));
        pace.learn(1, Span::from_micros(1));
        assert_eq!(pace.units(), SLICE_GROWTH_MAX);
        pace.learn(SLICE_GROWTH_MAX, Span::from_millis(8));
        assert_eq!(pace.units(), 1);
    }

    #[test]
    fn a_slice_that_was_cut_short_takes_nothing_back() {
        let mut pace = Pace::of(Span::from_millis(1));
        (0..20).for_each(|_| pace.learn(pace.units(), Span::from_micros(5 * pace.units())));
        let units = pace.units();
        pace.learn(1, Span::from_micros(4));
        assert!(pace.units() >= units, "{} after {units}", pace.units());
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let mut pace = Pace::new();
        for _ in 0..200 {
            let units = pace.units();
            pace.learn(units, Span::ZERO);
        }
        assert!(pace.units() >= 1);
    }
}
