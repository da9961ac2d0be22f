//! What modules saved, for the next replica of the same workunit on this host.
//!
//! A checkpoint decides what a replica produces. One that goes back to what another host saved is
//! used only where the broker says so, which knows who has a say in which vote.
//!
//! # Invariants
//! - The newest one of a workunit is kept, whole or not at all; it is checked when it is read.
//! - All of them together stay below their limit; what was saved longest ago goes first.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::Digest;
use tracing::warn;

use crate::replace_file::{PRIVATE, replace_file};

/// The kept ones.
pub(crate) struct Checkpoints {
    folder: PathBuf,
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: BTreeMap<Digest, Entry>,
    bytes: u64,
    /// Counts what is saved, to tell which was saved longest ago.
    saves: u64,
}

struct Entry {
    bytes: u64,
    saved: u64,
}

/// What was saved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The runner's bytes.
    pub(crate) bytes: Vec<u8>,
    /// Whether no other host has a part in it.
    pub(crate) is_own: bool,
}

/// Bytes of a file that hold the hash of the rest.
const HASH_BYTES: usize = 32;
/// The byte behind it.
const OWN: u8 = 1;
const OF_OTHERS_TOO: u8 = 0;
/// What a file takes at least.
const BLOCK_BYTES: u64 = 4096;

impl Checkpoints {
    /// Finds what an earlier agent of this host kept.
    pub(crate) fn open(folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut kept = Kept::default();
        for file in fs::read_dir(&folder)? {
            let file = file?;
            match file.file_name().to_str().and_then(|name| name.parse().ok()) {
                Some(workunit) => kept.enter(workunit, file.metadata()?.len()),
                None => fs::remove_file(file.path())?,
            }
        }
        let checkpoints = Self { folder, bytes_max, kept: Mutex::new(kept) };
        checkpoints.shrink();
        Ok(checkpoints)
    }

    /// The newest one of a workunit.
    pub(crate) async fn load(self: &Arc<Self>, workunit: Digest) -> Option<Checkpoint> {
        if !self.lock().entries.contains_key(&workunit) {
            return None;
        }
        let this = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || this.read(workunit)).await;
        match read.map_err(io::Error::other).flatten() {
            Ok(checkpoint) => Some(checkpoint),
            Err(error) => {
                warn!("a checkpoint is passed over: {error}");
                self.forget(workunit);
                None
            }
        }
    }

    fn read(&self, workunit: Digest) -> io::Result<Checkpoint> {
        let mut file = fs::read(self.path(workunit))?;
        let (hash, bytes) =
            file.split_first_chunk::<HASH_BYTES>().ok_or(io::ErrorKind::InvalidData)?;
        if Digest::of(bytes) != Digest::from_bytes(*hash) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
        }
        let is_own = *bytes.first().ok_or(io::ErrorKind::InvalidData)? == OWN;
        file.drain(..=HASH_BYTES);
        Ok(Checkpoint { bytes: file, is_own })
    }

    /// Keeps one in place of the last.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) async fn save(
        self: &Arc<Self>,
        workunit: Digest,
        checkpoint: Checkpoint,
    ) -> io::Result<()> {
        let this = Arc::clone(self);
        let saved = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![if checkpoint.is_own { OWN } else { OF_OTHERS_TOO }];
            bytes.extend_from_slice(&checkpoint.bytes);
            let mut file = Digest::of(&bytes).as_bytes().to_vec();
            file.append(&mut bytes);
            replace_file(&this.path(workunit), &file, PRIVATE)?;
            this.lock().enter(workunit, file.len() as u64);
            this.shrink();
            Ok(())
        });
        saved.await.map_err(io::Error::other)?
    }

    /// Forgets that of a workunit: it has an outcome.
    pub(crate) fn forget(&self, workunit: Digest) {
        if self.lock().remove(workunit) {
            // One that is gone already needs no removing.
            let _ = fs::remove_file(self.path(workunit));
        }
    }

    fn shrink(&self) {
        loop {
            let kept = self.lock();
            if kept.bytes <= self.bytes_max {
                return;
            }
            let oldest = kept.entries.iter().min_by_key(|(_, entry)| entry.saved);
            let Some(workunit) = oldest.map(|(workunit, _)| *workunit) else { return };
            drop(kept);
            self.forget(workunit);
        }
    }

    fn path(&self, workunit: Digest) -> PathBuf {
        self.folder.join(workunit.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn enter(&mut self, workunit: Digest, bytes: u64) {
        self.remove(workunit);
        let bytes = bytes.max(BLOCK_BYTES);
        self.saves += 1;
        self.entries.insert(workunit, Entry { bytes, saved: self.saves });
        self.bytes += bytes;
    }

    fn remove(&mut self, workunit: Digest) -> bool {
        let removed = self.entries.remove(&workunit);
        self.bytes -= removed.as_ref().map_or(0, |entry| entry.bytes);
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn own(bytes: &[u8]) -> Checkpoint {
        Checkpoint { bytes: bytes.to_vec(), is_own: true }
    }

    fn open(folder: &tempfile::TempDir, bytes_max: u64) -> Arc<Checkpoints> {
        Arc::new(Checkpoints::open(folder.path().to_owned(), bytes_max).expect("opens"))
    }

    #[test]
    fn the_newest_is_kept_over_a_restart_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (Digest::of(b"1"), Digest::of(b"2"));
        block_on(async {
            let checkpoints = open(&folder, 1 << 20);
            assert_eq!(checkpoints.load(one).await, None);
            for bytes in [b"old", b"new"] {
                checkpoints.save(one, own(bytes)).await.expect("written");
            }
            let checkpoints = open(&folder, 1 << 20);
            assert_eq!(checkpoints.load(one).await, Some(own(b"new")));
            let of_others = || Checkpoint { bytes: Vec::new(), is_own: false };
            checkpoints.save(one, of_others()).await.expect("written");
            assert_eq!(checkpoints.load(one).await, Some(of_others()));
            assert_eq!(checkpoints.load(other).await, None);
            checkpoints.forget(one);
            assert_eq!(checkpoints.load(one).await, None);
            assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
        });
    }

    #[test]
    fn a_damaged_one_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let workunit = Digest::of(b"1");
        block_on(async {
            let checkpoints = open(&folder, 1 << 20);
            checkpoints.save(workunit, own(b"saved")).await.expect("written");
            let path = folder.path().join(workunit.to_string());
            let mut file = fs::read(&path).expect("there");
            *file.last_mut().expect("not empty") ^= 1;
            fs::write(&path, file).expect("written");
            assert_eq!(checkpoints.load(workunit).await, None);
            assert!(!path.exists());
        });
    }

    #[test]
    fn what_was_saved_longest_ago_makes_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |number: u8| Digest::of(&[number]);
        block_on(async {
            let checkpoints = open(&folder, 3 * BLOCK_BYTES);
            for number in 0..5 {
                checkpoints.save(name(number), own(&[number])).await.expect("written");
            }
            assert_eq!(checkpoints.load(name(1)).await, None);
            assert_eq!(checkpoints.load(name(2)).await, Some(own(&[2])));
            assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 3);
        });
    }
}
