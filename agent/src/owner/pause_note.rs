//! A note of the owner's pause that outlives the agent.
//!
//! Its end is noted on the clock that never jumps, which a boot sets back; and on the wall's, by
//! which it is judged after a boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_protocol::{Span, Time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Pause;

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
}

impl PauseNote {
    /// In the agent's own folder.
    pub(super) fn new(work_dir: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { path: work_dir.join("pause.json"), boot: boot.trim().to_owned() }
    }

    /// Writes it.
    pub(super) fn write(&self, pause: Pause, now: Time) -> io::Result<()> {
        let wall = |until: Time| {
            let ahead_s = i64::try_from(until.since(now).as_millis() / 1_000).unwrap_or(i64::MAX);
            Timestamp::now().as_second().saturating_add(ahead_s)
        };
        let written = Written {
            boot: self.boot.clone(),
            until_us: pause.until.map(Time::as_micros),
            until_wall_s: pause.until.map(wall),
        };
        let text = serde_json::to_vec(&written).map_err(io::Error::from)?;
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &self.path)
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
                now + Span::from_secs(u64::try_from(left_s).unwrap_or(0))
            }
            _ => return Some(Pause { until: None }),
        };
        (until > now).then_some(Pause { until: Some(until) })
    }

    /// Removes it.
    pub(super) fn remove(&self) {
        // Where it stays, the next agent is paused: the owner can resume it again.
        let _ = fs::remove_file(&self.path);
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
        note.remove();
        assert_eq!(note.read(secs(1)), None);
    }

    #[test]
    fn a_damaged_note_is_a_pause() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = PauseNote::new(folder.path());
        fs::write(&note.path, "{").expect("written");
        assert_eq!(note.read(secs(1)), Some(Pause { until: None }));
    }
}
