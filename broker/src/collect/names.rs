//! Which digests are named, in bounded memory.

use gleaner_protocol::{Digest, Time};

use crate::limits::COLLECT_FILTER_BYTES_MAX;

/// Bits for each digest that is expected.
const BITS_EACH: usize = 16;
const WORD_BITS: usize = u64::BITS as usize;
const BITS_MIN: usize = 1 << 16;

/// A filter of digests (Bloom, 1970): what was added is in it, and few that were not seem to be: other
/// ones in each round.
///
/// Source: B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970.
#[derive(Debug)]
pub(super) struct Names {
    bits: Vec<u64>,
    /// Changes which digests are taken for others.
    salt: u64,
}

impl Names {
    /// An empty one for about so many. `now` makes it another one than that of the round before.
    pub(super) fn for_as_many_as(count: usize, now: Time) -> Self {
        let bits = count.saturating_mul(BITS_EACH).max(BITS_MIN);
        let bits = bits.checked_next_power_of_two().unwrap_or(usize::MAX);
        let words = bits.min(COLLECT_FILTER_BYTES_MAX * 8) / WORD_BITS;
        Self { bits: vec![0; words], salt: now.as_micros() | 1 }
    }

    pub(super) fn add(&mut self, digest: &Digest) {
        for (word, bit) in self.places(digest) {
            self.bits[word] |= bit;
        }
    }

    /// Whether it was added; sometimes, whether or not.
    pub(super) fn may_have(&self, digest: &Digest) -> bool {
        self.places(digest).into_iter().all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// Words and bits in them. A digest is as good as drawn: each quarter of it is a place.
    fn places(&self, digest: &Digest) -> [(usize, u64); 4] {
        let (quarters, _) = digest.as_bytes().as_chunks::<8>();
        let count = (self.bits.len() * WORD_BITS) as u64;
        std::array::from_fn(|at| {
            let drawn = u64::from_le_bytes(quarters[at]).wrapping_mul(self.salt);
            let place = ((drawn >> 16 ^ drawn << 48) % count) as usize;
            (place / WORD_BITS, 1 << (place % WORD_BITS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let digest = |number: u32| Digest::of(&number.to_le_bytes());
        let mut names = Names::for_as_many_as(10_000, Time::from_micros(7_000_001));
        (0..10_000).for_each(|number| names.add(&digest(number)));
        assert!((0..10_000).all(|number| names.may_have(&digest(number))));
        let taken = (10_000..110_000).filter(|number| names.may_have(&digest(*number))).count();
        assert!(taken < 1_000, "{taken} of 100,000");
    }

    #[test]
    fn its_memory_is_bounded() {
        let names = Names::for_as_many_as(usize::MAX, Time::from_micros(1));
        assert_eq!(names.bits.len() * 8, COLLECT_FILTER_BYTES_MAX);
    }
}
