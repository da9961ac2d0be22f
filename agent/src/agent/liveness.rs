//! Whether the parts of an agent that run by themselves go on.
//!
//! Each of them counts its turns, the rounds of its loop. One that is in the middle of the same turn at
//! three looks hangs: in a file system, say, whose disk or server does not answer. What waits for something
//! to do is in the middle of nothing.
//!
//! # Invariants
//! - No clock says how long a turn took: while the machine sleeps, or stands still with all that is in it,
//!   nobody looks either. The look that is overdue after that finds what the one before it found; until
//!   the third one there is time.
//! - A look waits for nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::limits::TURN_MS_MAX;

/// The turns of one part, which alone counts them. Odd in the middle of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnCounter(Arc<AtomicU64>);

impl TurnCounter {
    /// A turn begins, and ends the one before it.
    pub(crate) fn begin(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store((count + 1) | 1, Ordering::Release);
    }

    /// The turn is over, and the next one begins when there is something to do.
    pub(crate) fn end(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + (count & 1), Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The parts of an agent that must not hang. Clones share them.
#[derive(Debug, Clone)]
pub struct Liveness(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Vec<(&'static str, TurnCounter)>,
    /// By the last look.
    hangs: Mutex<Option<&'static str>>,
}

/// What looks found of a part.
#[derive(Debug, Clone, Default)]
struct Seen {
    count: u64,
    /// How many looks have found that in turn.
    looks: u32,
}

impl Seen {
    fn note(&mut self, count: u64) {
        let before = if self.count == count { self.looks } else { 0 };
        *self = Self { count, looks: before.saturating_add(1) };
    }

    const fn hangs(&self) -> bool {
        self.count % 2 == 1 && self.looks >= 3
    }
}

impl Liveness {
    /// Of these parts, each with its name in words.
    pub(crate) fn new(parts: impl IntoIterator<Item = (&'static str, TurnCounter)>) -> Self {
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
        let of_one =
            |(name, turns): &(&'static str, TurnCounter)| (*name, turns.count().div_ceil(2));
        self.0.parts.iter().map(of_one).collect()
    }

    /// Looks for ever, twice in the time that no turn takes; tells of what hangs each time that this is
    /// news.
    pub(crate) async fn watch(self, mut tell: impl FnMut(Option<&'static str>)) {
        let mut due = interval(Duration::from_millis(TURN_MS_MAX / 2));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = vec![Seen::default(); self.0.parts.len()];
        loop {
            due.tick().await;
            if let Some(news) = self.look(&mut before) {
                tell(news);
            }
        }
    }

    /// Looks once, after a look that found this of each part; what hangs, where that is news.
    fn look(&self, seen: &mut [Seen]) -> Option<Option<&'static str>> {
        let mut hangs = None;
        for (seen, (name, turns)) in seen.iter_mut().zip(&self.0.parts) {
            seen.note(turns.count());
            hangs = hangs.or(seen.hangs().then_some(*name));
        }
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
    fn what_is_in_the_middle_of_the_same_turn_at_three_looks_hangs() {
        let [eye, hand] = [TurnCounter::default(), TurnCounter::default()];
        let liveness = Liveness::new([("the eye", eye.clone()), ("the hand", hand.clone())]);
        let mut seen = vec![Seen::default(); 2];
        let mut look = || liveness.look(&mut seen);
        eye.begin();
        assert_eq!(look(), None, "it has just begun");
        assert_eq!(look(), None, "all may have stood still in between");
        assert_eq!(look(), Some(Some("the eye")));
        assert_eq!((look(), liveness.hangs()), (None, Some("the eye")), "that is known");
        hand.begin();
        eye.begin();
        assert_eq!((look(), liveness.hangs()), (Some(None), None), "another turn");
        eye.begin();
        assert_eq!((look(), look()), (None, Some(Some("the hand"))));
        eye.end();
        hand.end();
        assert_eq!(look(), Some(None));
        assert_eq!([look(), look(), look()], [None; 3], "who has nothing to do rests");
        hand.end();
        assert_eq!(liveness.turns(), [("the eye", 3), ("the hand", 1)]);
    }
}
