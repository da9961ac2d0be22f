//! Chance, from a seed: the same numbers on every machine.

use rand::RngExt;
use rand_pcg::Pcg32;

/// One stream of random numbers. Each purpose has its own.
#[derive(Debug)]
pub(crate) struct Dice(Pcg32);

impl Dice {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg32::new(seed, purpose))
    }

    /// A number of `0..count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.0.random_range(0..count as u64)).expect("below a usize")
    }

    /// Puts things in an order, each as likely as the others.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }

    /// A number of `0..1`, each as likely as the others.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.random::<u64>() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number of the normal distribution with mean 0 and standard deviation 1.
    ///
    /// Source: G. E. P. Box and M. E. Muller, "A Note on the Generation of Random Normal
    /// Deviates", 1958.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }
}
