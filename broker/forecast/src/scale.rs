//! From how many futures keep a promise to the chance that is said.
//!
//! The two may differ for what no future has in it: a farm that changed, tasks of a kind that was
//! never seen. So odds are shifted by what became of promises: each that was kept shifts them a
//! little up, each that was broken down, by how much of a surprise it was. Over many promises, as
//! many are kept as was said, up to the range of the shift divided by their number.

use serde::{Deserialize, Serialize};

use crate::limits::{SCALE_MODEST, SCALE_RANGE, SCALE_RATE};

/// A shift of odds, learned from what became of promises.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Scale {
    /// As a logarithm.
    shift: f64,
}

impl Scale {
    /// Of who has kept no promise yet, and so says a little less than its futures do.
    #[must_use]
    pub fn modest() -> Self {
        Self { shift: SCALE_MODEST }
    }

    /// The chance that is said where so large a share of the futures keeps the promise.
    #[must_use]
    pub fn said(&self, share: f64) -> f64 {
        chance(odds(share) + self.shift)
    }

    /// The share of the futures that has to keep a promise of this chance.
    #[must_use]
    pub fn share(&self, said: f64) -> f64 {
        chance(odds(said) - self.shift)
    }

    /// Learns what became of a promise that was said to have this chance.
    pub fn learn(&mut self, said: f64, kept: bool) {
        let kept = if kept { 1.0 } else { 0.0 };
        let (least, most) = SCALE_RANGE;
        self.shift = (self.shift + SCALE_RATE * (kept - said)).clamp(least, most);
    }
}

fn odds(chance: f64) -> f64 {
    // No number of futures says that something is certain.
    let chance = chance.clamp(0.001, 0.999);
    libm::log(chance / (1.0 - chance))
}

fn chance(odds: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-odds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_breaks_promises_says_less_until_it_keeps_what_it_says() {
        let mut scale = Scale::default();
        assert!((scale.said(0.9) - 0.9).abs() < 1e-12);
        // Of what nine in ten futures keep, only seven in ten promises are kept.
        for promise in 0..2000 {
            scale.learn(scale.said(0.9), promise % 10 < 7);
        }
        assert!((scale.said(0.9) - 0.7).abs() < 0.05, "{}", scale.said(0.9));
        assert!((scale.said(scale.share(0.9)) - 0.9).abs() < 0.002);
        assert!(scale.share(0.9) > 0.95);
    }

    #[test]
    fn a_new_one_says_less_than_its_futures() {
        let said = Scale::modest().said(0.9);
        assert!(said > 0.85 && said < 0.9, "{said}");
    }

    #[test]
    fn it_never_says_certain_or_impossible() {
        let mut scale = Scale::default();
        assert!(scale.said(1.0) < 1.0 && scale.said(0.0) > 0.0);
        (0..10_000).for_each(|_| scale.learn(0.0, true));
        assert!(scale.said(1.0) < 1.0 && scale.said(0.5) > 0.5);
    }
}
