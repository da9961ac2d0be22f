//! Blobs as files of a local folder: `ab/cdef…` by digest, `incoming/` while they come,
//! `damaged/` for what does not have its digest any more.

mod incoming;
mod unused;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use gleaner_protocol::{Digest, Pieces, Span, boottime};
use tokio::sync::Semaphore;

use self::incoming::Incoming;
use super::{BlobContent, BlobError, BlobStore, RemovedBlobs};
use crate::limits::{BLOB_PIECE_BYTES, BLOB_STREAMS_MAX, UPLOAD_BYTES_PER_S_MIN, UPLOAD_START_MAX};

/// Blobs in a local folder. Clones share it.
#[derive(Debug, Clone)]
pub struct LocalBlobs {
    folder: Arc<Folder>,
    streams: Arc<Semaphore>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    min_free_bytes: u64,
    /// Whether what is here has to outlive the machine.
    lasts: bool,
    drafts: AtomicU64,
    /// Held while a blob is dated, or is removed because its date is old.
    dating: Mutex<()>,
}

impl LocalBlobs {
    /// Opens the folder, or makes it, and removes what was left half-way. Only one process may
    /// have it open.
    ///
    /// # Errors
    /// [`BlobError::File`].
    pub fn open(path: &Path, min_free_bytes: u64) -> Result<Self, BlobError> {
        Self::open_as(path, min_free_bytes, true)
    }

    /// The same for what need not outlive the machine.
    pub(crate) fn open_passing(path: &Path, min_free_bytes: u64) -> Result<Self, BlobError> {
        Self::open_as(path, min_free_bytes, false)
    }

    fn open_as(path: &Path, min_free_bytes: u64, lasts: bool) -> Result<Self, BlobError> {
        let path = path.to_owned();
        let folder = Folder {
            path,
            min_free_bytes,
            lasts,
            drafts: AtomicU64::new(0),
            dating: Mutex::default(),
        };
        let incoming = folder.incoming();
        match fs::remove_dir_all(&incoming) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BlobError::file("remove", &incoming)(error));
            }
            _ => {}
        }
        fs::create_dir_all(&incoming).map_err(BlobError::file("make", &incoming))?;
        let streams = Arc::new(Semaphore::new(BLOB_STREAMS_MAX));
        Ok(Self { folder: Arc::new(folder), streams })
    }

    /// Removes one, if it is here.
    pub(crate) async fn remove(&self, digest: Digest) -> Result<(), BlobError> {
        let path = self.folder.path_of(digest);
        let remove = move || match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BlobError::file("remove", &path)(error))
            }
            _ => Ok(()),
        };
        self.step(remove).await
    }

    /// Does one step of a transfer, in a place among those that read and write at once. Nobody
    /// has a place while it waits for its client.
    async fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let place = Arc::clone(&self.streams).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        on_disk(move || {
            let _place = place;
            work()
        })
        .await
    }

    async fn hash_pieces(&self, digest: Digest) -> Result<Option<Pieces>, BlobError> {
        let folder = self.folder.clone();
        let read = move || {
            let path = folder.path_of(digest);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(BlobError::file("open", &path)(error)),
            };
            let pieces = Pieces::of_reader(file).map_err(BlobError::file("read", &path))?;
            match pieces.digest() {
                Some(found) if found != digest => Err(folder.set_aside(digest, found)),
                _ => Ok(Some(pieces)),
            }
        };
        self.step(read).await
    }

    async fn put(
        &self,
        expected: Digest,
        mut content: BoxStream<'_, io::Result<Bytes>>,
        limit_bytes: u64,
    ) -> Result<u64, BlobError> {
        let folder = self.folder.clone();
        let mut incoming = self.step(move || Incoming::begin(folder, expected)).await?;
        let begun = boottime();
        let mut bytes = 0_u64;
        let mut piece = BytesMut::new();
        while let Some(part) = content.next().await {
            let part =
                part.map_err(|source| BlobError::BrokenOff { digest: expected, bytes, source })?;
            bytes += part.len() as u64;
            if is_too_slow(bytes, boottime().since(begun)) {
                let why = format!("slower than {UPLOAD_BYTES_PER_S_MIN} bytes a second");
                let source = io::Error::new(io::ErrorKind::TimedOut, why);
                return Err(BlobError::BrokenOff { digest: expected, bytes, source });
            }
            if bytes > limit_bytes {
                return Err(BlobError::TooLarge { digest: expected, limit_bytes });
            }
            piece.extend_from_slice(&part);
            if piece.len() >= BLOB_PIECE_BYTES {
                let piece = piece.split().freeze();
                incoming = self.step(move || incoming.add(&piece)).await?;
            }
        }
        self.step(move || incoming.add(&piece)?.finish()).await?;
        Ok(bytes)
    }

    async fn begin_reading(
        &self,
        digest: Digest,
        from: u64,
    ) -> Result<Option<BlobContent>, BlobError> {
        let folder = self.folder.clone();
        let begun = self.step(move || Reading::begin(folder, digest, from)).await?;
        let Some(reading) = begun else { return Ok(None) };
        let bytes = reading.rest;
        let state = Some((reading, self.clone()));
        let stream = stream::unfold(state, |state| async {
            let (mut reading, blobs) = state?;
            let read = blobs.step(move || {
                let piece = reading.next()?;
                Ok((piece, reading))
            });
            match read.await {
                Ok((piece, _)) if piece.is_empty() => None,
                Ok((piece, reading)) => Some((Ok(piece), Some((reading, blobs)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Some(BlobContent { bytes, stream: stream.boxed() }))
    }
}

impl BlobStore for LocalBlobs {
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
        let folder = self.folder.clone();
        on_disk(move || folder.keep(digest)).boxed()
    }

    fn beginning_with<'a>(&'a self, first: u8) -> BoxFuture<'a, Result<Vec<Digest>, BlobError>> {
        let folder = self.folder.clone();
        on_disk(move || folder.beginning_with(first)).boxed()
    }

    fn remove_unused<'a>(
        &'a self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'a, Result<RemovedBlobs, BlobError>> {
        let folder = self.folder.clone();
        on_disk(move || folder.remove_unused(&digests)).boxed()
    }
}

impl Folder {
    fn incoming(&self) -> PathBuf {
        self.path.join("incoming")
    }

    /// Where a blob lies.
    fn path_of(&self, digest: Digest) -> PathBuf {
        let digits = digest.to_string();
        let (folder, name) = digits.split_at(2);
        self.path.join(folder).join(name)
    }

    fn length(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        let path = self.path_of(digest);
        match fs::metadata(&path) {
            Ok(file) => Ok(Some(file.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::file("look at", &path)(error)),
        }
    }

    /// Moves a blob out of the way whose content has another digest.
    fn set_aside(&self, digest: Digest, found: Digest) -> BlobError {
        let damaged = self.path.join("damaged");
        let moved_to = damaged.join(digest.to_string());
        let path = self.path_of(digest);
        match fs::create_dir_all(&damaged).and_then(|()| fs::rename(&path, &moved_to)) {
            Ok(()) => BlobError::Damaged { digest, found, moved_to },
            Err(error) => BlobError::file("set aside the damaged blob", &path)(error),
        }
    }
}

/// A blob that is being read.
struct Reading {
    folder: Arc<Folder>,
    digest: Digest,
    file: File,
    path: PathBuf,
    /// None where it is not read from its first byte on.
    hasher: Option<blake3::Hasher>,
    bytes: u64,
    /// Bytes that are still to be read.
    rest: u64,
}

impl Reading {
    fn begin(folder: Arc<Folder>, digest: Digest, from: u64) -> Result<Option<Self>, BlobError> {
        let path = folder.path_of(digest);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BlobError::file("open", &path)(error)),
        };
        let bytes = file.metadata().map_err(BlobError::file("look at", &path))?.len();
        let from = from.min(bytes);
        if from > 0 {
            file.seek(SeekFrom::Start(from)).map_err(BlobError::file("read", &path))?;
        }
        let hasher = (from == 0).then(blake3::Hasher::new);
        Ok(Some(Self { folder, digest, file, path, hasher, bytes, rest: bytes - from }))
    }

    /// The next piece; empty at the end.
    fn next(&mut self) -> Result<Bytes, BlobError> {
        if self.rest == 0 && self.bytes > 0 {
            return Ok(Bytes::new());
        }
        let length = usize::try_from(self.rest).unwrap_or(usize::MAX).min(BLOB_PIECE_BYTES);
        let mut piece = vec![0; length];
        self.file.read_exact(&mut piece).map_err(BlobError::file("read", &self.path))?;
        self.rest -= length as u64;
        let Some(hasher) = &mut self.hasher else { return Ok(piece.into()) };
        hasher.update(&piece);
        if self.rest == 0 {
            let found = Digest::from_bytes(*hasher.finalize().as_bytes());
            if found != self.digest {
                return Err(self.folder.set_aside(self.digest, found));
            }
        }
        Ok(piece.into())
    }
}

/// Whether so much in such a time is less than a client that means it sends.
fn is_too_slow(bytes: u64, elapsed: Span) -> bool {
    let counted_us = u128::from(elapsed.as_micros().saturating_sub(UPLOAD_START_MAX.as_micros()));
    u128::from(bytes) * 1_000_000 < counted_us * u128::from(UPLOAD_BYTES_PER_S_MIN)
}

/// Does what may wait for a disk where it holds up nobody.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only while the runtime is shut down.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_upload_that_trickles_is_too_slow_after_a_while() {
        let second = UPLOAD_BYTES_PER_S_MIN;
        let after = |seconds| UPLOAD_START_MAX + Span::from_secs(seconds);
        assert!(!is_too_slow(1, UPLOAD_START_MAX));
        assert!(!is_too_slow(10 * second, after(10)));
        assert!(is_too_slow(10 * second - 1, after(10)));
    }

    #[tokio::test]
    async fn clients_that_send_or_read_nothing_hold_up_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let blobs = LocalBlobs::open(&folder.path().join("blobs"), 1 << 20).expect("a new one");
        let content = Bytes::from(vec![7; 3 * BLOB_PIECE_BYTES]);
        let put = |content: Bytes| {
            let part = content.clone();
            let whole = stream::once(async move { Ok(part) }).boxed();
            blobs.put_stream(Digest::of(&content), whole, 1 << 30)
        };
        put(content.clone()).await.expect("stored");
        let mut readers = Vec::new();
        let mut senders = Vec::new();
        for number in 0..=BLOB_STREAMS_MAX {
            let open = blobs.open(Digest::of(&content)).await.expect("read").expect("it is here");
            readers.push(open);
            let blobs = blobs.clone();
            senders.push(tokio::spawn(async move {
                let expected = Digest::of(&number.to_le_bytes());
                blobs.put_stream(expected, stream::pending().boxed(), 1 << 30).await
            }));
        }
        let other = put(Bytes::from_static(b"another"));
        let stored = tokio::time::timeout(Duration::from_secs(60), other).await;
        assert_eq!(stored.expect("nobody is in its way").expect("stored"), 7);
        for sender in &senders {
            assert!(!sender.is_finished());
            sender.abort();
        }
        let mut last = readers.pop().expect("one").stream;
        let mut bytes = 0;
        while let Some(piece) = last.next().await {
            bytes += piece.expect("sound").len();
        }
        assert_eq!(bytes, content.len());
    }
}
