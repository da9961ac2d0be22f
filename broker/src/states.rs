//! What replicas saved on the way, for those that take their place on other hosts.
//!
//! Nothing of it has to last: whose state is gone begins anew. So who goes on from what is not
//! written down either, and a broker that starts has no states.
//!
//! # Invariants
//! - All of them together stay below their limit; what came longest ago goes first.
//! - What a replica saved goes when it has saved twice again, unless another replica saved the same.
//! - What is counted is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use gleaner_protocol::Digest;
use gleaner_protocol::limits::SAVED_STATE_BYTES_MAX;

use crate::blobs::{BlobContent, BlobError, BlobStore, LocalBlobs};

/// The states of one broker. Clones share them.
#[derive(Clone)]
pub(crate) struct States {
    blobs: LocalBlobs,
    bytes_max: u64,
    kept: Arc<Mutex<Kept>>,
    /// Held by who enters some and removes others.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What a file takes at least.
const BLOCK_BYTES: u64 = 4096;

#[derive(Default)]
struct Kept {
    entries: BTreeMap<Digest, Entry>,
    /// The oldest first, by the number of the arrival.
    order: BTreeMap<u64, Digest>,
    bytes: u64,
    arrivals: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    bytes: u64,
    arrival: u64,
    /// Replicas that saved it last.
    replicas: u32,
}

impl Kept {
    fn enter(&mut self, state: Digest, bytes: u64) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let before = self.remove(state).map_or(0, |entry| entry.replicas);
        self.entries.insert(state, Entry { bytes, arrival, replicas: before.saturating_add(1) });
        self.order.insert(arrival, state);
        self.bytes += bytes;
    }

    fn remove(&mut self, state: Digest) -> Option<Entry> {
        let entry = self.entries.remove(&state)?;
        self.order.remove(&entry.arrival);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// A replica has saved something else; whether nobody needs this any more.
    fn let_go(&mut self, state: Digest) -> bool {
        match self.entries.get_mut(&state) {
            Some(entry) if entry.replicas > 1 => {
                entry.replicas -= 1;
                false
            }
            Some(_) => self.remove(state).is_some(),
            None => false,
        }
    }
}

impl States {
    /// Begins without any in a folder of its own.
    ///
    /// # Errors
    /// [`BlobError::File`].
    pub(crate) fn open(
        folder: &Path,
        min_free_bytes: u64,
        bytes_max: u64,
    ) -> Result<Self, BlobError> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BlobError::file("remove", folder)(error));
            }
            _ => {}
        }
        let blobs = LocalBlobs::open_passing(folder, min_free_bytes)?;
        Ok(Self { blobs, bytes_max, kept: Arc::default(), turn: Arc::default() })
    }

    /// Takes one, in the place of what the same replica `replaces`, and lets go of those for which
    /// there is no room then: to the end, whether somebody waits for it or not.
    ///
    /// # Errors
    /// Those of [`BlobStore::put_stream`].
    pub(crate) async fn put(
        &self,
        state: Digest,
        replaces: Option<Digest>,
        content: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<(), BlobError> {
        let this = self.clone();
        let put = tokio::spawn(async move {
            let bytes = this.blobs.put_stream(state, content, SAVED_STATE_BYTES_MAX).await?;
            let _turn = this.turn.lock().await;
            if this.blobs.open(state).await?.is_none() {
                // Somebody has let go of the same since it was found to be here already.
                let source = io::ErrorKind::NotFound.into();
                return Err(BlobError::BrokenOff { digest: state, bytes, source });
            }
            let mut removed = Ok(());
            for old in this.enter(state, bytes, replaces) {
                removed = removed.and(this.blobs.remove(old).await);
            }
            removed
        });
        match put.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only while the runtime is shut down.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Opens one, if it is still here.
    ///
    /// # Errors
    /// Those of [`BlobStore::open`].
    pub(crate) async fn open_state(&self, state: Digest) -> Result<Option<BlobContent>, BlobError> {
        self.blobs.open(state).await
    }

    /// Those that have to go for it.
    fn enter(&self, state: Digest, bytes: u64, replaces: Option<Digest>) -> Vec<Digest> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.enter(state, bytes.next_multiple_of(BLOCK_BYTES));
        let mut gone: Vec<_> = replaces.filter(|old| kept.let_go(*old)).into_iter().collect();
        while kept.bytes > self.bytes_max
            && let Some((_, oldest)) = kept.order.first_key_value().map(|(at, of)| (*at, *of))
        {
            kept.remove(oldest);
            gone.push(oldest);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};

    use super::*;

    async fn put(states: &States, content: &[u8]) -> Digest {
        replace(states, None, content).await
    }

    async fn replace(states: &States, old: Option<Digest>, content: &[u8]) -> Digest {
        let (state, content) = (Digest::of(content), Bytes::copy_from_slice(content));
        let content = stream::once(async { Ok(content) }).boxed();
        states.put(state, old, content).await.expect("stored");
        state
    }

    async fn has(states: &States, state: Digest) -> bool {
        states.open_state(state).await.expect("read").is_some()
    }

    #[tokio::test]
    async fn what_came_longest_ago_makes_room_and_nothing_outlives_its_broker() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("states");
        let states = States::open(&path, 1 << 20, 2 * BLOCK_BYTES).expect("a new one");
        let second = put(&states, &[2; 10]).await;
        let first = put(&states, &[1; 10]).await;
        // It is as if it came now.
        assert_eq!(put(&states, &[2; 10]).await, second);
        let third = put(&states, &[3; 10]).await;
        assert!(!has(&states, first).await);
        assert!(has(&states, second).await && has(&states, third).await);
        drop(states);
        let states = States::open(&path, 1 << 20, 2 * BLOCK_BYTES).expect("the next broker's");
        assert!(!has(&states, third).await);
    }

    #[tokio::test]
    async fn what_a_replica_saved_before_goes_unless_another_saved_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let states = States::open(&folder.path().join("states"), 1 << 20, 1 << 30).expect("new");
        let first = put(&states, b"first").await;
        assert_eq!(put(&states, b"first").await, first, "another replica's");
        let second = replace(&states, Some(first), b"second").await;
        assert!(has(&states, first).await && has(&states, second).await);
        replace(&states, Some(first), b"second").await;
        assert!(!has(&states, first).await && has(&states, second).await);
        // One that nobody has is nothing to replace.
        replace(&states, Some(first), b"third").await;
        assert!(has(&states, second).await);
    }

    #[tokio::test]
    async fn one_that_is_too_long_or_another_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let states = States::open(&folder.path().join("states"), 1 << 20, 1 << 30).expect("new");
        let content = Bytes::from(vec![0; SAVED_STATE_BYTES_MAX as usize + 1]);
        for (state, content) in
            [(Digest::of(&content), content), (Digest::of(b"this"), Bytes::from_static(b"that"))]
        {
            let refused =
                states.put(state, None, stream::once(async { Ok(content) }).boxed()).await;
            assert!(refused.is_err());
            assert!(!has(&states, state).await);
        }
    }
}
