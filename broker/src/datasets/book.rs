//! The file of datasets: replaced as a whole with each change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_protocol::{DatasetId, DatasetName, Digest, OwnerName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::blobs::BlobError;
use crate::sealed_file::{self, SealedFileError};

/// What cannot be done with the file.
#[derive(Debug, Error)]
pub enum DatasetsError {
    /// It cannot be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds something else than it should.
    #[error(
        "{path} is damaged ({why}): the broker does not start without knowing which datasets it keeps. \
         Restore the file from a backup; or move it away, and add all datasets anew",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The manifest of a dataset may be there, and the store does not say so.
    #[error("cannot read the manifests of datasets: see that the store of blobs can be reached")]
    Store(#[from] BlobError),
}

/// All datasets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Book {
    #[serde(skip)]
    path: PathBuf,
    /// The id that was given last.
    pub(super) last: u64,
    pub(super) records: BTreeMap<DatasetId, Record>,
}

/// One dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: DatasetName,
    pub(super) owner: OwnerName,
    pub(super) manifest: Digest,
    pub(super) made_ms: u64,
    /// It has no name any more, and is there for jobs that go on.
    pub(super) removed: bool,
}

impl From<SealedFileError> for DatasetsError {
    fn from(error: SealedFileError) -> Self {
        match error {
            SealedFileError::File { what, path, source } => Self::File { what, path, source },
            SealedFileError::Damaged { path, why } => Self::Damaged { path, why },
        }
    }
}

impl Book {
    /// Reads it; an empty one where there is no file.
    pub(super) fn open(path: &Path) -> Result<Self, DatasetsError> {
        let book = sealed_file::read::<Self>(path)?;
        let book = book.unwrap_or(Self { path: path.into(), last: 0, records: BTreeMap::new() });
        Ok(Self { path: path.into(), ..book })
    }

    /// Those of a name that have it still.
    pub(super) fn named(&self, name: &DatasetName) -> impl Iterator<Item = (DatasetId, &Record)> {
        let of_name = self.records.iter().filter(move |(_, of)| !of.removed && of.name == *name);
        of_name.map(|(id, record)| (*id, record))
    }

    /// Replaces the file. It is on the disk when this returns.
    pub(super) fn save(&self) -> Result<(), DatasetsError> {
        Ok(sealed_file::replace(&self.path, self)?)
    }
}
