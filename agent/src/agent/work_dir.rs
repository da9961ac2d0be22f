//! The agent's own folder: cached inputs, folders of running tasks, outputs on their way.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_protocol::{AgentSecret, Span, boottime};
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use crate::limits::{CLEAR_UP_MS_MAX, CLEAR_UP_PAUSE_MS};
use crate::replace_file::{PRIVATE, replace_file};

/// The folder, locked for this agent.
#[derive(Debug)]
pub(super) struct WorkDir {
    path: PathBuf,
    _lock: File,
}

impl WorkDir {
    /// Makes it, and locks it when its turn comes.
    pub(super) async fn open(path: PathBuf) -> Result<Self, WorkDirError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| WorkDirError::io("make", &path, source))?;
        let found = fs::symlink_metadata(&path)
            .map_err(|source| WorkDirError::io("look at", &path, source))?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !ours || found.mode() & 0o022 != 0 {
            return Err(WorkDirError::NotOurs(path));
        }
        let lock = lock_in_turn(&path.join("lock")).await?;
        Ok(Self { path, _lock: lock })
    }

    /// Removes what an earlier agent left half done, and makes what is needed.
    pub(super) fn clear(&self) -> Result<(), WorkDirError> {
        for folder in [self.tasks(), self.spool()] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(WorkDirError::io("clear", &folder, error));
                }
                _ => {}
            }
            DirBuilder::new()
                .mode(0o700)
                .create(&folder)
                .map_err(|source| WorkDirError::io("make", &folder, source))?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.path.join("cache")
    }

    /// Copies of chunks.
    pub(super) fn chunks(&self) -> PathBuf {
        self.path.join("chunks")
    }

    /// Where compiled modules are found in the cache.
    pub(super) fn compiled(&self) -> PathBuf {
        self.path.join("compiled")
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// What is remembered of the memory that renders book.
    pub(super) fn booked_memory(&self) -> PathBuf {
        self.path.join("booked-memory.json")
    }

    /// What tells this host's agents from others that say the same of themselves; drawn at the first
    /// start in this folder.
    pub(super) fn secret(&self) -> Result<AgentSecret, WorkDirError> {
        let path = self.path.join("secret");
        match fs::read_to_string(&path) {
            // What is no secret was not written by us.
            Ok(text) => {
                if let Ok(secret) = text.trim().parse() {
                    return Ok(secret);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(WorkDirError::io("read", &path, error)),
        }
        let mut bytes = [0; 16];
        let drawn = getrandom(&mut bytes, GetRandomFlags::empty());
        drawn.map_err(|error| WorkDirError::io("draw a secret for", &path, error.into()))?;
        let secret = AgentSecret::new(bytes);
        replace_file(&path, secret.to_text().as_bytes(), PRIVATE)
            .map_err(|error| WorkDirError::io("write", &path, error))?;
        Ok(secret)
    }

    pub(super) fn tasks(&self) -> PathBuf {
        self.path.join("tasks")
    }

    pub(super) fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }
}

/// Takes a lock file, held until the result is dropped or this process ends.
fn lock(path: &Path) -> Result<File, WorkDirError> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| WorkDirError::io("open", path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(WorkDirError::InUse(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(WorkDirError::io("lock", path, source)),
    }
}

/// As [`lock`], after whoever clears up after an earlier agent, and after the last of what that one
/// had begun to start: its cleaner, say, is a copy of it with its locks until it executes something.
pub(super) async fn lock_in_turn(path: &Path) -> Result<File, WorkDirError> {
    let end = boottime() + Span::from_millis(CLEAR_UP_MS_MAX);
    loop {
        match lock(path) {
            // Locks of files have no event.
            Err(WorkDirError::InUse(_)) if boottime() < end => {
                tokio::time::sleep(Duration::from_millis(CLEAR_UP_PAUSE_MS)).await;
            }
            other => return other,
        }
    }
}

/// Why an agent cannot have its folders.
#[derive(Debug, Error)]
pub enum WorkDirError {
    /// A file system call failed.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else could write in it.
    #[error(
        "work folder {path} is not a folder of this user that nobody else can write in: remove it, or set work_dir",
        path = .0.display()
    )]
    NotOurs(PathBuf),
    /// Another agent.
    #[error(
        "another agent holds {path}: stop it, or give this one a run_dir and a work_dir of its own",
        path = .0.display()
    )]
    InUse(PathBuf),
}

impl WorkDirError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::pin::pin;

    use tokio::time::timeout;

    #[tokio::test]
    async fn a_folder_has_one_agent_and_the_next_one_waits_for_its_end() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("work");
        let first = WorkDir::open(path.clone()).await.expect("free");
        assert!(matches!(lock(&path.join("lock")), Err(WorkDirError::InUse(_))));
        let mut next = pin!(WorkDir::open(path));
        assert!(timeout(Duration::from_millis(CLEAR_UP_PAUSE_MS), &mut next).await.is_err());
        drop(first);
        next.await.expect("free again");
    }

    #[tokio::test]
    async fn an_agent_has_the_secret_of_the_one_before_it_and_nobody_reads_it() {
        let base = tempfile::tempdir().expect("a folder");
        let open = async |name: &str| WorkDir::open(base.path().join(name)).await.expect("free");
        let work = open("work").await;
        let secret = work.secret().expect("drawn");
        let path = work.path().join("secret");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_ne!(open("other").await.secret().expect("drawn"), secret);
        work.clear().expect("ours");
        drop(work);
        assert_eq!(open("work").await.secret().expect("read"), secret);
        fs::write(&path, "half").expect("written");
        assert_ne!(open("work").await.secret().expect("drawn anew"), secret);
    }

    #[tokio::test]
    async fn a_folder_that_others_write_in_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("work");
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(matches!(WorkDir::open(path.clone()).await, Err(WorkDirError::NotOurs(_))));
        let link = base.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).expect("made");
        assert!(matches!(WorkDir::open(link).await, Err(WorkDirError::NotOurs(_))));
    }

    #[tokio::test]
    async fn what_was_half_done_is_gone_and_the_cache_stays() {
        let base = tempfile::tempdir().expect("a folder");
        let work = WorkDir::open(base.path().join("work")).await.expect("free");
        work.clear().expect("ours");
        for folder in [work.tasks(), work.spool()] {
            fs::write(folder.join("half"), "x").expect("written");
        }
        fs::create_dir(work.cache()).expect("made");
        fs::write(work.cache().join("whole"), "x").expect("written");
        work.clear().expect("ours");
        assert!(fs::read_dir(work.tasks()).expect("there").next().is_none());
        assert!(work.cache().join("whole").exists());
    }
}
