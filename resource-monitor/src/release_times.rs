//! How long the hooks of the farm took lately until a render had its cores.
//!
//! # Invariants
//! - At most [`RELEASE_TIMES_MAX`] times are kept, the newest.

use std::collections::VecDeque;

use serde::Serialize;

use crate::limits::RELEASE_TIMES_MAX;

/// The newest of them, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct ReleaseTimes {
    newest_us: VecDeque<u64>,
}

/// How they are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReleaseView {
    /// Of how many preflights; the newest that said it.
    pub preflights: usize,
    /// Half of them took at most so long, in microseconds.
    pub p50_us: u64,
    /// Nine of ten.
    pub p90_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// All of them.
    pub max_us: u64,
}

impl ReleaseTimes {
    pub(crate) fn add(&mut self, release_us: u64) {
        if self.newest_us.len() == RELEASE_TIMES_MAX {
            self.newest_us.pop_front();
        }
        self.newest_us.push_back(release_us);
    }

    /// None where no hook has said it yet.
    pub(crate) fn view(&self) -> Option<ReleaseView> {
        let mut sorted: Vec<u64> = self.newest_us.iter().copied().collect();
        sorted.sort_unstable();
        // The smallest time that so many of a hundred do not exceed.
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied()
        };
        Some(ReleaseView {
            preflights: sorted.len(),
            p50_us: percentile(50)?,
            p90_us: percentile(90)?,
            p99_us: percentile(99)?,
            max_us: percentile(100)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut times = ReleaseTimes::default();
        assert_eq!(times.view(), None);
        times.add(7);
        let one = ReleaseView { preflights: 1, p50_us: 7, p90_us: 7, p99_us: 7, max_us: 7 };
        assert_eq!(times.view(), Some(one));
        let mut times = ReleaseTimes::default();
        (1..=200).rev().for_each(|us| times.add(us));
        let spread =
            ReleaseView { preflights: 200, p50_us: 100, p90_us: 180, p99_us: 198, max_us: 200 };
        assert_eq!(times.view(), Some(spread));
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut times = ReleaseTimes::default();
        (0..RELEASE_TIMES_MAX as u64 + 5).for_each(|us| times.add(us));
        let view = times.view().expect("some");
        assert_eq!(view.preflights, RELEASE_TIMES_MAX);
        assert_eq!(view.max_us, RELEASE_TIMES_MAX as u64 + 4);
    }
}
