//! How long to wait before the broker is called again.

use gleaner_protocol::Span;

use crate::limits::{RECONNECT_MS_MAX, RECONNECT_MS_MIN, REFUSED_MS_MAX, REFUSED_MS_MIN};

/// Waits that double from a least to a most; each is drawn at random from the upper half, so that
/// agents that lost the same broker do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    /// After a broker that was lost or cannot be reached.
    lost: Ceiling,
    /// After one that refused this agent: that is the same again, until a person does something.
    refused: Ceiling,
    random: u64,
}

#[derive(Debug)]
struct Ceiling {
    ms: u64,
    min_ms: u64,
    max_ms: u64,
}

impl Ceiling {
    const fn new(min_ms: u64, max_ms: u64) -> Self {
        Self { ms: min_ms, min_ms, max_ms }
    }

    fn raise(&mut self) -> u64 {
        let now = self.ms;
        self.ms = (now * 2).min(self.max_ms);
        now
    }
}

impl Backoff {
    /// `seed` differs from agent to agent.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lost: Ceiling::new(RECONNECT_MS_MIN, RECONNECT_MS_MAX),
            refused: Ceiling::new(REFUSED_MS_MIN, REFUSED_MS_MAX),
            random: seed | 1,
        }
    }

    /// The next wait for a broker that was lost, or is not there.
    pub(super) fn after_loss(&mut self) -> Span {
        let ceiling_ms = self.lost.raise();
        self.draw(ceiling_ms)
    }

    /// The next wait after a refusal.
    pub(super) fn after_refusal(&mut self) -> Span {
        let ceiling_ms = self.refused.raise();
        self.draw(ceiling_ms)
    }

    /// The link was up for so long.
    pub(super) fn note_up(&mut self, time: Span) {
        self.lost.ms = self.lost.min_ms;
        // Two agents that throw each other out are both welcome, for a moment.
        if time >= Span::from_millis(self.refused.max_ms) {
            self.refused.ms = self.refused.min_ms;
        }
    }

    fn draw(&mut self, ceiling_ms: u64) -> Span {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = ceiling_ms / 2;
        Span::from_millis(half + self.random % (half + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_start_over() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<u64> = (0..20).map(|_| backoff.after_loss().as_millis()).collect();
        assert!((50..=100).contains(&waits[0]), "{waits:?}");
        assert!(waits.iter().skip(8).all(|wait| (5_000..=10_000).contains(wait)), "{waits:?}");
        backoff.note_up(Span::ZERO);
        assert!(backoff.after_loss().as_millis() <= 100);
    }

    #[test]
    fn who_is_refused_calls_less_and_less_until_a_link_has_lasted() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<u64> = (0..12).map(|_| backoff.after_refusal().as_millis()).collect();
        assert!((500..=1_000).contains(&waits[0]), "{waits:?}");
        assert!(waits.iter().skip(7).all(|wait| (30_000..=60_000).contains(wait)), "{waits:?}");
        // In an hour no more than this often, where ten times a second was possible.
        backoff.note_up(Span::from_secs(59));
        assert!(backoff.after_refusal().as_millis() >= 30_000);
        backoff.note_up(Span::from_secs(60));
        assert!(backoff.after_refusal().as_millis() <= 1_000);
    }

    #[test]
    fn agents_wait_for_different_times() {
        let mut waits: Vec<Vec<Span>> = (0..50)
            .map(|seed| {
                let mut backoff = Backoff::new(seed * 2 + 1);
                (0..6).map(|_| backoff.after_loss()).collect()
            })
            .collect();
        waits.sort();
        waits.dedup();
        assert_eq!(waits.len(), 50);
    }
}
