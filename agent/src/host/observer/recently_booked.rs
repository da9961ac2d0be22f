//! What renders had booked in the last moments.

use std::collections::VecDeque;

use gleaner_protocol::{Span, Time};

use crate::limits::{LOAD_SAMPLES_MAX, LOAD_WINDOW_MS};

/// The most cores that were booked at once while the load was measured that counts now: what a render
/// computed before it ended is nobody else's load.
#[derive(Debug, Default)]
pub(super) struct RecentlyBooked {
    /// Until when this many were booked, for as long as that matters; never fewer than in the next.
    before: VecDeque<(Time, u32)>,
}

impl RecentlyBooked {
    /// Takes what is booked now; the most that was within the window of loads.
    pub(super) fn most(&mut self, now: Time, cores: u32) -> u32 {
        let window = Span::from_millis(LOAD_WINDOW_MS);
        while self.before.front().is_some_and(|(until, _)| now.since(*until) > window) {
            self.before.pop_front();
        }
        while self.before.back().is_some_and(|(_, fewer)| *fewer <= cores) {
            self.before.pop_back();
        }
        if self.before.len() < LOAD_SAMPLES_MAX {
            self.before.push_back((now, cores));
        }
        self.before.front().map_or(cores, |(_, most)| *most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_render_had_booked_counts_for_as_long_as_its_load_does() {
        let mut booked = RecentlyBooked::default();
        let mut most = |ms: u64, cores| booked.most(Time::from_micros(ms * 1_000), cores);
        assert_eq!(most(0, 0), 0);
        assert_eq!(most(400, 4), 4);
        assert_eq!(most(800, 4), 4);
        assert_eq!(most(1_000, 1), 4);
        assert_eq!(most(1_200, 2), 4);
        assert_eq!(most(800 + LOAD_WINDOW_MS, 0), 4);
        assert_eq!(most(801 + LOAD_WINDOW_MS, 0), 2, "seen last at 800");
        assert_eq!(most(5_000, 0), 0);
    }
}
