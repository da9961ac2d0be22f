//! What memory all harvested work may take: what the most that renders had booked on this host at one
//! time, over the last days, leaves, since the next render may want it from one moment to the next;
//! what the farm's monitor says that it leaves now; and what the owner gives.
//!
//! # Invariants
//! - What was booked is on disk, whole, for the next agent; one day is one number, and days too long
//!   ago go.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::limits::{BOOKED_MEMORY_DAYS, HARVEST_MEMORY_PERMILLE_MIN, MEMORY_LEFT_PERMILLE};
use crate::replace_file::{PUBLIC, replace_file_durably};

/// What is remembered.
#[derive(Debug)]
pub(crate) struct BookedMemory {
    path: PathBuf,
    days: Mutex<BTreeMap<u64, u64>>,
    /// Locked while it is written.
    file: Mutex<()>,
    /// What the farm leaves now, in MiB, as far as it was said.
    left_mib: AtomicU64,
    /// What the owner gives at most, in MiB.
    owner_mib: u64,
}

/// As it is on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    /// Days since 1970, and the most MiB that were booked at one time on each.
    days: BTreeMap<u64, u64>,
}

const VERSION: u32 = 1;

impl BookedMemory {
    /// Nothing yet, to be kept at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self::of(path, BTreeMap::new())
    }

    fn of(path: PathBuf, days: BTreeMap<u64, u64>) -> Self {
        let (days, file) = (Mutex::new(days), Mutex::default());
        Self { path, days, file, left_mib: AtomicU64::new(u64::MAX), owner_mib: u64::MAX }
    }

    /// With no more than this in any case; 0 for as much as there is.
    pub(crate) fn limited_to(self, owner_mib: u64) -> Self {
        Self { owner_mib: if owner_mib == 0 { u64::MAX } else { owner_mib }, ..self }
    }

    /// The farm leaves this much now, in MiB.
    pub(crate) fn note_left(&self, mib: u64) {
        self.left_mib.store(mib, Ordering::Release);
    }

    /// What an earlier agent kept at `path`; nothing where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let days = match fs::read(&path) {
            Ok(text) => {
                let written: Written = serde_json::from_slice(&text)?;
                if written.version != VERSION {
                    let why = format!("version {}, not {VERSION}", written.version);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                written.days
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self::of(path, days))
    }

    /// Renders have booked this much together. Says whether that is news, to be [written][1].
    ///
    /// [1]: BookedMemory::write
    pub(crate) fn note(&self, day: u64, mib: u64) -> bool {
        let mut days = self.days();
        let before = days.len();
        // Days that are over are not looked at, and stay for a clock that is set forward and back.
        while days.len() > BOOKED_MEMORY_DAYS_MAX
            && let Some(farthest) = days.keys().copied().max_by_key(|then| then.abs_diff(day))
        {
            days.remove(&farthest);
        }
        let most = days.entry(day).or_default();
        let is_more = mib > *most;
        *most = mib.max(*most);
        if *most == 0 {
            days.remove(&day);
        }
        is_more || days.len() < before
    }

    /// What all harvested work may take together on a host with so much memory, in MiB: what the
    /// greatest bookings of the last days leave, and never all of it. Where farms book all memory
    /// of a host with all its cores, a part remains: beside such a render nothing runs. And no more
    /// than the farm leaves now, or the owner gives.
    pub(crate) fn harvest_mib(&self, day: u64, host_mib: u64) -> u64 {
        let booked = self.most_mib(day);
        let left = host_mib.saturating_sub(booked.max(host_mib * MEMORY_LEFT_PERMILLE / 1_000));
        let left = left.max(host_mib * HARVEST_MEMORY_PERMILLE_MIN / 1_000);
        left.min(self.left_mib.load(Ordering::Acquire)).min(self.owner_mib)
    }

    /// The most that was booked at one time in the last days, in MiB.
    fn most_mib(&self, day: u64) -> u64 {
        let days = self.days();
        days.iter()
            .filter(|(then, _)| is_recent(**then, day))
            .map(|(_, mib)| *mib)
            .max()
            .unwrap_or(0)
    }

    /// Writes what is remembered now.
    ///
    /// # Errors
    /// The disk failed; what was there stays.
    pub(crate) fn write(&self) -> io::Result<()> {
        let _file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the file's lock, so that the last to write it writes what is known last.
        let written = Written { version: VERSION, days: self.days().clone() };
        replace_file_durably(&self.path, &serde_json::to_vec(&written)?, PUBLIC)
    }

    /// The same, for who cannot wait for it.
    pub(crate) fn write_or_say(&self) {
        if let Err(error) = self.write() {
            warn!("cannot note for the next agent how much memory renders book: {error}");
        }
    }

    fn days(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Days that are kept, of clocks that were set forward and back too.
const BOOKED_MEMORY_DAYS_MAX: usize = 2 * BOOKED_MEMORY_DAYS as usize;

/// A clock that was set back makes nothing forgotten.
const fn is_recent(then: u64, today: u64) -> bool {
    then.saturating_add(BOOKED_MEMORY_DAYS) > today
}

/// Days since 1970.
pub(crate) fn today() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second() / 86_400).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_the_last_days_is_remembered_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || BookedMemory::open(folder.path().join("booked-memory.json")).expect("opens");
        let memory = open();
        assert_eq!(memory.most_mib(100), 0);
        assert!(!memory.note(100, 0), "nothing is no news");
        assert!(memory.note(100, 4_096));
        assert!(!memory.note(100, 1_024));
        assert!(memory.note(110, 2_048));
        memory.write().expect("written");
        let memory = open();
        assert_eq!(memory.most_mib(110), 4_096);
        assert_eq!(memory.most_mib(100 + BOOKED_MEMORY_DAYS - 1), 4_096);
        assert_eq!(memory.most_mib(100 + BOOKED_MEMORY_DAYS), 2_048);
        assert!(memory.note(100 + BOOKED_MEMORY_DAYS, 1));
        memory.write().expect("written");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
        assert_eq!(open().most_mib(110), 4_096, "the clock was set forward, and back");
        for day in 0..4 * BOOKED_MEMORY_DAYS {
            memory.note(1_000 + day, 1);
        }
        assert!(memory.days().len() <= BOOKED_MEMORY_DAYS_MAX + 1, "what is oldest goes");
    }

    #[test]
    fn harvest_stays_below_what_the_greatest_bookings_leave() {
        let memory = BookedMemory::new("nowhere".into());
        assert_eq!(memory.harvest_mib(100, 64_000), 57_600, "a tenth is left in any case");
        memory.note(100, 48_000);
        assert_eq!(memory.harvest_mib(100, 64_000), 16_000);
        memory.note(100, 64_000);
        assert_eq!(memory.harvest_mib(100, 64_000), 6_400);
        assert_eq!(memory.harvest_mib(200, 64_000), 57_600);
        memory.note_left(20_000);
        assert_eq!(memory.harvest_mib(200, 64_000), 20_000, "the farm keeps the rest");
        assert_eq!(memory.harvest_mib(100, 64_000), 6_400);
        memory.note_left(30_000);
        let memory = memory.limited_to(2_048);
        assert_eq!(memory.harvest_mib(200, 64_000), 2_048, "its owner gives no more");
        assert_eq!(memory.limited_to(0).harvest_mib(200, 64_000), 30_000);
    }

    #[test]
    fn a_damaged_file_is_no_host_without_renders() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("booked-memory.json");
        for text in ["{", "{\"version\":2,\"days\":{}}", "[]"] {
            fs::write(&path, text).expect("written");
            assert!(BookedMemory::open(path.clone()).is_err(), "{text}");
        }
    }
}
