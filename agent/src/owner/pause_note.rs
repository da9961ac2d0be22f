//! A note of the owner's pause that outlives the agent.
//!
//! Its end is noted on the clock that never jumps, which a boot sets back; and on the wall's, by
//! which it is judged after a boot.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gleaner_protocol::{Span, Time, boot_id};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Pause;
use crate::replace_file::sync_folder_of;

/// Its place.
#[derive(Debug)]
pub(super) struct PauseNote {
    path: PathBuf,
    boot: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Of the boot during which it was written.
    boot: String,
    /// Microseconds since that boot.
    until_us: Option<u64>,
    /// Seconds since 1970.
    until_wall_s: Option<i64>,
    /// Its whole length in seconds: a wall clock that was set back makes it no longer.
    #[serde(default)]
    length_s: Option<i64>,
}

impl PauseNote {
    /// In the agent's own folder.
    pub(super) fn new(work_dir: &Path) -> Self {
        Self { path: work_dir.join("pause.json"), boot: boot_id() }
    }

    /// Writes it.
    pub(super) fn write(&self, pause: Pause, now: Time) -> io::Result<()> {
        let length_s = pause
            .until
            .map(|until| i64::try_from(until.since(now).as_millis() / 1_000).unwrap_or(i64::MAX));
        let wall = |ahead_s: i64| Timestamp::now().as_second().saturating_add(ahead_s);
        let written = Written {
            boot: self.boot.clone(),
            until_us: pause.until.map(Time::as_micros),
            until_wall_s: length_s.map(wall),
            length_s,
        };
        let text = serde_json::to_vec(&written).map_err(io::Error::from)?;
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        sync_folder_of(&self.path)
    }

    /// The pause that holds still. What cannot be read counts as a pause without an end: the
    /// owner wanted one.
    pub(super) fn read(&self, now: Time) -> Option<Pause> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return Some(Pause { until: None }),
        };
        let Ok(written) = serde_json::from_slice::<Written>(&text) else {
            return Some(Pause { until: None });
        };
        let until = match (written.until_us, written.until_wall_s) {
            (Some(until_us), _) if written.boot == self.boot => Time::from_micros(until_us),
            (_, Some(wall)) => {
                let left_s = wall.saturating_sub(Timestamp::now().as_second());
                let left_s = left_s.min(written.length_s.unwrap_or(i64::MAX));
                now + Span::from_secs(u64::try_from(left_s).unwrap_or(0))
            }
            _ => return Some(Pause { until: None }),
        };
        (until > now).then_some(Pause { until: Some(until) })
    }

    /// Removes it, where it is.
    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_folder_of(&self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Time {
        Time::from_micros(secs * 1_000_000)
    }

    #[test]
    fn it_holds_for_the_next_agent_and_after_a_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = PauseNote::new(folder.path());
        assert_eq!(note.read(secs(1)), None);
        note.write(Pause { until: Some(secs(1_000)) }, secs(100)).expect("written");
        assert_eq!(note.read(secs(999)), Some(Pause { until: Some(secs(1_000)) }));
        assert_eq!(note.read(secs(1_000)), None, "it is over");
        let rebooted = PauseNote { path: note.path.clone(), boot: "another".into() };
        let left = rebooted.read(secs(5)).and_then(|pause| pause.until).expect("15 minutes");
        assert!((895..=905).contains(&(left.since(secs(5)).as_millis() / 1_000)), "{left:?}");
        note.write(Pause { until: None }, secs(100)).expect("written");
        assert_eq!(rebooted.read(secs(0)), Some(Pause { until: None }));
        note.remove().expect("removed");
        note.remove().expect("nothing to do");
        assert_eq!(note.read(secs(1)), None);
    }

    #[test]
    fn a_wall_clock_that_jumps_makes_it_no_longer_and_never_endless() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = PauseNote::new(folder.path());
        note.write(Pause { until: Some(secs(1_000)) }, secs(100)).expect("written");
        // In the same boot the wall's clock does not matter; after one it is all that there is.
        let rebooted = PauseNote { path: note.path.clone(), boot: "another".into() };
        let written: Written =
            serde_json::from_slice(&fs::read(&note.path).expect("there")).expect("ours");
        for (jump_s, left_s) in [(10 * 365 * 86_400, Some(900)), (-500, Some(400)), (-901, None)] {
            let wall = written.until_wall_s.map(|wall| wall + jump_s);
            let (boot, until_us) = (written.boot.clone(), written.until_us);
            let jumped = Written { boot, until_us, until_wall_s: wall, ..written };
            fs::write(&note.path, serde_json::to_vec(&jumped).expect("plain")).expect("written");
            assert_eq!(note.read(secs(999)), Some(Pause { until: Some(secs(1_000)) }));
            let left = rebooted.read(secs(5)).and_then(|pause| pause.until);
            let left = left.map(|until| until.since(secs(5)).as_millis() / 1_000);
            match (left, left_s) {
                (Some(left), Some(about)) => assert!(left.abs_diff(about) <= 5, "{left}"),
                (left, about) => assert_eq!(left, about),
            }
        }
    }

    #[test]
    fn a_damaged_note_is_a_pause() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = PauseNote::new(folder.path());
        fs::write(&note.path, "{").expect("written");
        assert_eq!(note.read(secs(1)), Some(Pause { until: None }));
    }
}
