//! The level at which quantiles are read off, corrected on line so that as many runs are above them
//! as should be, whatever changes.
//!
//! Source: I. Gibbs and E. Candès, "Adaptive conformal inference under distribution shift", 2021,
//! Equation 2, for some levels at once.

/// The levels that are followed; those between them are interpolated.
const FOLLOWED: [f64; 5] = [0.5, 0.75, 0.9, 0.95, 0.99];
/// How far one run moves a level, in parts of the distance to its nearer end.
const STEP: f64 = 0.05;
/// No level is nearer to an end than this.
const NEAREST: f64 = 1e-4;

/// See the module's page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    read_at: [f64; 5],
}

impl Default for Levels {
    fn default() -> Self {
        Self { read_at: FOLLOWED }
    }
}

impl Levels {
    /// Where the quantile of level `p` is to be read off; grows with `p`.
    #[must_use]
    pub fn corrected(&self, p: f64) -> f64 {
        let p = p.clamp(0.0, 1.0);
        let (mut from, mut low) = (0.0, 0.0);
        for (to, high) in FOLLOWED.into_iter().zip(self.read_at) {
            let high = high.max(low);
            if p <= to {
                return low + (high - low) * (p - from) / (to - from);
            }
            (from, low) = (to, high);
        }
        low + (1.0 - low) * (p - from) / (1.0 - from)
    }

    /// A run ended at this place of its predicted distribution.
    pub fn note(&mut self, place: f64) {
        self.correct(|read_at, _| f64::from(u8::from(place > read_at)));
    }

    /// A run was beyond this place when it was cut off. Where that is below a level, it would have
    /// ended above the level as often as runs do that get there.
    pub fn note_beyond(&mut self, place: f64) {
        let got_there = (1.0 - self.nominal(place)).max(NEAREST);
        self.correct(|read_at, allowed| match place > read_at {
            true => 1.0,
            false => (allowed / got_there).min(1.0),
        });
    }

    /// The level whose quantile is read off here.
    fn nominal(&self, place: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..32 {
            let middle = 0.5 * (low + high);
            if self.corrected(middle) < place { low = middle } else { high = middle }
        }
        low
    }

    fn correct(&mut self, miss: impl Fn(f64, f64) -> f64) {
        for (wanted, read_at) in FOLLOWED.into_iter().zip(&mut self.read_at) {
            let allowed = 1.0 - wanted;
            let step = STEP * allowed.min(wanted);
            *read_at += step * (miss(*read_at, allowed) - allowed);
            *read_at = read_at.clamp(NEAREST, 1.0 - NEAREST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of places that are above the quantile of this level, of the second half.
    fn missed(level: f64, places: impl Iterator<Item = f64>) -> f64 {
        let (mut levels, mut missed) = (Levels::default(), Vec::new());
        for place in places {
            missed.push(place > levels.corrected(level));
            levels.note(place);
        }
        let later = &missed[missed.len() / 2..];
        later.iter().filter(|missed| **missed).count() as f64 / later.len() as f64
    }

    /// Spread evenly, in an order that is none.
    fn evenly() -> impl Iterator<Item = f64> {
        (0..20_000).map(|at| (f64::from(at) * 0.618_033_988_75).fract())
    }

    #[test]
    fn as_many_are_above_as_should_be_where_the_distribution_is_right() {
        for level in FOLLOWED {
            let found = missed(level, evenly());
            assert!((found - (1.0 - level)).abs() < 0.01, "{level}: {found}");
        }
    }

    #[test]
    fn and_where_it_is_wrong() {
        for level in FOLLOWED {
            // Twice as optimistic as the truth, and twice as pessimistic.
            let slow = missed(level, evenly().map(f64::sqrt));
            let fast = missed(level, evenly().map(|place| place * place));
            assert!((slow - (1.0 - level)).abs() < 0.015, "{level}: {slow}");
            assert!((fast - (1.0 - level)).abs() < 0.015, "{level}: {fast}");
        }
    }

    #[test]
    fn levels_grow_and_keep_their_ends() {
        let mut levels = Levels::default();
        (0..500).for_each(|_| levels.note(1.0));
        (0..100).for_each(|at| levels.note_beyond(f64::from(at) / 100.0));
        let all: Vec<f64> = (0..=100).map(|p| levels.corrected(f64::from(p) / 100.0)).collect();
        assert!(all.is_sorted() && all[0] == 0.0 && all[100] == 1.0, "{all:?}");
        assert!(levels.corrected(0.5) > 0.6);
    }

    #[test]
    fn what_was_cut_off_early_says_nothing() {
        let mut levels = Levels::default();
        (0..1000).for_each(|_| levels.note_beyond(0.0));
        for level in FOLLOWED {
            assert!((levels.corrected(level) - level).abs() < 1e-9, "{level}");
        }
        // What was cut off beyond a level was above it.
        (0..1000).for_each(|_| levels.note_beyond(0.999));
        assert!(levels.corrected(0.9) > 0.95);
    }
}
