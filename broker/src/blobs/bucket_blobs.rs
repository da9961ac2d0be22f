//! Blobs as objects of a bucket, in any store that speaks S3: `ab/cdef…` by digest below a prefix.
//!
//! A blob comes into the local folder first, as it does where there is no bucket: there it is hashed,
//! and a slow client costs nothing but its file. Then it goes to the bucket, and whoever sent it is
//! told. Reads go through the broker, which hashes what it passes on.
//!
//! # Invariants
//! - The local folder holds what has not reached the bucket. A broker that starts sends that first: so
//!   a kill loses nothing, and a folder that had no bucket gets one.
//! - A prefix belongs to one data folder ([`mod@claim`]): no broker removes what another one names.
//! - What is kept ([`BlobStore::keep`]) stays for [`BUCKET_BLOB_NAMED_WITHIN`], and nothing is removed
//!   so long after a start, which forgets what was kept before it.

mod claim;
mod kept;
mod reading;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use gleaner_protocol::{Digest, Pieces, PiecesBuilder, Span, boottime};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, Error as StoreError, GetOptions, GetRange,
    ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
};
use tokio::sync::Semaphore;

pub use self::claim::BucketError;
use self::claim::{Claimed, claim};
use self::kept::Kept;
use self::reading::Reading;
use super::local_blobs::{LocalBlobs, on_disk};
use super::{BlobContent, BlobError, BlobStore, RemovedBlobs};
use crate::config::BucketConfig;
use crate::limits::{
    BUCKET_BLOB_NAMED_WITHIN, BUCKET_PART_BYTES, BUCKET_RETRY_TIME, BUCKET_UPLOADS_MAX,
    UNUSED_BLOB_KEPT,
};
use crate::sealed_file::SealedFileError;
use crate::wall_clock;

/// Blobs in a bucket. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct BucketBlobs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What comes, until it is in the bucket.
    arrived: LocalBlobs,
    bucket: Arc<dyn ObjectStore>,
    /// The bucket and the prefix, for people.
    url: String,
    prefix: Key,
    uploads: Semaphore,
    /// Old blobs that somebody is about to name.
    kept: Kept,
    /// How long what nobody names stays after it was uploaded.
    unused: Duration,
}

/// How long what nobody names stays.
#[derive(Debug, Clone, Copy)]
struct Ages {
    /// After it was uploaded.
    unused: Duration,
    /// After somebody said to name it soon.
    named_within: Span,
}

impl BucketBlobs {
    /// Opens a bucket for the broker of a data folder, and sends it what lies in `arrived`.
    ///
    /// # Errors
    /// See [`BucketError`].
    pub(crate) async fn open(
        config: &BucketConfig,
        data_dir: &Path,
        arrived: LocalBlobs,
    ) -> Result<Self, BucketError> {
        let (bucket, prefix) = connect(config)?;
        let ages = Ages { unused: UNUSED_BLOB_KEPT, named_within: BUCKET_BLOB_NAMED_WITHIN };
        let url = config.url.clone();
        Self::open_in(Arc::new(bucket), prefix, url, data_dir, arrived, ages).await
    }

    async fn open_in(
        bucket: Arc<dyn ObjectStore>,
        prefix: Key,
        url: String,
        data_dir: &Path,
        arrived: LocalBlobs,
        ages: Ages,
    ) -> Result<Self, BucketError> {
        if claim(&*bucket, &prefix, &url, data_dir).await? == Claimed::Anew {
            tracing::info!("the blobs of this folder are kept in {url} from now on");
        }
        let shared = Shared {
            arrived,
            bucket,
            url,
            prefix,
            uploads: Semaphore::new(BUCKET_UPLOADS_MAX),
            kept: Kept::new(ages.named_within, boottime()),
            unused: ages.unused,
        };
        let blobs = Self { shared: Arc::new(shared) };
        blobs.send_arrived().await?;
        Ok(blobs)
    }

    /// The same of a folder without a bucket.
    ///
    /// # Errors
    /// [`BucketError::Elsewhere`]: its blobs are in one.
    pub(crate) fn check_none(data_dir: &Path) -> Result<(), BucketError> {
        claim::check_none(data_dir)
    }

    /// Has a copy of a data folder name its bucket, which belongs to the folder that was copied.
    ///
    /// # Errors
    /// The file that says so.
    pub(crate) fn disown(data_dir: &Path) -> Result<(), SealedFileError> {
        claim::disown(data_dir)
    }

    /// Sends all that lies in the local folder.
    async fn send_arrived(&self) -> Result<(), BlobError> {
        let arrived = self.shared.arrived.clone();
        let digests = on_disk(move || arrived.all()).await?;
        if digests.is_empty() {
            return Ok(());
        }
        let count = digests.len();
        tracing::info!("{count} blobs go to {} before anything is served", self.shared.url);
        let sent = stream::iter(digests).map(|digest| self.send(digest));
        sent.buffer_unordered(BUCKET_UPLOADS_MAX).try_for_each(|()| async { Ok(()) }).await?;
        tracing::info!("{count} blobs are in {}", self.shared.url);
        Ok(())
    }

    async fn put(
        &self,
        digest: Digest,
        content: BoxStream<'_, io::Result<Bytes>>,
        limit_bytes: u64,
    ) -> Result<u64, BlobError> {
        let bytes = match self.shared.arrived.put_stream(digest, content, limit_bytes).await {
            // Another upload of the same has gone to the bucket meanwhile; this one has its digest too.
            Err(BlobError::BrokenOff { bytes, source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                bytes
            }
            put => put?,
        };
        // Whoever sent it may be gone before it is there.
        let sent = tokio::spawn({
            let this = self.clone();
            async move { this.send(digest).await }
        });
        sent.await.unwrap_or_else(|error| {
            let source = io::Error::other(error.to_string());
            Err(BlobError::BrokenOff { digest, bytes, source })
        })?;
        Ok(bytes)
    }

    /// Sends one that has arrived, and removes it from the local folder.
    async fn send(&self, digest: Digest) -> Result<(), BlobError> {
        let _place = self.shared.uploads.acquire().await.expect("the semaphore is never closed");
        let arrived = self.shared.arrived.clone();
        let file = on_disk(move || arrived.open_file(digest)).await?;
        let kept = self.keep(digest).await?;
        match (file, kept) {
            (Some((_, bytes)), Some(in_bucket)) if in_bucket == bytes => {}
            (Some((file, bytes)), _) => self.upload(digest, file, bytes).await?,
            // It was sent because it came twice.
            (None, Some(_)) => return Ok(()),
            (None, None) => {
                let source = io::ErrorKind::NotFound.into();
                return Err(BlobError::BrokenOff { digest, bytes: 0, source });
            }
        }
        self.shared.arrived.remove(digest).await
    }

    async fn upload(
        &self,
        digest: Digest,
        file: std::fs::File,
        bytes: u64,
    ) -> Result<(), BlobError> {
        let (key, mut file) = (self.key_of(digest), file);
        if bytes <= BUCKET_PART_BYTES {
            let (_, part) = next_part(file, digest).await?;
            self.shared.bucket.put(&key, part).await.map_err(self.failed("write", &key))?;
            return Ok(());
        }
        let begun = self.shared.bucket.put_multipart(&key).await;
        let mut upload = begun.map_err(self.failed("write", &key))?;
        let whole = async {
            loop {
                let (rest, part) = next_part(file, digest).await?;
                if part.content_length() == 0 {
                    break;
                }
                file = rest;
                upload.put_part(part).await.map_err(self.failed("write", &key))?;
            }
            upload.complete().await.map_err(self.failed("write", &key))
        };
        if let Err(error) = whole.await {
            // The error that is told is the first one.
            let _ = upload.abort().await;
            return Err(error);
        }
        Ok(())
    }

    async fn begin_reading(
        &self,
        digest: Digest,
        from: u64,
    ) -> Result<Option<BlobContent>, BlobError> {
        let key = self.key_of(digest);
        if from > 0 {
            // A store refuses what begins behind the end.
            match self.length(&key).await? {
                None => return Ok(None),
                Some(bytes) if from >= bytes => {
                    return Ok(Some(BlobContent { bytes: 0, stream: stream::empty().boxed() }));
                }
                Some(_) => {}
            }
        }
        let range = (from > 0).then_some(GetRange::Offset(from));
        let options = GetOptions { range, ..GetOptions::default() };
        let got = match self.shared.bucket.get_opts(&key, options).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            got => got.map_err(self.failed("read", &key))?,
        };
        let bytes = got.range.end - got.range.start;
        let reading = Reading::of(self.clone(), digest, got, from == 0);
        Ok(Some(BlobContent { bytes, stream: reading.into_stream() }))
    }

    async fn length(&self, key: &Key) -> Result<Option<u64>, BlobError> {
        match self.shared.bucket.head(key).await {
            Ok(object) => Ok(Some(object.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look at", key)(error)),
        }
    }

    async fn hash_pieces(&self, digest: Digest) -> Result<Option<Pieces>, BlobError> {
        let Some(mut content) = self.begin_reading(digest, 0).await? else { return Ok(None) };
        let mut pieces = PiecesBuilder::default();
        while let Some(part) = content.stream.next().await {
            pieces.add(&part?);
        }
        Ok(Some(pieces.end()))
    }

    async fn keep(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        let _stays = self.shared.kept.look(digest).await;
        let bytes = self.length(&self.key_of(digest)).await?;
        if bytes.is_some() {
            self.shared.kept.note(digest, boottime());
        }
        Ok(bytes)
    }

    async fn remove(&self, digest: Digest) -> Result<bool, BlobError> {
        let Some(_alone) = self.shared.kept.remove(digest, boottime()).await else {
            return Ok(false);
        };
        let key = self.key_of(digest);
        let object = match self.shared.bucket.head(&key).await {
            Err(StoreError::NotFound { .. }) => return Ok(true),
            object => object.map_err(self.failed("look at", &key))?,
        };
        // Clocks that differ by more than minutes are refused by the store's signatures.
        let now_s = i64::try_from(wall_clock::utc_ms() / 1000).unwrap_or(i64::MAX);
        let age_s = u64::try_from(now_s - object.last_modified.timestamp()).unwrap_or(0);
        if age_s < self.shared.unused.as_secs() {
            return Ok(false);
        }
        self.shared.bucket.delete(&key).await.map_err(self.failed("remove", &key))?;
        Ok(true)
    }

    /// Moves a blob out of the way whose content has another digest.
    async fn set_aside(&self, digest: Digest, found: Digest) -> BlobError {
        let (from, to) = (self.key_of(digest), self.key(&format!("damaged/{digest}")));
        let moved = async {
            self.shared.bucket.copy(&from, &to).await?;
            self.shared.bucket.delete(&from).await
        };
        match moved.await {
            Ok(()) => BlobError::Damaged { digest, found, moved_to: self.told(&to).into() },
            Err(error) => self.failed("set aside the damaged blob", &from)(error),
        }
    }

    fn key(&self, below: &str) -> Key {
        self.shared.prefix.parts().chain(Key::from(below).parts()).collect()
    }

    fn key_of(&self, digest: Digest) -> Key {
        let digits = digest.to_string();
        let (folder, name) = digits.split_at(2);
        self.key(&format!("{folder}/{name}"))
    }

    /// A key as people write it.
    fn told(&self, key: &Key) -> String {
        told(&self.shared.url, &self.shared.prefix, key)
    }

    fn failed(
        &self,
        doing: &'static str,
        key: &Key,
    ) -> impl FnOnce(StoreError) -> BlobError + use<> {
        let object = self.told(key);
        move |source| BlobError::Bucket { doing, object, source: source.into() }
    }
}

impl BlobStore for BucketBlobs {
    fn put_stream<'a>(
        &'a self,
        expected: Digest,
        content: BoxStream<'a, io::Result<Bytes>>,
        limit_bytes: u64,
    ) -> BoxFuture<'a, Result<u64, BlobError>> {
        self.put(expected, content, limit_bytes).boxed()
    }

    fn read_from<'a>(
        &'a self,
        digest: Digest,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<BlobContent>, BlobError>> {
        self.begin_reading(digest, from).boxed()
    }

    fn pieces<'a>(&'a self, digest: Digest) -> BoxFuture<'a, Result<Option<Pieces>, BlobError>> {
        self.hash_pieces(digest).boxed()
    }

    fn keep<'a>(&'a self, digest: Digest) -> BoxFuture<'a, Result<Option<u64>, BlobError>> {
        self.keep(digest).boxed()
    }

    fn beginning_with<'a>(&'a self, first: u8) -> BoxFuture<'a, Result<Vec<Digest>, BlobError>> {
        let first = format!("{first:02x}");
        let folder = self.key(&first);
        let objects = self.shared.bucket.list(Some(&folder));
        let digests = objects.map_err(self.failed_list(&folder)).try_filter_map(move |object| {
            let digits = object.location.filename().map(|rest| format!("{first}{rest}"));
            std::future::ready(Ok(digits.and_then(|digits| digits.parse::<Digest>().ok())))
        });
        digests.try_collect().boxed()
    }

    fn remove_unused<'a>(
        &'a self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'a, Result<RemovedBlobs, BlobError>> {
        async move {
            let mut sum = RemovedBlobs::default();
            for digest in digests {
                match self.remove(digest).await? {
                    true => sum.removed += 1,
                    false => sum.young += 1,
                }
            }
            Ok(sum)
        }
        .boxed()
    }
}

impl BucketBlobs {
    fn failed_list(&self, folder: &Key) -> impl FnMut(StoreError) -> BlobError + use<> {
        let object = self.told(folder);
        move |source| BlobError::Bucket {
            doing: "list",
            object: object.clone(),
            source: source.into(),
        }
    }
}

/// The part of a file that comes next; none at its end.
async fn next_part(
    mut file: std::fs::File,
    digest: Digest,
) -> Result<(std::fs::File, PutPayload), BlobError> {
    on_disk(move || {
        let mut part = Vec::new();
        let read = file.by_ref().take(BUCKET_PART_BYTES).read_to_end(&mut part);
        read.map_err(BlobError::file("read", Path::new(&digest.to_string())))?;
        Ok((file, part.into()))
    })
    .await
}

/// `s3://bucket/prefix/ab/cdef…`.
fn told(url: &str, prefix: &Key, key: &Key) -> String {
    let below = key.as_ref().strip_prefix(prefix.as_ref()).unwrap_or(key.as_ref());
    format!("{}/{}", url.trim_end_matches('/'), below.trim_start_matches('/'))
}

/// The store that is configured, and the prefix in it. Asks nothing of the network.
fn connect(config: &BucketConfig) -> Result<(impl ObjectStore, Key), BucketError> {
    let (name, prefix) = config.bucket_and_prefix().map_err(BucketError::Config)?;
    let mut options = ClientOptions::new().with_connect_timeout(Duration::from_secs(5));
    if let Some(path) = &config.ca_file {
        let read = |source| BucketError::File { what: "read", path: path.clone(), source };
        let pem = std::fs::read(path).map_err(read)?;
        let certificates = Certificate::from_pem_bundle(&pem);
        for certificate in certificates.map_err(|error| BucketError::Setup(error.into()))? {
            options = options.with_root_certificate(certificate);
        }
    }
    let builder = match &config.keys_file {
        Some(path) => {
            let (id, secret) = claim::read_keys(path)?;
            AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret)
        }
        None => AmazonS3Builder::from_env(),
    };
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 10,
        retry_timeout: BUCKET_RETRY_TIME,
    };
    let mut builder = builder
        .with_bucket_name(name)
        .with_region(&config.region)
        .with_retry(retry)
        .with_client_options(options);
    if let Some(endpoint) = &config.endpoint {
        // Whoever writes http:// says that nobody listens on the way.
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
    }
    let bucket = builder.build().map_err(|error| BucketError::Setup(error.into()))?;
    Ok((bucket, Key::from(prefix)))
}

#[cfg(test)]
mod tests;
