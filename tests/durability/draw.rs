//! Seeded draws: one generator per purpose.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut draw = Self(seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95));
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn from(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.from(range.start * 1_000..range.end * 1_000))
    }
}

/// A number that looks random and depends on `value` alone.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
