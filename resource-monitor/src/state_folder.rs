//! The folder in which the monitor keeps what must outlive it.
//!
//! ```text
//! DIR/lock        held by the monitor that uses the folder
//! DIR/stop.json   whether the farm is stopped
//! DIR/hosts.json  what was known of the hosts, as it was some seconds ago
//! DIR/learned.json  how long hosts were idle, by which quiet periods are learned
//! DIR/comparison.json  what was measured of renders with and without harvest
//! DIR/people.json  whom the broker knew, by their public keys
//! ```
//!
//! # Invariants
//! - A file is written as a whole or not at all, and is on disk, its folder too, before the write
//!   has succeeded.
//! - Of two monitors one has the folder, and each file is written by one at a time: whoever calls
//!   sees to it.
//! - A `stop.json` that cannot be understood is a stop: who may not know must not harvest. A
//!   `hosts.json` that cannot be understood is as good as none: every host waits anew. So is a
//!   `learned.json`: every group waits as long as is configured, and learns anew.
//! - A `people.json` that cannot be understood lets nobody in, until the broker tells again.
//! - A `comparison.json` that cannot be understood is put aside, not overwritten.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use gleaner_protocol::boot_id;
use gleaner_protocol::people::FarmPeople;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::{error, warn};

use crate::comparison::LedgerFile;
use crate::limits::{
    COMPARISON_FILE_BYTES_MAX, HOSTS_FILE_BYTES_MAX, LEARNED_FILE_BYTES_MAX,
    PEOPLE_ANSWER_BYTES_MAX, STOP_FILE_BYTES_MAX,
};
use crate::{Remembered, RememberedGaps, Stop};

const LOCK: &str = "lock";
const STOP: &str = "stop.json";
const HOSTS: &str = "hosts.json";
const LEARNED: &str = "learned.json";
const COMPARISON: &str = "comparison.json";
const PEOPLE: &str = "people.json";
/// Of the files' form.
const VERSION: u32 = 1;

/// The folder, held.
#[derive(Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    /// Of the machine, on whose clock what is written was measured.
    boot: String,
    /// The folder itself, whose entries are to be on disk too.
    folder: File,
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopFile {
    version: u32,
    stop: Option<Stop>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    version: u32,
    boot: String,
    hosts: Vec<Remembered>,
}

/// A [`HostsFile`] that is written.
#[derive(Debug, Serialize)]
struct HostsDraft<'a> {
    version: u32,
    boot: &'a str,
    hosts: &'a [Remembered],
}

/// Times, not points in time: they are the same on every boot.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LearnedFile {
    version: u32,
    groups: Vec<RememberedGaps>,
}

/// A [`LearnedFile`] that is written.
#[derive(Debug, Serialize)]
struct LearnedDraft<'a> {
    version: u32,
    groups: &'a [RememberedGaps],
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparisonFile {
    version: u32,
    ledger: LedgerFile,
}

/// A [`ComparisonFile`] that is written.
#[derive(Debug, Serialize)]
struct ComparisonDraft<'a> {
    version: u32,
    ledger: &'a LedgerFile,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeopleFile {
    version: u32,
    list: FarmPeople,
}

impl StateFolder {
    /// Takes the folder, and makes it where it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let refuse = |source| StateError::Folder { path: path.to_owned(), source };
        let folder = make_folder(path).map_err(refuse)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(refuse)?;
        match lock.try_lock() {
            Ok(()) => {
                let (path, boot) = (path.to_owned(), boot_id());
                Ok(Self { path, boot, folder, _lock: lock })
            }
            Err(fs::TryLockError::WouldBlock) => Err(StateError::InUse(path.to_owned())),
            Err(fs::TryLockError::Error(source)) => Err(refuse(source)),
        }
    }

    /// The stop that holds. One that cannot be read holds too.
    pub(crate) fn stop(&self, now: Timestamp) -> Option<Stop> {
        let path = self.path.join(STOP);
        let read = match self.read(STOP, STOP_FILE_BYTES_MAX) {
            Ok(None) => return None,
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reason = match read {
            Ok(StopFile { version: VERSION, stop }) => return stop,
            Ok(StopFile { version, .. }) => format!("it has version {version}, not {VERSION}"),
            Err(reason) => reason,
        };
        let path = path.display();
        error!("{path} cannot be understood, so the farm is stopped: {reason}");
        let reason = format!("{path} cannot be understood ({reason:.200}); a resume replaces it");
        Some(Stop { by: "the monitor itself".into(), reason, at: now })
    }

    /// Has a stop, or none, hold from now on.
    pub(crate) fn keep_stop(&self, stop: Option<&Stop>) -> Result<(), KeepError> {
        let file = StopFile { version: VERSION, stop: stop.cloned() };
        self.replace(STOP, &file)
    }

    /// What was known of the hosts.
    pub(crate) fn hosts(&self) -> Vec<Remembered> {
        let read = match self.read(HOSTS, HOSTS_FILE_BYTES_MAX) {
            Ok(None) => return Vec::new(),
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reason = match read {
            Ok(HostsFile { version: VERSION, boot, hosts }) if self.is_this_boot(&boot) => {
                return hosts;
            }
            Ok(HostsFile { version: VERSION, hosts, .. }) => {
                return hosts.into_iter().map(Remembered::of_another_boot).collect();
            }
            Ok(HostsFile { version, .. }) => format!("it has version {version}, not {VERSION}"),
            Err(reason) => reason,
        };
        let path = self.path.join(HOSTS);
        warn!("{} cannot be understood, so every host waits anew: {reason}", path.display());
        Vec::new()
    }

    /// Has the next monitor know of these hosts.
    pub(crate) fn keep_hosts(&self, hosts: &[Remembered]) -> Result<(), KeepError> {
        let file = HostsDraft { version: VERSION, boot: &self.boot, hosts };
        self.replace(HOSTS, &file)
    }

    /// What was learned of quiet periods.
    pub(crate) fn learned(&self) -> Vec<RememberedGaps> {
        let read = match self.read(LEARNED, LEARNED_FILE_BYTES_MAX) {
            Ok(None) => return Vec::new(),
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reason = match read {
            Ok(LearnedFile { version: VERSION, groups }) => return groups,
            Ok(LearnedFile { version, .. }) => format!("it has version {version}, not {VERSION}"),
            Err(reason) => reason,
        };
        let path = self.path.join(LEARNED);
        let path = path.display();
        warn!("{path} cannot be understood, so quiet periods are learned anew: {reason}");
        Vec::new()
    }

    /// Has the next monitor go on with what was learned.
    pub(crate) fn keep_learned(&self, groups: &[RememberedGaps]) -> Result<(), KeepError> {
        self.replace(LEARNED, &LearnedDraft { version: VERSION, groups })
    }

    /// What was compared so far.
    ///
    /// # Errors
    /// It cannot be read, or cannot be understood and not be put aside either.
    pub(crate) fn comparison(&self) -> io::Result<Option<LedgerFile>> {
        let Some(bytes) = self.read(COMPARISON, COMPARISON_FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let reason = match serde_json::from_slice(&bytes) {
            Ok(ComparisonFile { version: VERSION, ledger }) => return Ok(Some(ledger)),
            Ok(ComparisonFile { version, .. }) => {
                format!("it has version {version}, not {VERSION}")
            }
            Err(error) => error.to_string(),
        };
        let (path, aside) = (self.path.join(COMPARISON), self.path.join("comparison.json.damaged"));
        fs::rename(&path, &aside)?;
        let (path, aside) = (path.display(), aside.display());
        error!("{path} cannot be understood, so the comparison begins anew ({aside}): {reason}");
        Ok(None)
    }

    /// Has the next monitor go on with what was compared.
    pub(crate) fn keep_comparison(&self, ledger: &LedgerFile) -> Result<(), KeepError> {
        self.replace(COMPARISON, &ComparisonDraft { version: VERSION, ledger })
    }

    /// Whom the broker knew.
    pub(crate) fn people(&self) -> Option<FarmPeople> {
        let read = match self.read(PEOPLE, PEOPLE_ANSWER_BYTES_MAX as u64) {
            Ok(None) => return None,
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reason = match read {
            Ok(PeopleFile { version: VERSION, list }) => return Some(list),
            Ok(PeopleFile { version, .. }) => format!("it has version {version}, not {VERSION}"),
            Err(reason) => reason,
        };
        let path = self.path.join(PEOPLE);
        let path = path.display();
        warn!("{path} cannot be understood, so nobody is known before the broker tells: {reason}");
        None
    }

    /// Has the next monitor know them.
    pub(crate) fn keep_people(&self, list: &FarmPeople) -> Result<(), KeepError> {
        self.replace(PEOPLE, &PeopleFile { version: VERSION, list: list.clone() })
    }

    fn is_this_boot(&self, boot: &str) -> bool {
        !boot.is_empty() && boot == self.boot
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
        }
        Ok(Some(bytes))
    }

    fn replace(&self, name: &str, file: &impl Serialize) -> Result<(), KeepError> {
        let draft = self.path.join(format!("{name}.new"));
        let placed = serde_json::to_vec(file).map_err(io::Error::from).and_then(|content| {
            let mut file = File::create(&draft)?;
            file.write_all(&content)?;
            file.sync_all()?;
            fs::rename(&draft, self.path.join(name))
        });
        placed.map_err(KeepError::AsItWas)?;
        self.folder.sync_all().map_err(KeepError::Unclear)
    }
}

/// Makes a folder where there is none, and has the folders above it know of it after a crash.
fn make_folder(path: &Path) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    let mut unsynced: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    // It may have been made just before the crash of another.
    unsynced.extend(unsynced.is_empty().then_some(&*path));
    fs::create_dir_all(&path)?;
    for made in unsynced {
        match made.parent().map(File::open) {
            Some(Ok(above)) => above.sync_all()?,
            // One that may not be read cannot be synced, and was not made here.
            Some(Err(error)) if error.kind() == ErrorKind::PermissionDenied => {}
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    File::open(path)
}

/// Something that is not kept.
#[derive(Debug, Error)]
pub(crate) enum KeepError {
    /// What was kept before is.
    #[error("{0}")]
    AsItWas(io::Error),
    /// Either may be: it has taken the other's place, but perhaps not for good.
    #[error("its folder cannot be synced: {0}")]
    Unclear(io::Error),
}

/// A folder that cannot be had.
#[derive(Debug, Error)]
pub enum StateError {
    /// It cannot be used at all.
    #[error("cannot keep the monitor's state in {path} (state_dir): {source}", path = path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error(
        "another monitor keeps its state in {path}: give this one a state_dir of its own",
        path = .0.display()
    )]
    InUse(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop() -> Stop {
        Stop::new("anna", "why", Timestamp::UNIX_EPOCH).expect("a stop")
    }

    #[test]
    fn a_stop_is_kept_and_lifted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let state = StateFolder::open(&path).expect("it opens");
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), None);
        state.keep_stop(Some(&stop())).expect("written");
        assert!(matches!(StateFolder::open(&path), Err(StateError::InUse(_))));
        drop(state);
        let state = StateFolder::open(&path).expect("it opens again");
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), Some(stop()));
        state.keep_stop(None).expect("written");
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn what_cannot_be_understood_is_a_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::open(folder.path()).expect("it opens");
        let long = vec![b' '; STOP_FILE_BYTES_MAX as usize + 1];
        let newer = br#"{"version":2,"stop":null}"#;
        for content in [&b""[..], b"{", b"{}", newer, &long] {
            fs::write(folder.path().join(STOP), content).expect("written");
            let stop = state.stop(Timestamp::UNIX_EPOCH).expect("a stop");
            assert!(stop.reason.contains("cannot be understood"), "{stop}");
        }
        state.keep_stop(None).expect("a resume replaces it");
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn what_has_taken_its_place_but_may_not_be_on_disk_is_unclear() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep").join("state");
        let mut state = StateFolder::open(&path).expect("it opens");
        state.keep_stop(Some(&stop())).expect("written");
        let draft = path.join("stop.json.new");
        fs::create_dir(&draft).expect("in its way");
        assert!(matches!(state.keep_stop(None), Err(KeepError::AsItWas(_))));
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), Some(stop()));
        fs::remove_dir(&draft).expect("gone");
        // Of all files, one that cannot be synced.
        state.folder = File::open("/dev/null").expect("it is there");
        assert!(matches!(state.keep_stop(None), Err(KeepError::Unclear(_))));
        assert_eq!(state.stop(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_folder_that_cannot_be_had_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = StateFolder::open(file.path()).expect_err("no folder").to_string();
        assert!(error.contains("state_dir") && error.contains("cannot keep"), "{error}");
    }
}
