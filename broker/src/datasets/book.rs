//! The file of datasets: replaced as a whole with each change.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::{DatasetId, DatasetName, Digest, OwnerName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

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
}

/// The book as its file is.
#[derive(Serialize, Deserialize)]
struct Sealed {
    /// The hash of the rest, as JSON without spaces.
    hash: Digest,
    book: Book,
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

impl Book {
    /// Reads it; an empty one where there is no file.
    pub(super) fn open(path: &Path) -> Result<Self, DatasetsError> {
        let damaged = |why: String| DatasetsError::Damaged { path: path.into(), why };
        match fs::read(path) {
            Ok(bytes) => {
                let Sealed { hash, book } =
                    serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                if hash != book.hash() {
                    return Err(damaged("its content has another hash than it says".into()));
                }
                Ok(Self { path: path.into(), ..book })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path: path.into(), last: 0, records: BTreeMap::new() })
            }
            Err(source) => Err(DatasetsError::File { what: "read", path: path.into(), source }),
        }
    }

    /// Those of a name that have it still.
    pub(super) fn named(&self, name: &DatasetName) -> impl Iterator<Item = (DatasetId, &Record)> {
        let of_name = self.records.iter().filter(move |(_, of)| !of.removed && of.name == *name);
        of_name.map(|(id, record)| (*id, record))
    }

    fn hash(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("our own types serialise"))
    }

    /// Replaces the file. It is on the disk when this returns.
    pub(super) fn save(&self) -> Result<(), DatasetsError> {
        let sealed = Sealed { hash: self.hash(), book: self.clone() };
        let bytes = serde_json::to_vec_pretty(&sealed).expect("our own types serialise");
        let new = self.path.with_extension("json.new");
        let replaced = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            let folder = self.path.parent().unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        replaced().map_err(|source| DatasetsError::File {
            what: "write",
            path: self.path.clone(),
            source,
        })
    }
}
