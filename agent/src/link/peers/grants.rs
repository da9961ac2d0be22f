//! Who may read which copy, as the broker said, and until when.
//!
//! # Invariants
//! - What the broker did not name is read by nobody.
//! - A render ends all of it; the broker names it anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::control::ServeChunk;
use gleaner_protocol::{Digest, PeerKey, Span, Time};

use crate::limits::{CHUNK_GRANT_MS_MAX, CHUNK_GRANTS_MAX};

/// What may be read now.
#[derive(Debug, Default)]
pub(super) struct Grants {
    until: Mutex<BTreeMap<(PeerKey, Digest), Time>>,
}

impl Grants {
    /// The broker lets somebody read a copy.
    pub(super) fn add(&self, now: Time, order: &ServeChunk) {
        let ms = order.ms.min(CHUNK_GRANT_MS_MAX);
        let mut until = self.until();
        until.retain(|_, until| *until > now);
        let name = (order.to, order.digest);
        if until.len() < CHUNK_GRANTS_MAX || until.contains_key(&name) {
            until.insert(name, now + Span::from_millis(ms));
        }
    }

    /// Whoever has this key may not read this any more.
    pub(super) fn end(&self, key: &PeerKey, digest: &Digest) {
        self.until().remove(&(*key, *digest));
    }

    /// Nobody may read anything any more.
    pub(super) fn end_all(&self) {
        self.until().clear();
    }

    /// Whether somebody may read something.
    pub(super) fn are_any(&self, now: Time) -> bool {
        self.until().values().any(|until| *until > now)
    }

    /// Whether whoever has this key may read something.
    pub(super) fn knows(&self, now: Time, key: &PeerKey) -> bool {
        let first = (*key, Digest::from_bytes([0; 32]));
        let of_key = self.until();
        let mut of_key = of_key.range(first..).take_while(|((of, _), _)| of == key);
        of_key.any(|(_, until)| *until > now)
    }

    /// Whether whoever has this key may read this.
    pub(super) fn allow(&self, now: Time, key: &PeerKey, digest: &Digest) -> bool {
        self.until().get(&(*key, *digest)).is_some_and(|until| *until > now)
    }

    fn until(&self) -> MutexGuard<'_, BTreeMap<(PeerKey, Digest), Time>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_what_was_named_for_as_long_and_nothing_else() {
        let grants = Grants::default();
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let [one, two] = [1, 2].map(|byte| PeerKey::from_bytes([byte; 32]));
        let [a, b] = [&b"a"[..], b"b"].map(Digest::of);
        assert!(!grants.are_any(at(0)) && !grants.knows(at(0), &one));
        grants.add(at(0), &ServeChunk { digest: a, to: one, at: None, ms: 100 });
        assert!(grants.are_any(at(99)) && !grants.are_any(at(100)));
        let allowed = [(one, a, 99), (one, a, 100), (one, b, 0), (two, a, 0)];
        let allowed = allowed.map(|(key, digest, ms)| grants.allow(at(ms), &key, &digest));
        assert_eq!(allowed, [true, false, false, false]);
        let known = [(one, 99), (one, 100), (two, 0)].map(|(key, ms)| grants.knows(at(ms), &key));
        assert_eq!(known, [true, false, false]);
        grants.add(at(0), &ServeChunk { digest: a, to: one, at: None, ms: u64::MAX });
        assert!(!grants.allow(at(CHUNK_GRANT_MS_MAX), &one, &a), "nothing is for ever");
        for number in 0..2 * CHUNK_GRANTS_MAX as u64 {
            let digest = Digest::of(&number.to_le_bytes());
            grants.add(at(0), &ServeChunk { digest, to: two, at: None, ms: 10 });
        }
        assert_eq!(grants.until().len(), CHUNK_GRANTS_MAX);
        grants.end_all();
        assert!(!grants.are_any(at(0)));
    }
}
