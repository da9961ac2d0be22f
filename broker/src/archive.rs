//! Everything that a broker keeps, as one stream that no store's format is part of: what
//! `gleaner broker export` writes, `import` reads and `backup` sends.
//!
//! ```text
//!  gleaner-export 6
//!  S {"release":"0.1.0","folder_id":"…","token_key":"…","incarnation":3}
//!  N datasets.json 1234   a file of the data folder, as it is: 1,234 bytes, and a line break
//!  F 1234            facts, in order, as a JSON array of 1,234 bytes, and a line break
//!  O ab… 56          a small output under its digest, 56 bytes, and a line break
//!  B cd… 789         an input or a large output under its digest, and a line break
//!  E ef…             BLAKE3 of all that stands before this line
//! ```
//! Lines are UTF-8 and end in a line break. `S` comes once, then any number of `N`, `F`, `O` and `B` in any
//! order, facts among themselves in the order in which they were decided, each file once, `E` last. The
//! file of datasets stands before the blobs that it names. Where there is a `bucket.json`, which names a
//! bucket, there are no `B`: the bucket has them, and it does not belong to the copy. A reader refuses a
//! version that it does not know, and a file that is none of a broker's. The fields of facts are those of
//! [`Fact`](gleaner_scheduling::Fact); new ones have defaults.
//!
//! # Invariants
//! - What is read is whole: without the last line, or with another hash, nothing comes of it.
//! - A folder gets its name when all of it is in it, and on disk.

mod folder;
mod reader;
mod writer;

pub use folder::{export, import};
pub(crate) use writer::{Kept, write};

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::blobs::BlobError;
use crate::driver::RecordError;
use crate::store::StoreError;
use crate::usage;

const FIRST_LINE: &str = "gleaner-export 6";
const FIRST_WORD: &str = "gleaner-export ";

/// The file of datasets.
const DATASETS: &str = "datasets.json";

/// Files of a data folder that are carried as they are, beside that of datasets: what runs took, whom the
/// broker knows and its keys, its bucket, what somebody has stopped, views, forecasts, and what the farm did.
const FILES: [&str; 12] = [
    "runs.jsonl",
    "people.json",
    "audit.jsonl",
    "broker.key",
    "tls.key",
    "tls.crt",
    "bucket.json",
    "stopped.json",
    "views.json",
    "forecast.json",
    "farm.jsonl",
    "kernel-times.csv",
];

/// The file of this name, where it is one that is carried: one of [`FILES`], or a segment of usage.
fn file_of(data_dir: &Path, name: &str) -> Option<PathBuf> {
    let is_known = name == DATASETS || FILES.contains(&name) || usage::is_segment(name);
    is_known.then(|| data_dir.join(name))
}

/// What the folder is, beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Folder {
    /// Release that wrote the stream.
    release: String,
    /// As hexadecimal digits.
    folder_id: String,
    /// As hexadecimal digits: the secret that leases are known again by.
    token_key: String,
    incarnation: u32,
}

/// How much there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Facts.
    pub facts: u64,
    /// Small outputs.
    pub outputs: u64,
    /// Inputs and large outputs.
    pub blobs: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Why nothing was moved.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A blob.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The stream could not be written or read.
    #[error("the export cannot be {0}")]
    Stream(&'static str, #[source] io::Error),
    /// It is none, or not whole.
    #[error("this is no whole export: {0}; make it anew")]
    Broken(String),
    /// Written by a release with another form of exports.
    #[error(
        "this is an export of another version ({0:?}), this release reads {FIRST_LINE:?}: use the release that wrote it"
    )]
    Version(String),
    /// Its facts contradict each other.
    #[error("the export's facts cannot be replayed")]
    Facts(#[from] RecordError),
    /// A broker runs on the folder.
    #[error(
        "a broker runs on it{}: stop it, or have it copied while it works, with `gleaner broker backup DIR`",
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Running {
        /// Its process, where it is known.
        holder: Option<u32>,
    },
    /// The folder is no broker's.
    #[error("{0} holds no broker's data: name the folder that does with --data-dir")]
    NoStore(PathBuf),
    /// Something is there already.
    #[error("{0} is there already: name a folder that is not, or is empty")]
    Exists(PathBuf),
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(digits: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
