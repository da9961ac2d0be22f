//! The data folder, held by one broker at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::error::StoreError;

/// The broker's data folder, locked for as long as this value lives.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Makes the folder where it is missing and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another broker has it, [`StoreError::File`] where it cannot
    /// be made or written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(StoreError::file("make the data folder", path))?;
        let path = path.canonicalize().map_err(StoreError::file("find the data folder", path))?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(StoreError::file("open", &lock_path))?;
        // The kernel ends the lock with the process, so a killed broker leaves none behind.
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { holder: read_holder(&mut lock), folder: path });
            }
            Err(errno) => return Err(StoreError::file("lock", &lock_path)(errno.into())),
        }
        // Only a courtesy to whom it may concern: a full disk must not keep the store from opening.
        let named = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        if let Err(error) = named {
            tracing::warn!("cannot write the process id into {}: {error}", lock_path.display());
        }
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn read_holder(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(StoreError::file("sync the folder", path))
}

/// The files of a folder whose names are numbers, in their order, with their lengths.
pub(crate) fn list_numbered(path: &Path) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(path).map_err(StoreError::file("list", path))? {
        let entry = entry.map_err(StoreError::file("list", path))?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number {
            let about = entry.metadata().map_err(StoreError::file("look at", &entry.path()))?;
            listed.push((number, about.len()));
        }
    }
    listed.sort_unstable();
    Ok(listed)
}

/// Removes a folder with all that is in it; one that is not there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let held = DataFolder::open(folder.path()).expect("free");
        let error = DataFolder::open(folder.path()).expect_err("held");
        let says = error.to_string();
        assert!(
            matches!(error, StoreError::Locked { holder: Some(pid), .. } if pid == std::process::id())
        );
        assert!(says.contains(&folder.path().display().to_string()), "{says}");
        drop(held);
        assert!(DataFolder::open(folder.path()).is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = DataFolder::open(&file.path().join("data")).expect_err("below a file");
        assert!(error.to_string().contains("data"), "{error}");
    }
}
