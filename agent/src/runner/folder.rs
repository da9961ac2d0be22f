//! The folder in which one command at a time works.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A runner's folder. Empty between tasks.
#[derive(Debug)]
pub(super) struct TaskFolder {
    base: PathBuf,
    path: PathBuf,
    serial: u32,
    there: bool,
}

impl TaskFolder {
    /// A folder that is made when the first command needs it.
    pub(super) fn new(base: PathBuf) -> Self {
        Self { path: base.join("0"), base, serial: 0, there: false }
    }

    /// The folder, made if need be.
    pub(super) fn enter(&mut self) -> io::Result<&Path> {
        if !self.there {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
            self.there = true;
        }
        Ok(&self.path)
    }

    /// Empties it. What cannot be emptied is left aside, and the next task gets another.
    pub(super) fn clear(&mut self) {
        if is_empty(&self.path) {
            return;
        }
        if remove_all(&self.path).is_err() {
            self.serial += 1;
            self.path = self.base.join(self.serial.to_string());
        }
        self.there = false;
    }
}

fn is_empty(path: &Path) -> bool {
    let plain = fs::symlink_metadata(path)
        .is_ok_and(|folder| folder.is_dir() && folder.permissions().mode() & 0o7777 == 0o700);
    plain && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a tree even where a task took rights away from its own folders.
fn remove_all(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        let first = fs::remove_dir_all(path);
        if first.is_ok() {
            return first;
        }
        restore_rights(path)?;
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn restore_rights(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            restore_rights(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_one_task_is_there_for_the_next() {
        let base = tempfile::tempdir().expect("a folder");
        let mut folder = TaskFolder::new(base.path().join("slot"));
        let path = folder.enter().expect("made").to_owned();
        folder.clear();
        assert!(path.is_dir(), "an unused folder stays as it is");
        fs::create_dir_all(path.join("a/b")).expect("made");
        fs::write(path.join("a/b/file"), "x").expect("written");
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o0)).expect("ours");
        folder.clear();
        let path = folder.enter().expect("made again").to_owned();
        assert!(fs::read_dir(&path).expect("there").next().is_none());
    }

    #[test]
    fn a_folder_that_became_something_else_is_replaced() {
        let base = tempfile::tempdir().expect("a folder");
        let mut folder = TaskFolder::new(base.path().to_owned());
        let path = folder.enter().expect("made").to_owned();
        fs::remove_dir(&path).expect("empty");
        std::os::unix::fs::symlink("/etc", &path).expect("made");
        folder.clear();
        let path = folder.enter().expect("made again");
        assert!(fs::symlink_metadata(path).expect("there").is_dir());
        assert!(Path::new("/etc/passwd").exists());
    }
}
