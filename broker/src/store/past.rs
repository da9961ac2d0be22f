//! All that the journal held at one moment, to be read by any thread while commits go on.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use super::engine::Engine;
use super::entries::{End, Reader};
use super::error::StoreError;
use super::meta::Identity;
use super::snapshot;

/// What a replay yields: first the chunks of the snapshot, then the records after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed<'a> {
    /// A chunk of the snapshot, in the order in which they were written.
    Chunk(&'a [u8]),
    /// A record.
    Record {
        /// Sequence of its commit.
        sequence: u64,
        /// The record.
        record: &'a [u8],
    },
}

/// The snapshot and the entries that stand for all commits up to one.
///
/// # Invariants
/// - Nothing of it is changed any more, and nothing is removed while it lives.
pub struct Past {
    pub(crate) folder: PathBuf,
    pub(crate) snapshots: PathBuf,
    pub(crate) snapshot: Option<u64>,
    /// The journal removes nothing while somebody else has it too.
    pub(crate) engine: Arc<Engine>,
    pub(crate) last_sequence: u64,
    pub(crate) identity: Identity,
}

impl Past {
    /// Sequence of the last commit in it; 0 where there is none.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Passes all of it to `visit`, in order; as often as one likes.
    ///
    /// # Errors
    /// What is on disk is not what was written; an error of `visit`, with the place.
    pub fn replay<E>(
        &self,
        visit: impl FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<(), StoreError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.read(self.last_sequence, visit).map(drop)
    }

    /// The same, with whole entries up to `last` that come behind it.
    pub(crate) fn read<E>(
        &self,
        last: u64,
        mut visit: impl FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<End, StoreError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let failed = |sequence: u64, error: E| {
            let folder = self.folder.clone();
            StoreError::Replay { folder, sequence, source: error.into() }
        };
        let begin = self.snapshot.unwrap_or(0);
        if let Some(sequence) = self.snapshot {
            snapshot::read(&self.snapshots, sequence, |chunk| {
                visit(Replayed::Chunk(chunk)).map_err(|error| failed(sequence, error))
            })?
            .map_err(|what| StoreError::damaged(&self.folder, what))?;
        }
        let reader = Reader {
            folder: &self.folder,
            engine: &self.engine,
            begin,
            acknowledged: self.last_sequence,
            last,
        };
        reader.run(|sequence, record| {
            visit(Replayed::Record { sequence, record }).map_err(|error| failed(sequence, error))
        })
    }
}
