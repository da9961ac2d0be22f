//! A file that holds space for the moment when there is none.
//!
//! The engine writes while it opens, so on a disk that is full to the last byte it cannot even
//! be read. The ballast is given up then.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use super::free_space::FreeSpace;
use crate::limits::BALLAST_BYTES;

#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    min_free_bytes: u64,
}

impl Ballast {
    pub(crate) fn new(folder: &Path, min_free_bytes: u64) -> Self {
        Self { path: folder.join("ballast"), min_free_bytes }
    }

    /// Gives the ballast up where the disk is so full that the engine may not open.
    pub(crate) fn drop_if_full(&self, space: &FreeSpace) {
        let low = space.free_bytes().is_ok_and(|free| free < BALLAST_BYTES);
        if low && fs::remove_file(&self.path).is_ok() {
            tracing::warn!(
                "the disk is full: {} was removed so that the store can be opened",
                self.path.display()
            );
        }
    }

    /// Takes the ballast again where there is plenty of space. Never an error: it can be taken
    /// another time.
    pub(crate) fn take_if_room(&self, space: &FreeSpace) {
        let room = BALLAST_BYTES.saturating_add(self.min_free_bytes.saturating_mul(2));
        let plenty = space.free_bytes().is_ok_and(|free| free >= room);
        if !plenty || fs::metadata(&self.path).is_ok_and(|file| file.len() == BALLAST_BYTES) {
            return;
        }
        let taken =
            OpenOptions::new().write(true).create(true).truncate(true).open(&self.path).and_then(
                |file| Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, BALLAST_BYTES)?),
            );
        if let Err(error) = taken {
            tracing::info!("no ballast in {}: {error}", self.path.display());
            // A file without space behind it would be taken for ballast the next time.
            let _ = fs::remove_file(&self.path);
        }
    }
}
