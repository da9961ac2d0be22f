//! What was carried over the network today, and what lies on the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use gleaner_protocol::{Span, Time};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::limits::{DISK_LOOK_MS, USAGE_SAVE_MS, WORK_FILES_MAX};

const MIB: u64 = 1 << 20;

/// Counters of a day, kept across restarts.
#[derive(Debug)]
pub(super) struct Usage {
    path: PathBuf,
    today: Today,
    unsaved: bool,
    save_at: Time,
    disk: Arc<DiskSize>,
    disk_at: Time,
}

/// The size of the work folder, as it was taken last.
#[derive(Debug, Default)]
struct DiskSize {
    bytes: AtomicU64,
    is_under_way: AtomicBool,
}

/// As it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Today {
    /// In local time.
    date: Option<Date>,
    network_bytes: u64,
}

impl Usage {
    /// Goes on where the last agent ended.
    pub(super) fn open(work_dir: &Path) -> Self {
        let path = work_dir.join("usage.json");
        let written = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            path,
            today: written.unwrap_or_default(),
            unsaved: false,
            save_at: Time::ZERO,
            disk: Arc::default(),
            disk_at: Time::ZERO,
        }
    }

    /// So much was carried since the last time.
    pub(super) fn add(&mut self, date: Date, bytes: u64) {
        if self.today.date != Some(date) {
            // A clock that was set back begins no new day.
            let is_over = self.today.date.is_none_or(|day| day < date);
            let network_bytes = if is_over { 0 } else { self.today.network_bytes };
            self.today = Today { date: Some(date), network_bytes };
            self.unsaved = true;
        }
        self.today.network_bytes += bytes;
        self.unsaved |= bytes > 0;
    }

    /// Carried today.
    pub(super) fn network_mib(&self) -> u64 {
        self.today.network_bytes / MIB
    }

    /// Space that a folder takes. It is looked at now and then, by a thread of its own, for a disk
    /// may be slow and others must not wait for it.
    pub(super) fn disk_mib(&mut self, now: Time, folder: &Path) -> u64 {
        if self.disk_at <= now && !self.disk.is_under_way.swap(true, Ordering::AcqRel) {
            self.disk_at = now + Span::from_millis(DISK_LOOK_MS);
            let (disk, folder) = (Arc::clone(&self.disk), folder.to_owned());
            let walk = move || {
                disk.bytes.store(bytes_below(&folder), Ordering::Release);
                disk.is_under_way.store(false, Ordering::Release);
            };
            if let Err(error) = thread::Builder::new().name("gleaner-disk".into()).spawn(walk) {
                debug!("cannot look at the work folder's size: {error}");
                self.disk.is_under_way.store(false, Ordering::Release);
            }
        }
        self.disk.bytes.load(Ordering::Acquire) / MIB
    }

    /// The counters as they are to be written, now and then.
    pub(super) fn text_if_due(&mut self, now: Time) -> Option<String> {
        if !self.unsaved || self.save_at > now {
            return None;
        }
        self.save_at = now + Span::from_millis(USAGE_SAVE_MS);
        Some(self.text())
    }

    /// The counters as they are to be written.
    pub(super) fn text(&mut self) -> String {
        self.unsaved = false;
        serde_json::to_string(&self.today).expect("numbers and a date")
    }

    /// Where.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Bytes of the files below a folder; no link is followed.
fn bytes_below(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut left = WORK_FILES_MAX;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if left == 0 {
                return bytes;
            }
            left -= 1;
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) => bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn a_day_is_counted_across_restarts_and_ends_at_midnight() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut usage = Usage::open(folder.path());
        usage.add(date(2026, 3, 28), 3 * MIB);
        let text = usage.text_if_due(Time::from_micros(1)).expect("it is due");
        fs::write(usage.path(), text).expect("written");
        assert_eq!(usage.text_if_due(Time::from_micros(2)), None, "nothing is new");
        let mut next = Usage::open(folder.path());
        next.add(date(2026, 3, 28), MIB + MIB / 2);
        assert_eq!(next.network_mib(), 4);
        next.add(date(2026, 3, 29), 0);
        assert_eq!(next.network_mib(), 0);
        next.add(date(2026, 3, 29), 2 * MIB);
        next.add(date(2026, 3, 27), MIB);
        assert_eq!(next.network_mib(), 3, "the clock was set back");
        next.add(date(2026, 3, 28), 0);
        assert_eq!(next.network_mib(), 0);
    }

    #[test]
    fn a_damaged_count_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("usage.json"), "no").expect("written");
        assert_eq!(Usage::open(folder.path()).network_mib(), 0);
    }

    #[test]
    fn a_folder_takes_what_its_files_take() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("below")).expect("made");
        fs::write(folder.path().join("below/file"), vec![0; MIB as usize]).expect("written");
        fs::write(folder.path().join("file"), vec![0; MIB as usize]).expect("written");
        std::os::unix::fs::symlink("/", folder.path().join("link")).expect("made");
        let mut usage = Usage::open(folder.path());
        // The first look begins it.
        while usage.disk_mib(Time::ZERO, folder.path()) == 0 {
            thread::yield_now();
        }
        assert_eq!(usage.disk_mib(Time::ZERO, folder.path()), 2);
    }
}
