//! Which blobs may go, and which are kept because somebody is about to name them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gleaner_protocol::Digest;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};

use super::{BlobError, Folder, Incoming, LocalBlobs};

/// What came of the wish to remove a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It is gone.
    Yes,
    /// It was uploaded, or named, too short a while ago.
    Young,
}

impl LocalBlobs {
    /// The folders that blobs lie in.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, BlobError> {
        let root = &self.folder.path;
        let entries = fs::read_dir(root).map_err(BlobError::file("list", root))?;
        let mut folders = Vec::new();
        for entry in entries {
            let path = entry.map_err(BlobError::file("list", root))?.path();
            let is_one = |name: &str| name.len() == 2 && u8::from_str_radix(name, 16).is_ok();
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_one) {
                folders.push(path);
            }
        }
        folders.sort();
        Ok(folders)
    }

    /// The blobs of one of them, one after the other.
    pub(crate) fn listed(
        folder: &std::path::Path,
    ) -> Result<impl Iterator<Item = Result<Digest, BlobError>>, BlobError> {
        let first = folder.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let path = folder.to_owned();
        let entries = fs::read_dir(folder).map_err(BlobError::file("list", folder))?;
        Ok(entries.filter_map(move |entry| match entry {
            Err(error) => Some(Err(BlobError::file("list", &path)(error))),
            Ok(entry) => {
                let rest = entry.file_name();
                format!("{first}{}", rest.to_string_lossy()).parse().ok().map(Ok)
            }
        }))
    }

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

    /// The time by the clock that dates the blobs, in seconds since 1970.
    pub(crate) fn now(&self) -> Result<i64, BlobError> {
        let clock = self.folder.incoming().join("clock");
        let touch = || -> io::Result<i64> {
            fs::write(&clock, b"now\n")?;
            let now = fs::metadata(&clock)?.mtime();
            fs::remove_file(&clock)?;
            Ok(now)
        };
        touch().map_err(BlobError::file("date", &clock))
    }

    /// Removes a blob that nobody names, if it was uploaded and named last longer than `kept` before
    /// `now`.
    pub(crate) fn remove_old(
        &self,
        digest: Digest,
        now: i64,
        kept: Duration,
    ) -> Result<Removed, BlobError> {
        let path = self.folder.path_of(digest);
        let _dating = self.folder.dating.lock().unwrap_or_else(PoisonError::into_inner);
        let dated = fs::metadata(&path).map_err(BlobError::file("look at", &path))?.mtime();
        // One that is dated in time to come is young.
        let age_s = u64::try_from(now.saturating_sub(dated)).unwrap_or(0);
        if age_s > kept.as_secs() {
            fs::remove_file(&path).map_err(BlobError::file("remove", &path))?;
            return Ok(Removed::Yes);
        }
        Ok(Removed::Young)
    }
}

impl Folder {
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
