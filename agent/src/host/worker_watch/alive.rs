//! Bookings whose processes are seen to live, for those who would end or tell of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::BookingId;

/// Shared between the thread that watches and the rest of the agent.
///
/// # Invariants
/// - A booking that is watched is here from before it is in the run folder until its process has
///   ended: what is not here may be ended by others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alive(Arc<Mutex<BTreeSet<BookingId>>>);

impl Alive {
    /// Whether a process of this booking lives.
    pub(crate) fn has(&self, booking: &BookingId) -> bool {
        self.lock().contains(booking)
    }

    /// All of which a process lives.
    pub(crate) fn all(&self) -> BTreeSet<BookingId> {
        self.lock().clone()
    }

    /// From now on these live, and no others.
    pub(crate) fn set<'a>(&self, bookings: impl Iterator<Item = &'a BookingId>) {
        *self.lock() = bookings.cloned().collect();
    }

    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<BookingId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
