//! A blob that is coming.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gleaner_protocol::Digest;

use super::super::BlobError;
use super::Folder;

/// How much is written between two looks at the free space.
const SPACE_CHECK_BYTES: u64 = 8 << 20;

/// Hashes a content as it comes, and writes it where it is not here yet. Dropped before it is
/// finished it leaves nothing behind.
pub(crate) struct Incoming {
    folder: Arc<Folder>,
    expected: Digest,
    hasher: blake3::Hasher,
    /// Nothing where the blob is here already.
    draft: Option<Draft>,
    bytes: u64,
    checked_at_bytes: u64,
}

impl Incoming {
    pub(super) fn begin(folder: Arc<Folder>, expected: Digest) -> Result<Self, BlobError> {
        let mut incoming = Self {
            expected,
            hasher: blake3::Hasher::new(),
            draft: None,
            bytes: 0,
            checked_at_bytes: 0,
            folder,
        };
        let is_here = if incoming.folder.lasts {
            // It stays while it comes again.
            incoming.folder.keep(expected)?.is_some()
        } else {
            incoming.folder.length(expected)?.is_some()
        };
        if !is_here {
            incoming.check_space()?;
            let number = incoming.folder.drafts.fetch_add(1, Ordering::Relaxed);
            let path = incoming.folder.incoming().join(number.to_string());
            incoming.draft = Some(Draft::create(path)?);
        }
        Ok(incoming)
    }

    pub(crate) fn add(mut self, piece: &[u8]) -> Result<Self, BlobError> {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        if self.draft.is_some() && self.bytes >= self.checked_at_bytes + SPACE_CHECK_BYTES {
            self.check_space()?;
        }
        if let Some(draft) = &mut self.draft {
            draft
                .file
                .write_all(piece)
                .map_err(|error| self.folder.write_error(self.expected, &draft.path, error))?;
        }
        Ok(self)
    }

    /// Checks the digest, and makes the blob durable under its name.
    pub(crate) fn finish(self) -> Result<(), BlobError> {
        let found = Digest::from_bytes(*self.hasher.finalize().as_bytes());
        if found != self.expected {
            return Err(BlobError::Mismatch { expected: self.expected, found });
        }
        let path = self.folder.path_of(self.expected);
        let parent = path.parent().expect("a blob lies in a folder of its own");
        let Some(mut draft) = self.draft else {
            if !self.folder.lasts {
                return Ok(());
            }
            // It is as if it came now, to whoever looks for old ones.
            if self.folder.keep(self.expected)?.is_none() {
                // It was removed while it came again, for nobody had named it for long.
                let source = io::ErrorKind::NotFound.into();
                return Err(BlobError::BrokenOff {
                    digest: self.expected,
                    bytes: self.bytes,
                    source,
                });
            }
            // Whoever brought it may not have come so far yet.
            return self.folder.sync(parent);
        };
        if self.folder.lasts {
            draft
                .file
                .sync_all()
                .map_err(|error| self.folder.write_error(self.expected, &draft.path, error))?;
        }
        if !parent.exists() {
            fs::create_dir_all(parent).map_err(BlobError::file("make", parent))?;
        }
        fs::rename(&draft.path, &path).map_err(BlobError::file("rename", &draft.path))?;
        draft.kept = true;
        self.folder.sync(parent)
    }

    fn check_space(&mut self) -> Result<(), BlobError> {
        self.checked_at_bytes = self.bytes;
        let free_bytes = self.folder.free_bytes()?;
        if free_bytes < self.folder.min_free_bytes {
            return Err(self.folder.full(self.expected, free_bytes));
        }
        Ok(())
    }
}

impl Folder {
    /// Makes the names in a folder below it durable. Both, for that may be one which another upload
    /// has made and not synced yet.
    fn sync(&self, below: &Path) -> Result<(), BlobError> {
        if !self.lasts {
            return Ok(());
        }
        sync_folder(below)?;
        sync_folder(&self.path)
    }

    fn free_bytes(&self) -> Result<u64, BlobError> {
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|errno| BlobError::file("read the free space of", &self.path)(errno.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn full(&self, digest: Digest, free_bytes: u64) -> BlobError {
        BlobError::Full {
            digest,
            folder: self.path.clone(),
            free_bytes,
            min_free_bytes: self.min_free_bytes,
        }
    }

    fn write_error(&self, digest: Digest, path: &Path, error: io::Error) -> BlobError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.full(digest, 0),
            _ => BlobError::file("write", path)(error),
        }
    }
}

/// The file while it grows.
struct Draft {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Draft {
    fn create(path: PathBuf) -> Result<Self, BlobError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(BlobError::file("make", &path))?;
        Ok(Self { path, file, kept: false })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed now is removed at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn sync_folder(path: &Path) -> Result<(), BlobError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(BlobError::file("sync the folder", path))
}
