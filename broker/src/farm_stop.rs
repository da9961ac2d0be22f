//! Whether somebody has stopped the harvest of all hosts: who, when and why.
//!
//! ```text
//!  data folder
//!  └── stopped.json   while it is stopped
//! ```
//!
//! # Invariants
//! - A stop holds from the moment on in which it is given, whether or not it can be written down; who gave it
//!   is told where it cannot.
//! - A file that cannot be read is a stop: somebody wanted one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::api::StoppedFarm;
use jiff::Timestamp;

use crate::limits::STOP_REASON_CHARS_MAX;
use crate::sealed_file::{self, SealedFileError};
use crate::wall_clock::utc_ms;

/// Clones are of the same one.
#[derive(Debug, Clone)]
pub(crate) struct FarmStop {
    path: Arc<Path>,
    now: Arc<Mutex<Option<StoppedFarm>>>,
    /// Held by whoever stops or resumes, from the first step to the last.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

impl FarmStop {
    /// Reads what a data folder knows.
    pub(crate) fn open(data_folder: &Path) -> Self {
        let path: PathBuf = data_folder.join("stopped.json");
        let now = sealed_file::read(&path).unwrap_or_else(|error| {
            tracing::error!("harvest counts as stopped, until somebody resumes it: {error}");
            let by = "somebody".into();
            Some(StoppedFarm { by, at_ms: utc_ms(), reason: format!("{error}") })
        });
        if let Some(stopped) = &now {
            tracing::warn!("{}", in_words(stopped));
        }
        Self { path: path.into(), now: Arc::new(Mutex::new(now)), turn: Arc::default() }
    }

    /// Who has stopped it; nothing where it goes on.
    pub(crate) fn now(&self) -> Option<StoppedFarm> {
        self.lock().clone()
    }

    /// The same in words.
    pub(crate) fn why(&self) -> Option<String> {
        self.lock().as_ref().map(in_words)
    }

    /// Notes that it is stopped, or goes on; what was before.
    pub(crate) fn set(&self, stopped: Option<StoppedFarm>) -> Option<StoppedFarm> {
        std::mem::replace(&mut *self.lock(), stopped)
    }

    /// Writes down how it is now. May wait for a disk.
    pub(crate) fn write(&self) -> Result<(), SealedFileError> {
        match self.now() {
            Some(stopped) => sealed_file::replace(&self.path, &stopped),
            None => sealed_file::remove(&self.path),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<StoppedFarm>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason that somebody gives, where it can be shown to everybody: a line of text.
pub(crate) fn reason_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("reason must be a line of text: it is shown to everybody who waits".into());
    }
    match text.chars().count() {
        ..=STOP_REASON_CHARS_MAX => Ok(text.to_owned()),
        count => Err(format!("reason has {count} characters, at most {STOP_REASON_CHARS_MAX}")),
    }
}

/// As the farm's monitor says it of its own stops.
fn in_words(StoppedFarm { by, at_ms, reason }: &StoppedFarm) -> String {
    let at = i64::try_from(*at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = at.map(|at| format!(" at {at:.0}")).unwrap_or_default();
    format!("the farm's harvest was stopped by {by}{at}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop() -> StoppedFarm {
        StoppedFarm { by: "lea (0123abcd)".into(), at_ms: 0, reason: "renders are late".into() }
    }

    #[test]
    fn it_holds_over_a_restart_until_somebody_resumes() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = FarmStop::open(folder.path());
        assert_eq!(first.now(), None);
        assert_eq!(first.set(Some(stop())), None);
        first.write().expect("written");
        let next = FarmStop::open(folder.path());
        let words = "the farm's harvest was stopped by lea (0123abcd) at 1970-01-01T00:00:00Z: renders are late";
        assert_eq!((next.now(), next.why().as_deref()), (Some(stop()), Some(words)));
        assert_eq!(next.set(None), Some(stop()));
        next.write().expect("removed");
        next.write().expect("nothing to do");
        assert_eq!(FarmStop::open(folder.path()).now(), None);
    }

    #[test]
    fn a_damaged_file_is_a_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("stopped.json"), "{").expect("written");
        assert!(FarmStop::open(folder.path()).why().is_some_and(|why| why.contains("damaged")));
    }

    #[test]
    fn a_reason_is_a_line() {
        assert_eq!(reason_of(" renders are late \n"), Ok("renders are late".into()));
        let long = "x".repeat(STOP_REASON_CHARS_MAX + 1);
        for bad in ["", " ", "a\nb", "\u{7}", &long] {
            assert!(reason_of(bad).is_err(), "{bad:?}");
        }
    }
}
