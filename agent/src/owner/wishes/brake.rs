//! Hysteresis: giving way at once, coming back late.

use gleaner_protocol::{Span, Time};

use crate::limits::{CALM_FORGOTTEN_MS, CALM_MS_MAX, CALM_MS_MIN};

/// How much is given up for one cause, in any unit.
///
/// # Invariants
/// - A higher demand is obeyed at once.
/// - A lower one is obeyed when it has held for the calm; what was the highest meanwhile stays.
/// - The calm doubles each time the brake is put on again soon after it was let off, up to a limit.
#[derive(Debug, Clone, Default)]
pub(super) struct Brake<D> {
    level: D,
    /// Since when the demand is below the level, and the highest since.
    lower: Option<(Time, D)>,
    /// When it was last let off altogether or in part.
    eased: Option<Time>,
    /// How often it was put on again soon after.
    strikes: u32,
}

impl<D: Copy + Ord + Default> Brake<D> {
    /// Takes the demand of now; returns what is to be given up.
    pub(super) fn press(&mut self, now: Time, demand: D) -> D {
        if demand >= self.level {
            if demand > self.level {
                self.count_strike(now);
            }
            self.level = demand;
            self.lower = None;
            return self.level;
        }
        let (since, highest) = self.lower.unwrap_or((now, D::default()));
        let highest = highest.max(demand);
        if now.since(since) >= self.calm() {
            self.level = highest;
            self.eased = Some(now);
            self.lower = None;
        } else {
            self.lower = Some((since, highest));
        }
        self.level
    }

    /// How long a lower demand has to hold.
    pub(super) fn calm(&self) -> Span {
        let ms = CALM_MS_MIN.saturating_mul(1 << self.strikes.min(16));
        Span::from_millis(ms.min(CALM_MS_MAX))
    }

    /// How long it stays as it is at least, where the demand is lower now.
    pub(super) fn rest(&self, now: Time) -> Option<Span> {
        self.lower.map(|(since, _)| (since + self.calm()).since(now))
    }

    fn count_strike(&mut self, now: Time) {
        let Some(eased) = self.eased.take() else { return };
        if now.since(eased) < Span::from_millis(CALM_FORGOTTEN_MS) {
            self.strikes = (self.strikes + 1).min(16);
        } else {
            self.strikes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    #[test]
    fn it_gives_way_at_once_and_comes_back_after_a_calm() {
        let mut brake = Brake::default();
        assert_eq!(brake.press(ms(0), 0), 0);
        assert_eq!(brake.press(ms(100), 1), 1);
        assert_eq!(brake.press(ms(200), 3), 3);
        assert_eq!(brake.press(ms(300), 0), 3);
        assert_eq!(brake.press(ms(5_000), 1), 3);
        assert_eq!(brake.rest(ms(5_000)), Some(Span::from_millis(CALM_MS_MIN - 4_700)));
        assert_eq!(brake.press(ms(300 + CALM_MS_MIN - 1), 0), 3);
        assert_eq!(brake.press(ms(300 + CALM_MS_MIN), 0), 1, "what was the highest meanwhile");
        assert_eq!(brake.press(ms(400 + CALM_MS_MIN), 0), 1);
        assert_eq!(brake.press(ms(400 + 2 * CALM_MS_MIN), 0), 0);
    }

    #[test]
    fn who_comes_again_soon_is_waited_for_longer() {
        let mut brake = Brake::default();
        let mut now = 0;
        let mut calms = Vec::new();
        for _ in 0..8 {
            brake.press(ms(now), 2);
            let begin = now;
            while brake.press(ms(now), 0) > 0 {
                now += 1_000;
            }
            calms.push(now - begin);
            now += 1_000;
        }
        assert!(calms.windows(2).all(|pair| pair[0] <= pair[1]), "{calms:?}");
        assert_eq!((calms[0], calms[7]), (CALM_MS_MIN, CALM_MS_MAX));
        brake.press(ms(now + CALM_FORGOTTEN_MS), 2);
        assert_eq!(brake.calm(), Span::from_millis(CALM_MS_MIN), "forgotten");
    }

    proptest! {
        #[test]
        fn it_never_gives_less_than_is_wanted_and_changes_seldom(
            demands in proptest::collection::vec(0_u32..4, 1..2_000),
        ) {
            let mut brake = Brake::default();
            let (mut last, mut eased) = (0, 0_u64);
            for (second, demand) in demands.iter().enumerate() {
                let level = brake.press(ms(second as u64 * 1_000), *demand);
                prop_assert!(level >= *demand);
                eased += u64::from(level < last);
                last = level;
            }
            // Each easing takes a calm; three levels can be eased one by one before it grows.
            let seconds = demands.len() as u64;
            prop_assert!(eased <= 1 + seconds * 1_000 / CALM_MS_MIN, "{eased} in {seconds} s");
        }
    }
}
