//! Hosts that are awaited here: nobody can call them, so they call, and then give what they are asked for.
//!
//! # Invariants
//! - Who is not awaited is handed to nobody, and a key is awaited only while a chunk is fetched from its host.
//! - A render ends all of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::PeerKey;
use tokio::sync::oneshot;

use super::source::Source;
use crate::limits::CHUNK_AWAITED_MAX;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<Vec<Waiter>>);

/// Somebody who waits for a host; nobody any more where the other end is dropped.
type Waiter = (PeerKey, oneshot::Sender<Source>);

impl Awaited {
    /// Waits for whoever has this key. What comes of it says so at once where it will not.
    pub(super) fn wait_for(&self, key: PeerKey) -> oneshot::Receiver<Source> {
        let (hand, handed) = oneshot::channel();
        let mut waiters = self.waiters();
        if waiters.len() < CHUNK_AWAITED_MAX {
            waiters.push((key, hand));
        }
        handed
    }

    /// Whether anybody is awaited.
    pub(super) fn are_any(&self) -> bool {
        !self.waiters().is_empty()
    }

    /// Whether whoever has this key is.
    pub(super) fn knows(&self, key: &PeerKey) -> bool {
        self.waiters().iter().any(|(of, _)| of == key)
    }

    /// Gives a connection from whoever has this key to the first who waits for it; whether anybody did.
    pub(super) fn hand(&self, key: &PeerKey, mut source: Source) -> bool {
        let mut waiters = self.waiters();
        while let Some(at) = waiters.iter().position(|(of, _)| of == key) {
            match waiters.remove(at).1.send(source) {
                Ok(()) => return true,
                Err(unwanted) => source = unwanted,
            }
        }
        false
    }

    /// Nobody is awaited any more.
    pub(super) fn end_all(&self) {
        self.waiters().clear();
    }

    /// Those who wait still.
    fn waiters(&self) -> MutexGuard<'_, Vec<Waiter>> {
        let mut waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.retain(|(_, hand)| !hand.is_closed());
        waiters
    }
}
