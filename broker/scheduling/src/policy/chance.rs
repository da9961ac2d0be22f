//! What a policy leaves to chance, from a seed that it is given.

/// A stream of random numbers.
///
/// Source: G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014 (SplitMix).
#[derive(Debug, Default)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `true` in one of `count` cases.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        count < 2 || self.next() < u64::MAX / count
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_four_is_a_quarter() {
        let mut chance = Chance::new(1);
        let hits = (0..40_000).filter(|_| chance.one_in(4)).count();
        assert!((9_700..10_300).contains(&hits), "{hits}");
        assert!(chance.one_in(1) && chance.one_in(0));
    }
}
