//! What the broker needs of a store.

use std::sync::Arc;

use gleaner_protocol::Digest;

use super::error::StoreError;
use super::past::Past;

/// What is made durable together.
#[derive(Debug, Default)]
pub struct Commit<'a> {
    /// Records, in order.
    pub records: Vec<&'a [u8]>,
    /// Blobs that the records refer to.
    pub small_blobs: Vec<(Digest, &'a [u8])>,
}

impl Commit<'_> {
    /// Bytes of all its records and blobs.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let records: usize = self.records.iter().map(|record| record.len()).sum();
        records + self.small_blobs.iter().map(|(_, blob)| blob.len()).sum::<usize>()
    }
}

/// Whether there is space for more than what is under way, and why not.
pub type Admission = Arc<dyn Fn() -> Result<(), StoreError> + Send + Sync>;

/// A durable, ordered journal of opaque records.
///
/// # Invariants
/// - Commits are replayed in order, each whole or not at all.
/// - After an error other than [`StoreError::Full`] every further call is refused.
pub trait Journal: Send {
    /// Makes a commit durable and returns its sequence: one more than that of the commit before.
    ///
    /// # Errors
    /// [`StoreError::Full`] leaves nothing behind and may be tried again.
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, StoreError>;

    /// Sequence of the last commit; 0 before the first.
    fn last_sequence(&self) -> u64;

    /// Bytes that a replay would read after the snapshot.
    fn tail_bytes(&self) -> u64;

    /// Says at any time, from any thread, whether something new may be accepted.
    fn admission(&self) -> Admission;

    /// About how long the snapshot is that a replay begins with.
    fn snapshot_bytes(&self) -> u64;

    /// All that there is now, to be read by another thread while commits go on.
    ///
    /// # Errors
    /// Those of the disk.
    fn past(&mut self) -> Result<Past, StoreError>;

    /// Begins a snapshot that stands for all records up to now. It is written beside the journal,
    /// by whom and how slowly one likes.
    ///
    /// # Errors
    /// Those of the disk; the journal goes on.
    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotWriter>, StoreError>;

    /// Makes a finished snapshot, named by its sequence, the one that a replay begins with.
    ///
    /// # Errors
    /// Those of the disk.
    fn adopt_snapshot(&mut self, sequence: u64) -> Result<(), StoreError>;

    /// Removes some of what a snapshot has replaced, at most `parts_max` parts of entries; returns
    /// whether there are more. While somebody reads them they stay.
    ///
    /// # Errors
    /// Those of the disk.
    fn prune(&mut self, parts_max: usize) -> Result<bool, StoreError>;
}

/// Writes a snapshot, chunk by chunk. Dropped before it is finished it leaves nothing behind.
pub trait SnapshotWriter: Send {
    /// Adds a chunk.
    ///
    /// # Errors
    /// Those of the disk, and a chunk over its limit.
    fn write(&mut self, chunk: &[u8]) -> Result<(), StoreError>;

    /// Makes the snapshot durable and returns its sequence.
    ///
    /// # Errors
    /// Those of the disk.
    fn finish(self: Box<Self>) -> Result<u64, StoreError>;
}
