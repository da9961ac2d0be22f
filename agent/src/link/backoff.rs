//! How long to wait before the broker is called again.

use gleaner_protocol::Span;

use crate::limits::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};

/// Waits that double from [`RECONNECT_MS_MIN`] to [`RECONNECT_MS_MAX`]; each is drawn at random
/// from the upper half, so that agents that lost the same broker do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    ceiling_ms: u64,
    random: u64,
}

impl Backoff {
    /// `seed` differs from agent to agent.
    pub(super) fn new(seed: u64) -> Self {
        Self { ceiling_ms: RECONNECT_MS_MIN, random: seed | 1 }
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Span {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = self.ceiling_ms / 2;
        let wait = half + self.random % (half + 1);
        self.ceiling_ms = (self.ceiling_ms * 2).min(RECONNECT_MS_MAX);
        Span::from_millis(wait)
    }

    /// The link was up.
    pub(super) fn reset(&mut self) {
        self.ceiling_ms = RECONNECT_MS_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_start_over() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<u64> = (0..20).map(|_| backoff.next().as_millis()).collect();
        assert!((50..=100).contains(&waits[0]), "{waits:?}");
        assert!(waits.iter().skip(8).all(|wait| (5_000..=10_000).contains(wait)), "{waits:?}");
        backoff.reset();
        assert!(backoff.next().as_millis() <= 100);
    }

    #[test]
    fn agents_wait_for_different_times() {
        let mut waits: Vec<Vec<Span>> = (0..50)
            .map(|seed| {
                let mut backoff = Backoff::new(seed * 2 + 1);
                (0..6).map(|_| backoff.next()).collect()
            })
            .collect();
        waits.sort();
        waits.dedup();
        assert_eq!(waits.len(), 50);
    }
}
