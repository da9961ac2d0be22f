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

    /// A number of `0..1`, each as likely as the others.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 random bits: every one of them is a number of its own.
        (self.0.random::<u64>() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `true` with this probability.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number of `from..to`, each as likely as the others.
    pub(crate) fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// A waiting time for something that happens at a constant rate, `mean` on average.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// A number of the normal distribution with mean 0 and standard deviation 1.
    ///
    /// Source: G. E. P. Box and M. E. Muller, "A Note on the Generation of Random Normal
    /// Deviates", 1958.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }

    /// A number whose logarithm is normal with standard deviation `sigma`; `mean` on average.
    pub(crate) fn log_normal(&mut self, mean: f64, sigma: f64) -> f64 {
        mean * libm::exp(sigma * self.normal() - sigma * sigma / 2.0)
    }

    /// Puts a list into random order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }

    /// A span around `mean_s` seconds: short ones often, three times as long ones rarely.
    pub(crate) fn around_secs(&mut self, mean_s: u64) -> Span {
        let mean_ms = mean_s * 1000;
        let spread = self.0.random_range(1..=mean_ms) + self.0.random_range(1..=mean_ms);
        let rare = if self.chance(100) { 3 } else { 1 };
        Span::from_millis(spread * rare)
    }
}
