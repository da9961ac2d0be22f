//! Chance, from a seed, and normal deviates from a table.

use rand::RngExt;
use rand_pcg::Pcg32;

use crate::limits::DEVIATES;

/// One stream of random numbers.
#[derive(Debug)]
pub(crate) struct Chances(Pcg32);

impl Chances {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg32::new(seed, purpose))
    }

    /// A number of `0..1`, each as likely as the others.
    pub(crate) fn unit(&mut self) -> f64 {
        f64::from(self.0.random::<u32>()) / (f64::from(u32::MAX) + 1.0)
    }

    /// A place in a table of [`DEVIATES`].
    pub(crate) fn place(&mut self) -> usize {
        self.0.random::<u32>() as usize % DEVIATES
    }
}

/// Normal deviates, as many from each part of the distribution.
pub(crate) fn deviates() -> Vec<f32> {
    (0..DEVIATES).map(|place| quantile((place as f64 + 0.5) / DEVIATES as f64) as f32).collect()
}

/// Where the normal distribution function reaches `share`, by bisection.
pub(crate) fn quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if below(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The normal distribution function.
pub(crate) fn below(deviate: f64) -> f64 {
    0.5 * libm::erfc(-deviate / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviates_have_mean_zero_and_deviation_one() {
        let deviates = deviates();
        let count = deviates.len() as f64;
        let mean = deviates.iter().map(|deviate| f64::from(*deviate)).sum::<f64>() / count;
        let square =
            deviates.iter().map(|deviate| f64::from(deviate * deviate)).sum::<f64>() / count;
        assert!(mean.abs() < 1e-4 && (square - 1.0).abs() < 5e-3, "{mean} {square}");
        assert!((quantile(0.975) - 1.959_963_985).abs() < 1e-8);
    }

    #[test]
    fn the_same_seed_throws_the_same() {
        let throw = |purpose| {
            let mut chances = Chances::new(7, purpose);
            (chances.unit(), chances.place())
        };
        assert_eq!(throw(1), throw(1));
        assert_ne!(throw(1), throw(2));
    }
}
