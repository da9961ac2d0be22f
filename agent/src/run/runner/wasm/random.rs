//! Random bytes that are the same for every replica of a workunit.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014. Good enough
//! for sampling; no module can have secrets here.

/// A generator and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Random {
    seed: u64,
    /// Words drawn so far.
    drawn: u64,
}

impl Random {
    /// One that has drawn `drawn` words already.
    pub(super) fn new(seed: u64, drawn: u64) -> Self {
        Self { seed, drawn }
    }

    /// Words drawn so far.
    pub(super) fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Fills `bytes`; a part of a word that is left over is dropped.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }

    fn next(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        let mut word = self.seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_where_it_was() {
        let mut random = Random::new(7, 0);
        let (mut first, mut second) = ([0; 24], [0; 13]);
        random.fill(&mut first);
        random.fill(&mut second);
        assert_eq!(random.drawn(), 5);
        let mut again = [0; 13];
        Random::new(7, 3).fill(&mut again);
        assert_eq!(again, second);
        let mut other = [0; 24];
        Random::new(8, 0).fill(&mut other);
        assert_ne!(other, first);
    }

    #[test]
    fn it_is_the_published_generator() {
        let mut bytes = [0; 8];
        Random::new(1_234_567, 0).fill(&mut bytes);
        assert_eq!(u64::from_le_bytes(bytes), 6_457_827_717_110_365_317);
    }
}
