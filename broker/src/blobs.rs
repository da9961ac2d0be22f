//! Contents under their digests: inputs of tasks, outputs of replicas.
//!
//! # Invariants
//! - What is under a digest has that digest: it is hashed before it gets there, and again
//!   whenever it is read.
//! - A blob is on disk, with its name, before its sender is told.
//! - A path is made from a digest and nothing else.

mod bucket_blobs;
mod local_blobs;

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use gleaner_protocol::{Digest, Pieces};
use thiserror::Error;

pub(crate) use bucket_blobs::BucketBlobs;
pub use bucket_blobs::BucketError;
pub use local_blobs::LocalBlobs;

/// A store of contents under their digests.
pub trait BlobStore: Send + Sync {
    /// Takes a content and returns its length. One that is here already is compared, not stored
    /// again.
    ///
    /// # Errors
    /// The content has another digest or is longer than `limit_bytes`, the sender broke off, or
    /// it cannot be stored. Nothing is left behind then.
    fn put_stream<'a>(
        &'a self,
        expected: Digest,
        content: BoxStream<'a, io::Result<Bytes>>,
        limit_bytes: u64,
    ) -> BoxFuture<'a, Result<u64, BlobError>>;

    /// Opens a content for reading from some byte on; nothing where it is not here. Where that is not
    /// the first one, what is read is not checked: whoever reads it does that piece by piece.
    ///
    /// # Errors
    /// Those of the disk or the bucket.
    fn read_from<'a>(
        &'a self,
        digest: Digest,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<BlobContent>, BlobError>>;

    /// Opens a content for reading; nothing where it is not here.
    ///
    /// # Errors
    /// Those of the disk or the bucket.
    fn open<'a>(&'a self, digest: Digest) -> BoxFuture<'a, Result<Option<BlobContent>, BlobError>> {
        self.read_from(digest, 0)
    }

    /// The hashes of a content's pieces; nothing where it is not here.
    ///
    /// # Errors
    /// Those of the disk or the bucket.
    fn pieces<'a>(&'a self, digest: Digest) -> BoxFuture<'a, Result<Option<Pieces>, BlobError>>;

    /// The length of a content that is about to be named, which stays from now on as if it had just
    /// been uploaded; nothing where it is not here.
    ///
    /// # Errors
    /// Those of the disk.
    fn keep<'a>(&'a self, digest: Digest) -> BoxFuture<'a, Result<Option<u64>, BlobError>>;

    /// All contents whose digests begin with a byte.
    ///
    /// # Errors
    /// Those of the disk or the bucket.
    fn beginning_with<'a>(&'a self, first: u8) -> BoxFuture<'a, Result<Vec<Digest>, BlobError>>;

    /// Removes contents that nobody names, but for those that were uploaded or kept a while ago.
    ///
    /// # Errors
    /// Those of the disk or the bucket.
    fn remove_unused<'a>(
        &'a self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'a, Result<RemovedBlobs, BlobError>>;
}

/// What came of the wish to remove contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovedBlobs {
    /// How many are gone.
    pub removed: usize,
    /// How many stay, since they were uploaded or kept too short a while ago.
    pub young: usize,
}

/// A content as a whole, where it is here and has at most so many bytes.
///
/// # Errors
/// Those of [`BlobStore::open`], and [`BlobError::TooLarge`].
pub(crate) async fn read_whole(
    blobs: &dyn BlobStore,
    digest: Digest,
    limit_bytes: u64,
) -> Result<Option<Vec<u8>>, BlobError> {
    let Some(mut content) = blobs.open(digest).await? else { return Ok(None) };
    if content.bytes > limit_bytes {
        return Err(BlobError::TooLarge { digest, limit_bytes });
    }
    let mut whole = Vec::new();
    while let Some(piece) = content.stream.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(Some(whole))
}

/// A content that is being read.
pub struct BlobContent {
    /// Its length.
    pub bytes: u64,
    /// The content. The last piece comes only when all of them together have the digest; else
    /// an error comes in its place, so that whoever counts bytes sees that some are missing.
    pub stream: BoxStream<'static, Result<Bytes, BlobError>>,
}

/// Why a blob could not be stored or read.
#[derive(Debug, Error)]
pub enum BlobError {
    /// The content is another.
    #[error("the content has digest {found}, not {expected}: send it again")]
    Mismatch {
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// Over the limit.
    #[error("blob {digest} is longer than {limit_bytes} bytes")]
    TooLarge {
        /// Which blob.
        digest: Digest,
        /// The limit.
        limit_bytes: u64,
    },
    /// The sender broke off.
    #[error("blob {digest} broke off after {bytes} bytes: send it again")]
    BrokenOff {
        /// Which blob.
        digest: Digest,
        /// How much of it had come.
        bytes: u64,
        /// Why.
        source: io::Error,
    },
    /// Too little space is left.
    #[error(
        "blob {digest} does not fit on the disk of {folder}: {free_bytes} bytes are free, {min_free_bytes} are kept free; free some space"
    )]
    Full {
        /// Which blob.
        digest: Digest,
        /// Where it should go.
        folder: PathBuf,
        /// Free space.
        free_bytes: u64,
        /// Free space that is left to others.
        min_free_bytes: u64,
    },
    /// What is stored does not have its digest any more.
    #[error(
        "blob {digest} is damaged: what is stored has digest {found}; it was moved to {moved_to}; upload it again"
    )]
    Damaged {
        /// Which blob.
        digest: Digest,
        /// The digest of what is stored.
        found: Digest,
        /// Where the damaged content lies now.
        moved_to: PathBuf,
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
    /// The bucket does not do what is asked.
    #[error("cannot {doing} {object}")]
    Bucket {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        object: String,
        /// Why not.
        source: Box<object_store::Error>,
    },
}

impl BlobError {
    /// For use in `map_err` on file operations.
    pub(crate) fn file(
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}
