//! How many units make a slice, of one kind of units ([`run`](crate::run) has a pace for each kind).

use gleaner_protocol::Span;

use crate::limits::{SLICE_BESIDE_SHARE, SLICE_GROWTH_MAX, SLICE_TARGET, SLICE_TARGET_MAX};

/// Sizes slices by what the last ones took.
///
/// # Invariants
/// Slices have at least one unit. One that was measured lets the next have `SLICE_GROWTH_MAX` times
/// its units at most, or as many as this one might have had: where there were fewer of a stretch
/// left, that says nothing of how many fit.
#[derive(Debug, Clone)]
pub struct Pace {
    /// What was asked for.
    least: Span,
    target: Span,
    /// What each slice takes beside its units, once that was measured.
    beside: Option<Span>,
    /// Of the first slice of a kind, and of any at least.
    first: u64,
    units: u64,
    /// Units that would have taken as long as was asked for, by the last slice that took half of that at
    /// least: of slices that took hardly any time only more than fit is known.
    fit: Option<u64>,
}

impl Pace {
    /// Slices of the usual length. The first one is a single unit.
    #[must_use]
    pub const fn new() -> Self {
        Self::of(SLICE_TARGET)
    }

    /// Slices that take about `target`.
    #[must_use]
    pub const fn of(target: Span) -> Self {
        Self { least: target, target, beside: None, first: 1, units: 1, fit: None }
    }

    /// All units of a kind that follow each other in one slice: what work takes that nobody stops.
    #[must_use]
    pub const fn whole() -> Self {
        let target = Span::from_micros(u64::MAX);
        Self { least: target, target, beside: None, first: u64::MAX, units: u64::MAX, fit: None }
    }

    /// Whether it is [`Pace::whole`], which has nothing to learn.
    pub(crate) const fn is_whole(&self) -> bool {
        self.first == u64::MAX
    }

    /// Whether it knows what slices take [beside](Self::allow_for) their units, or need not.
    pub(crate) const fn knows_beside(&self) -> bool {
        self.is_whole() || self.beside.is_some()
    }

    /// One for the same target that has learned nothing of units.
    pub(crate) const fn anew(&self) -> Self {
        Self { units: self.first, fit: None, ..*self }
    }

    /// Makes slices so long that what each takes `beside` its units is a small share of them, but no
    /// longer than a release may wait for.
    pub(crate) fn allow_for(&mut self, beside: Span) {
        let wanted = beside.as_micros().saturating_mul(SLICE_BESIDE_SHARE);
        let wanted = Span::from_micros(wanted).min(SLICE_TARGET_MAX);
        self.target = self.least.max(wanted);
        self.beside = Some(beside);
    }

    /// Goes on to work that is like that before, such as the next picture of an animation, but where as
    /// many units may take longer: with half of what is known to fit, and from the beginning where nothing
    /// took long enough to tell, as in a picture past its volume.
    pub fn ease(&mut self) {
        if !self.is_whole() {
            let known = self.fit.take().map_or(0, |fit| fit.min(self.units));
            self.units = (known / 2).max(self.first);
        }
    }

    /// Units of the next slice.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Learns that a slice of `units` took `span`. One that was too long counts at once, one that was
    /// quick only by half: work is uneven, and a long slice is what a release has to wait for.
    pub fn learn(&mut self, units: u64, span: Span) {
        // What it took beside its units says nothing of how many more fit, as far as it is certain.
        let (target, span) = (self.target.as_micros(), span.as_micros());
        let beside = self.beside.unwrap_or(Span::ZERO).as_micros();
        let beside = if span < target { beside.min(span / 2) } else { 0 };
        let (target, micros) = (target - beside, (span - beside).max(1));
        let fit = u128::from(units) * u128::from(target) / u128::from(micros);
        let fit = u64::try_from(fit).unwrap_or(u64::MAX);
        if micros * 2 >= target {
            self.fit = Some(fit);
        }
        let most = units.saturating_mul(SLICE_GROWTH_MAX);
        self.units = if fit > self.units {
            // A slice that a stretch's end had cut short takes nothing back.
            (self.units + (fit - self.units).div_ceil(2)).min(most).max(self.units)
        } else {
            fit
        }
        .max(self.first);
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
    fn what_a_slice_takes_beside_its_units_is_not_taken_for_theirs() {
        let mut pace = Pace::new();
        pace.allow_for(Span::from_micros(100));
        // A unit takes 20 us, and each slice 100 us more: three slices are short.
        for expected in [1, 4, 16, 64] {
            assert_eq!(pace.units(), expected);
            pace.learn(expected, Span::from_micros(100 + 20 * expected));
        }
        for _ in 0..20 {
            pace.learn(pace.units(), Span::from_micros(100 + 20 * pace.units()));
        }
        // Of 8 ms.
        assert!((380..=395).contains(&pace.units()), "{}", pace.units());
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
    fn work_that_nobody_stops_is_one_slice_of_each_kind() {
        let mut pace = Pace::whole();
        for units in [1, 7, u64::MAX] {
            assert_eq!(pace.units(), u64::MAX);
            pace.learn(units, Span::from_secs(86_400));
        }
        assert_eq!(pace.anew().units(), u64::MAX);
    }

    #[test]
    fn slices_are_longer_where_much_of_them_is_no_work_but_not_by_much() {
        let mut pace = Pace::new();
        for (beside_us, target_us) in [(10, 3000), (60, 4800), (9000, 8000), (0, 3000)] {
            pace.allow_for(Span::from_micros(beside_us));
            assert_eq!(pace.target, Span::from_micros(target_us), "{beside_us}");
            assert_eq!(pace.anew().target, pace.target);
        }
        // Who asks for longer ones has them.
        let mut pace = Pace::of(Span::from_millis(50));
        pace.allow_for(Span::from_millis(1));
        assert_eq!(pace.target, Span::from_millis(50));
    }

    #[test]
    fn a_pace_goes_on_with_half_of_what_it_learned() {
        let mut pace = Pace::new();
        pace.allow_for(Span::from_micros(100));
        (0..30).for_each(|_| pace.learn(pace.units(), Span::from_micros(20 * pace.units())));
        let units = pace.units();
        pace.ease();
        assert_eq!(pace.units(), units / 2);
        assert!(pace.knows_beside());
        // Past a volume there is nothing to compute: of what comes next nothing is known.
        (0..30).for_each(|_| pace.learn(pace.units(), Span::from_micros(10)));
        assert!(pace.units() > 1000 * units);
        pace.ease();
        assert_eq!(pace.units(), 1);
        // Nor does what came after the last slice that took long enough.
        (0..30).for_each(|_| pace.learn(pace.units(), Span::from_micros(20 * pace.units())));
        (0..30).for_each(|_| pace.learn(pace.units(), Span::from_micros(10)));
        pace.ease();
        assert_eq!(pace.units(), units / 2);
        let mut slow = Pace::new();
        slow.ease();
        assert_eq!(slow.units(), 1);
        let mut whole = Pace::whole();
        whole.ease();
        assert_eq!(whole.units(), u64::MAX);
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
