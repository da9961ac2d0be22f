//! The folder in which one command at a time works.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A runner's folder: one to work in and one for passing things, both empty between tasks.
#[derive(Debug)]
pub(super) struct TaskFolder {
    base: PathBuf,
    serial: u32,
    work: PathBuf,
    tmp: PathBuf,
    there: bool,
}

impl TaskFolder {
    /// A folder that is made when the first command needs it.
    pub(super) fn new(base: PathBuf) -> Self {
        let (work, tmp) = below(&base, 0);
        Self { base, serial: 0, work, tmp, there: false }
    }

    /// The folder, made if need be.
    pub(super) fn enter(&mut self) -> io::Result<&Path> {
        if !self.there {
            for folder in [&self.work, &self.tmp] {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            self.there = true;
        }
        Ok(&self.work)
    }

    /// Where it passes things to what it starts.
    pub(super) fn tmp(&self) -> &Path {
        &self.tmp
    }

    /// Empties it. What cannot be emptied is left aside, and the next task gets another.
    pub(super) fn clear(&mut self) {
        if is_empty(&self.work) && is_empty(&self.tmp) {
            return;
        }
        let stays =
            |folder: &Path| remove_all(folder).is_err() && fs::symlink_metadata(folder).is_ok();
        // Both are to go, whatever becomes of the first.
        if stays(&self.work) | stays(&self.tmp) {
            self.serial += 1;
            (self.work, self.tmp) = below(&self.base, self.serial);
        }
        self.there = false;
    }
}

fn below(base: &Path, serial: u32) -> (PathBuf, PathBuf) {
    let folder = base.join(serial.to_string());
    (folder.join("work"), folder.join("tmp"))
}

fn is_empty(path: &Path) -> bool {
    let plain = fs::symlink_metadata(path)
        .is_ok_and(|folder| folder.is_dir() && folder.permissions().mode() & 0o7777 == 0o700);
    plain && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a tree even where a task took rights away from its own folders, or nested them deeper
/// than a path may be long.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    // No folder is entered below the second level: what is in one comes up first.
    let mut serial = 0_u64;
    let mut open = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            } else if folder == path && entry.file_name().as_encoded_bytes().starts_with(RAISED) {
                // One of those that came up.
            } else {
                // A folder without rights cannot be moved: its own entry for what is above it
                // would have to be written.
                fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
                let raised = loop {
                    serial += 1;
                    let raised = path.join(format!("{PREFIX}{serial}"));
                    if fs::symlink_metadata(&raised).is_err() {
                        break raised;
                    }
                };
                fs::rename(entry.path(), &raised)?;
                open.push(raised);
            }
        }
        if folder != path {
            fs::remove_dir(folder)?;
        }
    }
    fs::remove_dir_all(path)
}

/// How folders are named that came up.
const PREFIX: &str = ".raised-";
const RAISED: &[u8] = PREFIX.as_bytes();

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
        fs::write(folder.tmp().join("left"), "x").expect("written");
        folder.clear();
        folder.enter().expect("made again");
        assert!(fs::read_dir(folder.tmp()).expect("there").next().is_none());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        let base = tempfile::tempdir().expect("a folder");
        let mut folder = TaskFolder::new(base.path().to_owned());
        let path = folder.enter().expect("made").to_owned();
        fs::create_dir(path.join(".raised-1")).expect("a name that we use ourselves");
        fs::write(path.join(".raised-1/x"), "x").expect("written");
        let mut inner = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).expect("there");
        for _ in 0..3_000 {
            mkdirat(&inner, "deep", Mode::RWXU).expect("made");
            inner = openat(&inner, "deep", OFlags::PATH, Mode::empty()).expect("there");
        }
        remove_all(&path).expect("ours");
        assert!(!path.exists());
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
