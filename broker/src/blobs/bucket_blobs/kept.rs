//! Which blobs of a bucket somebody is about to name: they must not be removed meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::{Digest, Span, Time};
use rustc_hash::FxHashMap;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::limits::BUCKET_KEPT_MAX;

/// Blobs that were said to be named soon, and when.
///
/// # Invariants
/// - A blob is looked at and noted under [`Kept::look`], looked at and removed under
///   [`Kept::remove`]: what was noted is there, and stays.
/// - Where there are more notes than are held, all blobs count as noted.
#[derive(Debug)]
pub(super) struct Kept {
    notes: Mutex<Notes>,
    /// By the first byte of a digest.
    removals: Vec<RwLock<()>>,
    named_within: Span,
}

#[derive(Debug)]
struct Notes {
    since: FxHashMap<Digest, Time>,
    /// All blobs count as noted then: what was kept before a start is not known.
    all_since: Time,
}

impl Kept {
    /// A note counts for `named_within`.
    pub(super) fn new(named_within: Span, now: Time) -> Self {
        let notes = Notes { since: FxHashMap::default(), all_since: now };
        let removals = (0..=u8::MAX).map(|_| RwLock::default()).collect();
        Self { notes: Mutex::new(notes), removals, named_within }
    }

    /// Nothing of this name is removed while the guard lives.
    pub(super) async fn look(&self, digest: Digest) -> RwLockReadGuard<'_, ()> {
        self.removals[usize::from(digest.as_bytes()[0])].read().await
    }

    /// Nobody looks at a blob of this name while the guard lives; nothing where it is to stay.
    pub(super) async fn remove(
        &self,
        digest: Digest,
        now: Time,
    ) -> Option<RwLockWriteGuard<'_, ()>> {
        let guard = self.removals[usize::from(digest.as_bytes()[0])].write().await;
        let notes = self.notes();
        let since = notes.since.get(&digest).map_or(notes.all_since, |at| notes.all_since.max(*at));
        (now.since(since) >= self.named_within).then_some(guard)
    }

    /// Has a blob stay from now on.
    pub(super) fn note(&self, digest: Digest, now: Time) {
        let mut notes = self.notes();
        if notes.since.len() >= BUCKET_KEPT_MAX {
            notes.since.retain(|_, since| now.since(*since) < self.named_within);
        }
        if notes.since.len() >= BUCKET_KEPT_MAX {
            notes.since.clear();
            notes.all_since = now;
        }
        notes.since.insert(digest, now);
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    #[tokio::test]
    async fn more_notes_than_are_held_keep_everything() {
        let hour = Span::from_secs(3_600);
        let kept = Kept::new(hour, Time::ZERO);
        let is_free = async |number, now| kept.remove(digest(number), now).await.is_some();
        let now = Time::ZERO + hour;
        assert!(is_free(0, now).await);
        kept.note(digest(0), now);
        assert!(!is_free(0, now).await);
        assert!(is_free(1, now).await);
        for number in 0..BUCKET_KEPT_MAX {
            kept.note(digest(2 + number), now);
        }
        assert!(!is_free(0, now).await);
        assert!(!is_free(1, now).await, "all count as noted");
        assert!(is_free(0, now + hour).await);
        assert!(kept.notes().since.len() <= BUCKET_KEPT_MAX);
    }
}
