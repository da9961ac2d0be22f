//! Whether the parts of an agent that run by themselves go on.
//!
//! Each of them counts its turns, the rounds of its loop. One that is in the middle of the same turn at
//! two looks hangs: in a file system, say, whose disk or server does not answer. What waits for something
//! to do is in the middle of nothing.
//!
//! # Invariants
//! - No clock says how long a turn took: while the machine sleeps, or stands still with all that is in it,
//!   nobody looks either.
//! - A look waits for nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::limits::TURN_MS_MAX;

/// The turns of one part, which alone counts them. Odd in the middle of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// A turn begins, and ends the one before it.
    pub(crate) fn beat(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store((count + 1) | 1, Ordering::Release);
    }

    /// The turn is over, and the next one begins when there is something to do.
    pub(crate) fn rest(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + (count & 1), Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The parts of an agent that must not hang. Clones share them.
#[derive(Debug, Clone)]
pub struct Vitals(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Vec<(&'static str, Pulse)>,
    /// By the last look.
    hangs: Mutex<Option<&'static str>>,
}

impl Vitals {
    /// Of these parts, each with its name in words.
    pub(crate) fn new(parts: impl IntoIterator<Item = (&'static str, Pulse)>) -> Self {
        let parts = parts.into_iter().collect();
        Self(Arc::new(Inner { parts, hangs: Mutex::default() }))
    }

    /// What hung at the last look, in words; none where all went on.
    #[must_use]
    pub fn hangs(&self) -> Option<&'static str> {
        *self.lock()
    }

    /// How many turns each part has begun so far, by their names.
    #[must_use]
    pub fn turns(&self) -> Vec<(&'static str, u64)> {
        let of_one = |(name, pulse): &(&'static str, Pulse)| (*name, pulse.count().div_ceil(2));
        self.0.parts.iter().map(of_one).collect()
    }

    /// Looks for ever, as often as no turn takes; tells of what hangs each time that this is news.
    pub(crate) async fn watch(self, mut tell: impl FnMut(Option<&'static str>)) {
        let mut due = interval(Duration::from_millis(TURN_MS_MAX));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = Vec::new();
        loop {
            due.tick().await;
            if let Some(news) = self.look(&mut before) {
                tell(news);
            }
        }
    }

    /// Looks once, after a look that found this; what hangs, where that is news.
    fn look(&self, before: &mut Vec<u64>) -> Option<Option<&'static str>> {
        let counts: Vec<u64> = self.0.parts.iter().map(|(_, pulse)| pulse.count()).collect();
        let seen = before.iter().zip(&counts).zip(&self.0.parts);
        let hangs = seen
            .filter(|((before, now), _)| before == now && *now % 2 == 1)
            .map(|(_, (name, _))| *name)
            .next();
        *before = counts;
        let known = std::mem::replace(&mut *self.lock(), hangs);
        (known != hangs).then_some(hangs)
    }

    fn lock(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.0.hangs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_middle_of_the_same_turn_at_two_looks_hangs() {
        let [eye, hand] = [Pulse::default(), Pulse::default()];
        let vitals = Vitals::new([("the eye", eye.clone()), ("the hand", hand.clone())]);
        let mut before = Vec::new();
        let mut look = || vitals.look(&mut before);
        eye.beat();
        assert_eq!(look(), None, "it has just begun");
        assert_eq!(look(), Some(Some("the eye")));
        assert_eq!((look(), vitals.hangs()), (None, Some("the eye")), "that is known");
        hand.beat();
        eye.beat();
        assert_eq!((look(), vitals.hangs()), (Some(None), None), "another turn");
        eye.beat();
        assert_eq!(look(), Some(Some("the hand")));
        eye.rest();
        hand.rest();
        assert_eq!(look(), Some(None));
        assert_eq!(look(), None, "who has nothing to do rests");
        hand.rest();
        assert_eq!(vitals.turns(), [("the eye", 3), ("the hand", 1)]);
    }
}
