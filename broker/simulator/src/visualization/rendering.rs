//! How long rendering a chunk takes: from where it is looked at makes a difference.

use gleaner_protocol::{Span, WorkunitId};

/// Rendering times, each as likely as the others within a range. A task takes the same time
/// under every policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rendering {
    least_us: u64,
    /// One more than the range is wide.
    width_us: u64,
}

impl Rendering {
    /// Times around `mean`, by `spread` of it shorter or longer at most.
    pub(crate) fn new(mean: Span, spread: f64) -> Self {
        let mean_us = mean.as_micros();
        let half_us = ((mean_us as f64 * spread) as u64).min(mean_us);
        Self { least_us: mean_us - half_us, width_us: 2 * half_us + 1 }
    }

    /// The time of a task.
    pub(crate) fn time(&self, task: WorkunitId) -> Span {
        let number = mix(task.job.get() << 24 ^ u64::from(task.index));
        Span::from_micros(self.least_us + number % self.width_us)
    }
}

/// A number that looks like chance.
///
/// Source: G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014: the finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::JobId;

    use super::*;

    #[test]
    fn times_spread_around_their_mean() {
        let rendering = Rendering::new(Span::from_micros(5000), 0.2);
        let id = |job| WorkunitId { job: JobId::new(job), index: 3 };
        let times: Vec<_> = (0..10_000).map(|job| rendering.time(id(job)).as_micros()).collect();
        let mean = times.iter().sum::<u64>() / 10_000;
        assert!((4990..=5010).contains(&mean), "{mean}");
        assert!(times.iter().all(|time| (4000..=6000).contains(time)));
        assert!(times.iter().any(|time| *time < 4010) && times.iter().any(|time| *time > 5990));
        assert_eq!(rendering.time(id(7)), rendering.time(id(7)));
        assert_eq!(Rendering::new(Span::ZERO, 0.5).time(id(1)), Span::ZERO);
    }
}
