//! A copy of the store's files for the time in which it is opened.
//!
//! After a flipped bit in its log the engine takes all that follows for the rest of a cut-off
//! write, and overwrites it while it opens. The copy is what a person can then restore from. It
//! goes away as soon as everything was read and found to be whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::folder::remove_folder;
use super::free_space::FreeSpace;

/// Copies the store's files, and says where they are. Without space for it there is no copy; one
/// from an opening that came to no end is left as it is.
pub(crate) fn keep(
    folder: &Path,
    store: &Path,
    space: &FreeSpace,
) -> Result<Option<PathBuf>, StoreError> {
    let kept = folder.join("sled.kept");
    if kept.exists() {
        return Ok(Some(kept));
    }
    let draft = draft(folder);
    remove_folder(&draft)?;
    let files = plain_files(store).map_err(StoreError::file("list", store))?;
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    if space.free_bytes()? < bytes.saturating_add(bytes / 4) {
        tracing::warn!("too little space to keep a copy of {} while it is opened", store.display());
        return Ok(None);
    }
    let copied = fs::create_dir(&draft).and_then(|()| {
        for (file, _) in &files {
            fs::copy(store.join(file), draft.join(file))?;
        }
        fs::rename(&draft, &kept)
    });
    match copied {
        Ok(()) => Ok(Some(kept)),
        Err(error) => {
            tracing::warn!("no copy of {} while it is opened: {error}", store.display());
            remove_folder(&draft)?;
            Ok(None)
        }
    }
}

/// Removes the copy: everything was read and is whole.
pub(crate) fn release(folder: &Path, kept: &Path) -> Result<(), StoreError> {
    // Renamed first, so that a kill in the middle leaves no half copy under the copy's name.
    let draft = draft(folder);
    remove_folder(&draft)?;
    fs::rename(kept, &draft).map_err(StoreError::file("rename", kept))?;
    remove_folder(&draft)
}

fn draft(folder: &Path) -> PathBuf {
    folder.join("sled.kept.new")
}

/// Names and lengths. The engine's subfolder stays out: it is for long values, and we have none.
fn plain_files(store: &Path) -> io::Result<Vec<(std::ffi::OsString, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() {
            files.push((entry.file_name(), about.len()));
        }
    }
    Ok(files)
}
