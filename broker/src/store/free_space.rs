//! How much space is left on the disk.

use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Free space for the file system of one folder, and how little of it is too little.
#[derive(Debug, Clone)]
pub(crate) struct FreeSpace {
    folder: PathBuf,
    /// Below this nothing new is accepted.
    min_free_bytes: u64,
}

impl FreeSpace {
    pub(crate) fn new(folder: &Path, min_free_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), min_free_bytes }
    }

    /// Bytes that are free to us.
    pub(crate) fn free_bytes(&self) -> Result<u64, StoreError> {
        let stat = rustix::fs::statvfs(&self.folder).map_err(|errno| {
            StoreError::file("read the free space of", &self.folder)(errno.into())
        })?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Whether something new may be accepted.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        self.need(self.min_free_bytes)
    }

    /// Whether what was accepted already may be written: half of the minimum is kept for it.
    pub(crate) fn commit(&self, bytes: usize) -> Result<(), StoreError> {
        self.need(self.needed(bytes))
    }

    /// The error of a disk that refused to take so much although there seemed to be space.
    pub(crate) fn full(&self, bytes: usize) -> StoreError {
        let free_bytes = self.free_bytes().unwrap_or(0);
        let needed_bytes = self.needed(bytes);
        StoreError::Full { folder: self.folder.clone(), free_bytes, needed_bytes }
    }

    fn needed(&self, bytes: usize) -> u64 {
        // The engine's log and the pages that are rewritten with it take a few times the bytes.
        let written = (bytes as u64).saturating_mul(4);
        (self.min_free_bytes / 2).saturating_add(written)
    }

    fn need(&self, needed_bytes: u64) -> Result<(), StoreError> {
        let free_bytes = self.free_bytes()?;
        if free_bytes < needed_bytes {
            return Err(StoreError::Full { folder: self.folder.clone(), free_bytes, needed_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_an_error_with_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(FreeSpace::new(folder.path(), 1).admit().is_ok());
        let error = FreeSpace::new(folder.path(), u64::MAX).admit().expect_err("never that much");
        assert!(error.is_full());
        assert!(error.to_string().contains(&format!("{} are needed", u64::MAX)), "{error}");
    }
}
