//! Digests of outputs that were stored a moment ago, so that equal ones are not stored again.

use std::collections::VecDeque;

use gleaner_protocol::Digest;
use rustc_hash::FxHashSet;

use crate::limits::RECENT_DIGESTS_MAX;

/// A bounded set; the oldest are forgotten first. Forgetting costs a second, equal, write.
#[derive(Debug, Default)]
pub(super) struct RecentDigests {
    known: FxHashSet<Digest>,
    order: VecDeque<Digest>,
}

impl RecentDigests {
    /// Adds a digest; `false` where it was there.
    pub(super) fn insert(&mut self, digest: Digest) -> bool {
        if !self.known.insert(digest) {
            return false;
        }
        self.order.push_back(digest);
        if self.order.len() > RECENT_DIGESTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
