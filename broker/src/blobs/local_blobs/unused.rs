//! Which blobs may go, and which are kept because somebody is about to name them.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError};

use gleaner_protocol::Digest;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};

use super::{BlobError, Folder, Incoming, LocalBlobs, RemovedBlobs};
use crate::limits::UNUSED_BLOB_KEPT;

impl LocalBlobs {
    /// A blob's file and its length; nothing where it is not here.
    pub(crate) fn open_file(&self, digest: Digest) -> Result<Option<(File, u64)>, BlobError> {
        let path = self.folder.path_of(digest);
        match File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((bytes, file)) => Ok(Some((file, bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::file("open", &path)(error)),
        }
    }

    /// Takes a blob piece by piece, for threads that may block.
    pub(crate) fn take(&self, digest: Digest) -> Result<Incoming, BlobError> {
        Incoming::begin(Arc::clone(&self.folder), digest)
    }

    /// All blobs. For threads that may block.
    pub(crate) fn all(&self) -> Result<Vec<Digest>, BlobError> {
        let all = (0..=u8::MAX).map(|first| self.folder.beginning_with(first));
        Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

impl Folder {
    /// The blobs of one of the folders.
    pub(super) fn beginning_with(&self, first: u8) -> Result<Vec<Digest>, BlobError> {
        let first = format!("{first:02x}");
        let folder = self.path.join(&first);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(BlobError::file("list", &folder))?,
        };
        let mut digests = Vec::new();
        for entry in entries {
            let rest = entry.map_err(BlobError::file("list", &folder))?.file_name();
            digests.extend(format!("{first}{}", rest.to_string_lossy()).parse::<Digest>());
        }
        Ok(digests)
    }

    /// Removes blobs that nobody names and that were dated long enough ago.
    pub(super) fn remove_unused(&self, digests: &[Digest]) -> Result<RemovedBlobs, BlobError> {
        let (now, mut sum) = (self.now()?, RemovedBlobs::default());
        for digest in digests {
            let path = self.path_of(*digest);
            let _dating = self.dating.lock().unwrap_or_else(PoisonError::into_inner);
            let dated = fs::metadata(&path).map_err(BlobError::file("look at", &path))?.mtime();
            // One that is dated in time to come is young.
            let age_s = u64::try_from(now.saturating_sub(dated)).unwrap_or(0);
            if age_s > UNUSED_BLOB_KEPT.as_secs() {
                fs::remove_file(&path).map_err(BlobError::file("remove", &path))?;
                sum.removed += 1;
            } else {
                sum.young += 1;
            }
        }
        Ok(sum)
    }

    /// The time by the clock that dates the blobs, in seconds since 1970.
    fn now(&self) -> Result<i64, BlobError> {
        let clock = self.incoming().join("clock");
        let touch = || -> io::Result<i64> {
            fs::write(&clock, b"now\n")?;
            let now = fs::metadata(&clock)?.mtime();
            fs::remove_file(&clock)?;
            Ok(now)
        };
        touch().map_err(BlobError::file("date", &clock))
    }

    /// Dates a blob as of now, so that it stays, and says how long it is; nothing where it is not
    /// here.
    pub(super) fn keep(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        let path = self.path_of(digest);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let _dating = self.dating.lock().unwrap_or_else(PoisonError::into_inner);
        let dated = rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty());
        match dated.map_err(io::Error::from).and_then(|()| fs::metadata(&path)) {
            Ok(file) => Ok(Some(file.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::file("date", &path)(error)),
        }
    }
}
