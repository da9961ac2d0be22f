//! The history of runs: what replicas of each application took, written down and predicted from.
//!
//! ```text
//!  data folder
//!  └── runs.jsonl   a line for each counted output, and for each replica that was cut off
//! ```
//!
//! A thread of its own takes what is recorded into memory and writes it: nothing that is promised
//! to anyone waits for a statistic. What has been added before is in what is read after.
//!
//! # Invariants
//! - Who adds never waits: where too much is waiting it is let go.
//! - On a disk that is nearly full nothing is written; what is in memory is in the file that is
//!   written next.
//! - A file that cannot be read is left as it is, and nothing is written over it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gleaner_history::{History, HistoryFile, Loaded, Run, Series};
use tokio::sync::oneshot;

use crate::limits::HISTORY_QUEUED_MAX;
use crate::store::FreeSpace;
use crate::wall_clock::utc_ms;

/// What the thread is to do.
enum Order {
    Add(Vec<Run>),
    /// To say that all before it is in memory.
    Say(oneshot::Sender<()>),
    End,
}

/// Adds to the history and reads it. Clones are of the same one.
#[derive(Debug, Clone)]
pub(crate) struct RunHistory {
    orders: SyncSender<Order>,
    shared: Arc<Mutex<History>>,
}

/// The thread that writes.
pub(crate) struct HistoryWriter {
    orders: SyncSender<Order>,
    thread: thread::JoinHandle<()>,
}

/// Reads the history of a data folder, and begins to write there.
///
/// # Errors
/// There can be no thread.
pub(crate) fn start(
    data_folder: &Path,
    min_free_bytes: u64,
) -> io::Result<(RunHistory, HistoryWriter)> {
    let (orders, queue) = sync_channel(HISTORY_QUEUED_MAX);
    let (file, history) = open(data_folder);
    let shared = Arc::new(Mutex::new(history));
    let space = FreeSpace::new(data_folder, min_free_bytes);
    let mut recorder = Recorder { shared: Arc::clone(&shared), file, space, has_failed: false };
    let thread =
        thread::Builder::new().name("history".into()).spawn(move || recorder.serve(&queue))?;
    Ok((RunHistory { orders: orders.clone(), shared }, HistoryWriter { orders, thread }))
}

fn open(data_folder: &Path) -> (Option<HistoryFile>, History) {
    match HistoryFile::open(data_folder, utc_ms()) {
        Ok((file, Loaded { history, damaged })) => {
            if let Some((aside, lines)) = damaged {
                tracing::error!(
                    "{lines} lines of the history of runs are damaged; the file is {} now, and the \
                     {} runs that could be read are kept",
                    aside.display(),
                    history.len()
                );
            }
            (Some(file), history)
        }
        Err(error) => {
            let path = HistoryFile::path_in(data_folder);
            tracing::error!(
                "cannot read the history of runs in {}, and write down none: {error}",
                path.display()
            );
            (None, History::default())
        }
    }
}

impl RunHistory {
    /// Adds runs; when they were, the history says itself. It is not waited for.
    pub(crate) fn add(&self, runs: Vec<Run>) {
        if runs.is_empty() {
            return;
        }
        match self.orders.try_send(Order::Add(runs)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                tracing::debug!("recorded runs are let go");
            }
        }
    }

    /// Reads the history, with all that was added before. What is read is copied first: work with it
    /// is to hold up nobody.
    ///
    /// # Errors
    /// The broker ends.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&History) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (say, said) = oneshot::channel();
        let Self { orders, shared } = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            orders.send(Order::Say(say)).ok()?;
            said.blocking_recv().ok()?;
            Some(read(&lock(&shared)))
        });
        read.await.ok().flatten().ok_or_else(|| io::Error::other("the broker ends"))
    }

    /// Works with the history's models, with all that was added before.
    ///
    /// # Errors
    /// The broker ends.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut History) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (say, said) = oneshot::channel();
        let Self { orders, shared } = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            orders.send(Order::Say(say)).ok()?;
            said.blocking_recv().ok()?;
            Some(ask(&mut lock(&shared)))
        });
        asked.await.ok().flatten().ok_or_else(|| io::Error::other("the broker ends"))
    }

    /// The runs of an application, by kinds of hosts.
    ///
    /// # Errors
    /// The broker ends.
    pub(crate) async fn kinds(
        &self,
        application: String,
    ) -> io::Result<Option<BTreeMap<String, Series>>> {
        self.read(move |history| history.kinds(&application).cloned()).await
    }
}

impl HistoryWriter {
    /// Writes what was added before, and ends.
    pub(crate) fn end(self) {
        let Self { orders, thread } = self;
        // One that has panicked is gone already, and its log says why.
        let _ = orders.send(Order::End);
        let _ = thread.join();
    }
}

fn lock(shared: &Mutex<History>) -> MutexGuard<'_, History> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's own.
struct Recorder {
    shared: Arc<Mutex<History>>,
    file: Option<HistoryFile>,
    space: FreeSpace,
    /// Whether it was said that it cannot be written.
    has_failed: bool,
}

impl Recorder {
    fn serve(&mut self, queue: &Receiver<Order>) {
        while let Ok(order) = queue.recv() {
            match order {
                Order::Add(runs) => self.take(runs),
                Order::Say(say) => {
                    // Who asked may have gone.
                    let _ = say.send(());
                }
                Order::End => break,
            }
        }
    }

    /// Takes runs into memory and writes them, and says so once where that cannot be.
    fn take(&mut self, mut runs: Vec<Run>) {
        let at_ms = utc_ms();
        runs.iter_mut().for_each(|run| run.at_ms = at_ms);
        let mut history = lock(&self.shared);
        runs.iter().for_each(|run| history.add(run.clone()));
        let kept = history.len();
        drop(history);
        let Some(file) = &mut self.file else { return };
        if self.space.admit().is_err() {
            return file.leave_out();
        }
        // Nobody else adds to it, and whoever reads it does not wait for the disk.
        let written = file.append(&runs, kept, || lock(&self.shared).runs().cloned().collect());
        match written {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!("cannot write down the history of runs: {error}");
                }
                self.has_failed = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn run(application: &str, seconds: u64) -> Run {
        Run {
            application: application.into(),
            kind: "fat".into(),
            features: BTreeMap::new(),
            cpu_us: seconds * 1_000_000,
            wall_us: seconds * 1_000_000,
            peak_memory_mib: None,
            ended: true,
            at_ms: 0,
        }
    }

    async fn seconds(history: &RunHistory) -> Vec<u64> {
        let kinds = history.kinds("blur".into()).await.expect("read").unwrap_or_default();
        kinds.values().flat_map(Series::runs).map(|run| run.wall_us / 1_000_000).collect()
    }

    #[tokio::test]
    async fn what_was_added_is_read_and_is_there_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let (history, writer) = start(folder.path(), 0).expect("it starts");
        assert!(seconds(&history).await.is_empty());
        history.add(vec![run("blur", 1), run("other", 9), run("blur", 2)]);
        assert_eq!(seconds(&history).await, [1, 2]);
        writer.end();
        assert!(history.kinds("blur".into()).await.is_err(), "it has ended");
        let (history, writer) = start(folder.path(), 0).expect("it starts");
        history.add(vec![run("blur", 3)]);
        assert_eq!(seconds(&history).await, [1, 2, 3]);
        let stamped =
            history.read(|history| history.runs().all(|run| run.at_ms > 1_700_000_000_000));
        assert!(stamped.await.expect("read"));
        writer.end();
    }

    #[tokio::test]
    async fn a_full_disk_keeps_what_is_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let (history, writer) = start(folder.path(), u64::MAX).expect("it starts");
        history.add(vec![run("blur", 1)]);
        assert_eq!(seconds(&history).await, [1]);
        writer.end();
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
    }

    #[tokio::test]
    async fn a_damaged_file_is_moved_aside_and_one_that_cannot_be_read_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = HistoryFile::path_in(folder.path());
        fs::write(&path, "something else\n").expect("written");
        let (history, writer) = start(folder.path(), 0).expect("it starts");
        history.add(vec![run("blur", 1)]);
        assert_eq!(seconds(&history).await, [1]);
        writer.end();
        let names = fs::read_dir(folder.path()).expect("listed");
        let names = names.map(|entry| entry.expect("listed").file_name().into_string());
        let mut names: Vec<String> = names.map(|name| name.expect("plain")).collect();
        names.sort();
        assert!(names.len() == 2 && names[0].starts_with("runs.damaged-"), "{names:?}");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder in its place");
        let (history, writer) = start(folder.path(), 0).expect("it starts");
        history.add(vec![run("blur", 7)]);
        assert_eq!(seconds(&history).await, [7]);
        writer.end();
        assert!(path.is_dir());
    }
}
