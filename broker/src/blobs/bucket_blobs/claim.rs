//! Which data folder a prefix of a bucket belongs to.
//!
//! The folder's file `bucket.json` names the bucket and a random id, and the object `broker` below the
//! prefix has the same id. The file is written first: a kill in between is made good at the next start.
//! A folder that was made of a backup names the bucket and has no id: of two copies of a folder, one may
//! remove what the other still names.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;
use object_store::path::Path as Key;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::super::BlobError;
use super::told;
use crate::sealed_file::{self, SealedFileError};

/// Name of the object that says whose a prefix is.
const OBJECT: &str = "broker";
/// A file of keys is short.
const KEYS_BYTES_MAX: u64 = 4096;

/// Why a broker cannot keep its blobs in a bucket.
#[derive(Debug, Error)]
pub enum BucketError {
    /// A bad value.
    #[error("{0}")]
    Config(String),
    /// What is configured is nothing to connect with.
    #[error("the bucket cannot be used as it is configured")]
    Setup(#[source] Box<StoreError>),
    /// A file cannot be read.
    #[error("cannot {what} {path}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The keys' file.
    #[error("{path}: {why}", path = path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the cure.
        why: &'static str,
    },
    /// The folder's own file.
    #[error(transparent)]
    Claim(#[from] SealedFileError),
    /// The bucket does not answer, or does not let the broker in.
    #[error(
        "cannot {doing} {object}: see that the bucket is there, that endpoint, region and keys are right, and that they may read, write, list and remove"
    )]
    Bucket {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        object: String,
        /// Why not.
        source: Box<StoreError>,
    },
    /// The folder's blobs are in another one.
    #[error("the blobs of this data folder are in {url}: set bucket.url to it")]
    Elsewhere {
        /// Where.
        url: String,
    },
    /// Another broker's.
    #[error(
        "{url} belongs to another broker's data folder: choose another prefix for this one. If that broker is gone for good, or this folder was made of its backup and takes its place, remove the object {object}"
    )]
    Taken {
        /// Where.
        url: String,
        /// What says so.
        object: String,
    },
    /// What has arrived cannot be sent.
    #[error("cannot send blobs to the bucket")]
    Blob(#[from] BlobError),
}

/// What the folder's file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    url: String,
    /// None in a copy of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Digest>,
}

/// Since when the prefix belongs to the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    Anew,
    Before,
}

pub(super) fn path_in(data_dir: &Path) -> PathBuf {
    data_dir.join("bucket.json")
}

pub(super) fn check_none(data_dir: &Path) -> Result<(), BucketError> {
    match sealed_file::read::<Claim>(&path_in(data_dir))? {
        Some(Claim { url, .. }) => Err(BucketError::Elsewhere { url }),
        None => Ok(()),
    }
}

/// Has a copy of a folder name its bucket, and not be the one to which it belongs.
pub(super) fn disown(data_dir: &Path) -> Result<(), SealedFileError> {
    let path = path_in(data_dir);
    match sealed_file::read::<Claim>(&path)? {
        Some(Claim { url, .. }) => sealed_file::replace(&path, &Claim { url, id: None }),
        None => Ok(()),
    }
}

/// Makes a prefix the folder's own, or finds that it is.
pub(super) async fn claim(
    bucket: &dyn ObjectStore,
    prefix: &Key,
    url: &str,
    data_dir: &Path,
) -> Result<Claimed, BucketError> {
    let path = path_in(data_dir);
    let claim = sealed_file::read::<Claim>(&path)?;
    if let Some(other) = claim.as_ref().filter(|claim| claim.url != url) {
        return Err(BucketError::Elsewhere { url: other.url.clone() });
    }
    let key: Key = prefix.parts().chain(Key::from(OBJECT).parts()).collect();
    let failed = |doing| {
        let object = told(url, prefix, &key);
        move |source: StoreError| BucketError::Bucket { doing, object, source: source.into() }
    };
    let found = match bucket.get(&key).await {
        Err(StoreError::NotFound { .. }) => None,
        got => Some(got.map_err(failed("read"))?.bytes().await.map_err(failed("read"))?),
    };
    let taken = || BucketError::Taken { url: url.into(), object: told(url, prefix, &key) };
    let id = claim.and_then(|claim| claim.id);
    let claimed = if id.is_some() { Claimed::Before } else { Claimed::Anew };
    match (id, found) {
        (Some(id), Some(found)) if found == id.to_string().as_bytes() => return Ok(claimed),
        (_, Some(_)) => return Err(taken()),
        (id, None) => {
            let id = match id {
                Some(id) => id,
                None => {
                    let id = random_id();
                    sealed_file::replace(&path, &Claim { url: url.into(), id: Some(id) })?;
                    id
                }
            };
            let content = PutPayload::from(id.to_string().into_bytes());
            match bucket.put_opts(&key, content, PutMode::Create.into()).await {
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    return Err(taken());
                }
                put => put.map_err(failed("write"))?,
            };
        }
    }
    Ok(claimed)
}

fn random_id() -> Digest {
    let mut id = [0; 32];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .expect("the system draws random numbers");
    Digest::from_bytes(id)
}

/// The id of an access key and its secret, a line each, in a file that nobody else can read.
pub(super) fn read_keys(path: &Path) -> Result<(String, String), BucketError> {
    let failed = |source| BucketError::File { what: "read", path: path.into(), source };
    let wrong = |why| BucketError::Keys { path: path.into(), why };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(wrong("others can read it: chmod 600"));
    }
    let mut text = String::new();
    file.take(KEYS_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next(), lines.next()) {
        (Some(id), Some(secret), None) => Ok((id.into(), secret.into())),
        _ => Err(wrong("it must have two lines: the access key's id, and its secret")),
    }
}
