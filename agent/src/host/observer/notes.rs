//! Small files that the observer keeps up, written by a thread of their own.
//!
//! A file system may make its caller wait for others: for a disk, a file server, or for harvested
//! work that was put aside in the middle of a write of its own. Whoever gives way to others must
//! not wait for that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tracing::debug;

use crate::replace_file::{PUBLIC, replace_file};

/// The thread, and what it is to write. When this is dropped, all of it is.
#[derive(Debug)]
pub(super) struct Notes {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The newest text of each file.
    texts: BTreeMap<PathBuf, String>,
    /// What could not be written, until something else is to be.
    failed: BTreeMap<PathBuf, String>,
    is_over: bool,
}

impl Notes {
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of = Arc::clone(&shared);
        let thread = thread::Builder::new().name("gleaner-notes".into()).spawn(move || {
            while let Some((path, text)) = of.next() {
                if let Err(error) = replace_file(&path, text.as_bytes(), PUBLIC) {
                    debug!("cannot write {}: {error}", path.display());
                    of.lock().failed.insert(path, text);
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has a file's text replaced, soon; only the newest text of each file is written. What could
    /// not be is tried again then, and when this is dropped.
    pub(super) fn put(&self, path: &Path, text: String) {
        let mut waiting = self.shared.lock();
        waiting.texts.insert(path.to_owned(), text);
        waiting.try_again();
        drop(waiting);
        self.shared.changed.notify_one();
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.is_over = true;
        waiting.try_again();
        drop(waiting);
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Waiting {
    fn try_again(&mut self) {
        for (path, text) in std::mem::take(&mut self.failed) {
            self.texts.entry(path).or_insert(text);
        }
    }
}

impl Shared {
    /// What to write next; none where nothing is left and nothing more comes.
    fn next(&self) -> Option<(PathBuf, String)> {
        let is_calm = |waiting: &mut Waiting| waiting.texts.is_empty() && !waiting.is_over;
        let waiting = self.changed.wait_while(self.lock(), is_calm);
        waiting.unwrap_or_else(PoisonError::into_inner).texts.pop_first()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_of_each_file_is_there_in_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let notes = Notes::start().expect("a thread");
        for number in 0..100 {
            notes.put(&path("one"), format!("{number}"));
        }
        notes.put(&path("two"), "2".into());
        notes.put(&path("missing").join("three"), "3".into());
        drop(notes);
        let text = |name| fs::read_to_string(path(name)).expect("written");
        assert_eq!((text("one"), text("two")), ("99".into(), "2".into()));
    }

    #[test]
    fn what_could_not_be_written_is_written_when_it_can_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing");
        let notes = Notes::start().expect("a thread");
        notes.put(&missing.join("one"), "1".into());
        while notes.shared.lock().failed.is_empty() {
            thread::yield_now();
        }
        fs::create_dir(&missing).expect("made");
        drop(notes);
        assert_eq!(fs::read_to_string(missing.join("one")).expect("written"), "1");
    }
}
