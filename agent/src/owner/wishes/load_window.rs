//! How many cores others kept busy in the last moments.

use std::collections::VecDeque;

use gleaner_protocol::{Span, Time};

use crate::limits::{LOAD_SAMPLES_MAX, LOAD_WINDOW_MS};

/// So much is more than one core, in thousandths.
const SEVERAL_MILLICORES: u32 = 1_150;

/// CPU time of others over the last second, from counters that are read now and then.
///
/// # Invariants
/// - Time during which nothing was read counts as if the load had been even.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadWindow {
    /// When, and the CPU time of others since the first sample, in microseconds.
    samples: VecDeque<(Time, u64)>,
}

impl LoadWindow {
    /// Adds what others used since the sample before.
    pub(crate) fn add(&mut self, now: Time, used: Span) {
        let total = self.samples.back().map_or(0, |(_, total)| *total);
        self.samples.push_back((now, total + used.as_micros()));
        let window = Span::from_millis(LOAD_WINDOW_MS);
        // One sample from before the window stays: it says where the window began.
        while self.samples.len() > LOAD_SAMPLES_MAX
            || self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= window)
        {
            self.samples.pop_front();
        }
    }

    /// Thousandths of a core that they kept busy over the last second. Before a second has been
    /// seen the rest of it counts as idle.
    pub(crate) fn millicores(&self) -> u32 {
        self.millicores_over(Span::from_millis(LOAD_WINDOW_MS))
    }

    /// The same, except that several cores are believed after half of it: they are no short burst.
    pub(crate) fn prompt_millicores(&self) -> u32 {
        let recent = self.millicores_over(Span::from_millis(LOAD_WINDOW_MS / 2));
        let mean = self.millicores();
        if recent >= SEVERAL_MILLICORES { mean.max(recent) } else { mean }
    }

    fn millicores_over(&self, window: Span) -> u32 {
        let Some((last, total)) = self.samples.back() else { return 0 };
        let window = window.as_micros();
        let begin = last.as_micros().saturating_sub(window);
        let used = total - self.total_at(begin);
        u32::try_from(used.saturating_mul(1_000) / window).unwrap_or(u32::MAX)
    }

    /// The total at a moment, as if the load had been even between two samples.
    fn total_at(&self, moment: u64) -> u64 {
        let mut before: Option<(u64, u64)> = None;
        for (at, total) in self.samples.iter().map(|(at, total)| (at.as_micros(), *total)) {
            match before {
                None if at >= moment => return total,
                Some((first, sum)) if at >= moment => {
                    let part = (moment - first) as f64 / (at - first).max(1) as f64;
                    return sum + ((total - sum) as f64 * part.min(1.0)) as u64;
                }
                _ => before = Some((at, total)),
            }
        }
        before.map_or(0, |(_, total)| total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(window: &mut LoadWindow, ms: u64, used_ms: u64) -> u32 {
        window.add(Time::from_micros(ms * 1_000), Span::from_millis(used_ms));
        window.millicores()
    }

    #[test]
    fn a_core_that_is_kept_busy_shows_within_a_second() {
        let mut window = LoadWindow::default();
        assert_eq!(add(&mut window, 0, 0), 0);
        assert_eq!(add(&mut window, 1_000, 10), 10);
        let seen: Vec<u32> = (1..=10).map(|n| add(&mut window, 1_000 + n * 100, 100)).collect();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
        assert!((900..=1_000).contains(&seen[9]), "{seen:?}");
        assert!(seen[3] >= 350, "{seen:?}");
    }

    #[test]
    fn several_cores_are_believed_after_half_a_second() {
        let mut window = LoadWindow::default();
        add(&mut window, 0, 0);
        add(&mut window, 1_000, 0);
        add(&mut window, 1_200, 400);
        assert_eq!(window.prompt_millicores(), 400);
        add(&mut window, 1_300, 200);
        assert_eq!((window.prompt_millicores(), window.millicores()), (1_200, 600));
        add(&mut window, 1_500, 400);
        assert_eq!((window.prompt_millicores(), window.millicores()), (2_000, 1_000));
    }

    #[test]
    fn a_short_burst_is_no_load() {
        let mut window = LoadWindow::default();
        add(&mut window, 0, 0);
        assert_eq!(add(&mut window, 50, 50), 50);
        assert_eq!(add(&mut window, 1_000, 0), 50);
        assert!(add(&mut window, 2_100, 0) < 30);
    }

    #[test]
    fn after_a_long_silence_the_mean_counts() {
        let mut window = LoadWindow::default();
        add(&mut window, 0, 0);
        assert_eq!(add(&mut window, 60_000, 30_000), 500);
    }
}
