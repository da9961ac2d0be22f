//! Why the store refused.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_protocol::error_chain;
use gleaner_serve::Problem;
use thiserror::Error;

/// Why the store could not be opened, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another broker runs on this folder.
    #[error("data folder {folder} is in use by another broker{}; stop that one or name another folder", holder.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// The other broker's process, where it is known.
        holder: Option<u32>,
    },
    /// A file operation failed.
    #[error("cannot {doing} {path}")]
    File {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes, without which no store is made")]
    Random(#[source] io::Error),
    /// Written by a release whose stores this one does not read.
    #[error(
        "the store in {folder} has format {found}, this release reads format {known}; to move it, run `gleaner broker export FILE --data-dir {folder}` of {}, then `gleaner broker import FILE --data-dir NEW-FOLDER` of this one", named(release)
    , folder = folder.display())]
    Format {
        /// The data folder.
        folder: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
        /// The release that wrote it last, where it says so.
        release: Option<String>,
    },
    /// What is on disk is not what was written.
    #[error(
        "the store in {folder} is damaged: {what}; check the disk, then restore the folder from a backup (`gleaner broker backup` makes them)"
    )]
    Damaged {
        /// The data folder.
        folder: PathBuf,
        /// Which entry, and what is wrong with it.
        what: String,
    },
    /// A record is sound, but means nothing to the one who reads it.
    #[error("the store in {folder}: record of sequence {sequence} cannot be replayed")]
    Replay {
        /// The data folder.
        folder: PathBuf,
        /// The record's sequence, or the snapshot's.
        sequence: u64,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Too little space is left.
    #[error(
        "the disk of {folder} is full: {free_bytes} bytes are free, {needed_bytes} are needed; free some space, no restart is necessary"
    )]
    Full {
        /// The data folder.
        folder: PathBuf,
        /// Free space.
        free_bytes: u64,
        /// Free space that is needed.
        needed_bytes: u64,
    },
    /// A record, blob or chunk over its limit.
    #[error("a {what} of {bytes} bytes is longer than {max}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The engine failed.
    #[error("the store in {folder} failed while it was {doing}")]
    Engine {
        /// The data folder.
        folder: PathBuf,
        /// What was going on.
        doing: &'static str,
        /// Why.
        source: sled::Error,
    },
    /// The engine failed in a way that it has no error for.
    #[error("the store in {folder} broke down while it was {doing}: {message}")]
    Panicked {
        /// The data folder.
        folder: PathBuf,
        /// What was going on.
        doing: &'static str,
        /// What it said.
        message: String,
    },
    /// It failed before.
    #[error(
        "the store in {folder} takes nothing since it failed ({first}); restart the broker when the cause is gone"
    )]
    Failed {
        /// The data folder.
        folder: PathBuf,
        /// The first failure.
        first: String,
    },
    /// One snapshot at a time.
    #[error("a snapshot is under way already; wait until it is done")]
    SnapshotUnderWay,
    /// The broker is stopping.
    #[error("the store is closed: the broker is stopping")]
    Closed,
}

impl StoreError {
    /// For use in `map_err` on file operations.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// For use in `map_err` on sled's operations.
    pub(crate) fn engine(
        doing: &'static str,
        folder: &Path,
    ) -> impl FnOnce(sled::Error) -> Self + use<> {
        let folder = folder.to_owned();
        move |source| Self::Engine { folder, doing, source }
    }

    /// What is wrong with a folder.
    pub(crate) fn damaged(folder: &Path, what: String) -> Self {
        Self::Damaged { folder: folder.to_owned(), what }
    }

    /// Whether it clears by itself when there is space again.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// The message with its sources, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        error_chain(self)
    }
}

fn named(release: &Option<String>) -> String {
    release.as_ref().map_or("the release that wrote it".into(), |of| format!("release {of}"))
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Full { .. } => Self::unavailable("store_full", error.chain()),
            StoreError::Closed => Self::unavailable("stopping", error.chain()),
            StoreError::TooLarge { max, .. } => Self::too_large(*max as u64),
            _ => Self::unavailable("store_failed", error.chain()),
        }
    }
}
