//! A blob that is being read from a bucket.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use gleaner_protocol::Digest;
use object_store::path::Path as Key;
use object_store::{Error as StoreError, GetResult};

use super::super::BlobError;
use super::BucketBlobs;

/// Passes on what comes, and the last of it only when all of it together has the digest.
pub(super) struct Reading {
    blobs: BucketBlobs,
    digest: Digest,
    key: Key,
    content: BoxStream<'static, Result<Bytes, StoreError>>,
    /// None where it is not read from its first byte on.
    hasher: Option<blake3::Hasher>,
    /// Bytes that are still to come.
    rest: u64,
}

impl Reading {
    pub(super) fn of(blobs: BucketBlobs, digest: Digest, got: GetResult, is_whole: bool) -> Self {
        Self {
            blobs,
            digest,
            key: got.meta.location.clone(),
            rest: got.range.end - got.range.start,
            content: got.into_stream(),
            hasher: is_whole.then(blake3::Hasher::new),
        }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<Bytes, BlobError>> {
        let read = stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            match reading.next().await {
                Ok(piece) => piece.map(|piece| (Ok(piece), Some(reading))),
                Err(error) => Some((Err(error), None)),
            }
        });
        read.boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        let piece = match self.content.next().await {
            Some(piece) => piece.map_err(self.blobs.failed("read", &self.key))?,
            None if self.rest == 0 => return Ok(None),
            None => return Err(self.cut_off()),
        };
        // More than was said is not passed on either.
        self.rest = self.rest.checked_sub(piece.len() as u64).ok_or_else(|| self.cut_off())?;
        let Some(hasher) = &mut self.hasher else { return Ok(Some(piece)) };
        hasher.update(&piece);
        if self.rest == 0 {
            let found = Digest::from_bytes(*hasher.finalize().as_bytes());
            if found != self.digest {
                return Err(self.blobs.set_aside(self.digest, found).await);
            }
        }
        Ok(Some(piece))
    }

    fn cut_off(&self) -> BlobError {
        let why = "it has another length than the store says";
        let source = StoreError::Generic { store: "S3", source: why.into() };
        self.blobs.failed("read", &self.key)(source)
    }
}
