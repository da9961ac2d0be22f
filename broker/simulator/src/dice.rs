//! Chance, from a seed.

use gleaner_protocol::Span;
use rand::RngExt;
use rand_pcg::Pcg32;

/// One stream of random numbers. Each purpose has its own, so that one more draw for one of them
/// leaves the others as they are.
#[derive(Debug)]
pub(crate) struct Dice(Pcg32);

impl Dice {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg32::new(seed, purpose))
    }

    /// `true` in `permille` of 1000 cases.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        self.0.random_range(0..1000) < permille
    }

    /// A number of `0..count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.0.random_range(0..count as u64)).expect("below a usize")
    }

    /// A span of whole milliseconds, each as likely as the others.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Span {
        Span::from_millis(self.0.random_range(from..=to))
    }

    /// A span around `mean_s` seconds: short ones often, three times as long ones rarely.
    pub(crate) fn around_secs(&mut self, mean_s: u64) -> Span {
        let mean_ms = mean_s * 1000;
        let spread = self.0.random_range(1..=mean_ms) + self.0.random_range(1..=mean_ms);
        let rare = if self.chance(100) { 3 } else { 1 };
        Span::from_millis(spread * rare)
    }
}
