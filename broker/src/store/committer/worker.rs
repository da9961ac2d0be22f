//! What the committer's thread does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use gleaner_protocol::{Span, boottime};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::{Batch, Chunks, Item, SnapshotDone, StoreState, refuse};
use crate::limits::{
    COMMIT_BYTES_MAX, COMMIT_GATHER_TIME, COMMIT_RECORDS_MAX, FULL_RECHECK, PRUNE_STEP_ENTRIES,
};
use crate::store::error::StoreError;
use crate::store::journal::{Commit, Journal, SnapshotWriter};

pub(super) struct Worker {
    pub(super) journal: Box<dyn Journal>,
    pub(super) items: mpsc::Receiver<Item>,
    pub(super) queue: mpsc::WeakSender<Item>,
    pub(super) state: watch::Sender<StoreState>,
    pub(super) failed: Option<Arc<StoreError>>,
    pub(super) snapshot: Option<JoinHandle<()>>,
    pub(super) closing: Arc<AtomicBool>,
}

impl Worker {
    pub(super) fn run_to_the_end(&mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        if let Err(panic) = ended {
            // A bug, in a caller's `after` or here. Whoever waits must learn of it.
            self.state.send_replace(StoreState::Failed(Arc::new(StoreError::Closed)));
            resume_unwind(panic);
        }
    }

    fn run(&mut self) {
        let mut more_to_prune = true;
        while let Some(next) = self.next(&mut more_to_prune) {
            let (batches, item) = self.gather(next);
            self.commit(batches);
            match item {
                None | Some(Item::Batch(_)) => {}
                Some(Item::Snapshot(chunks, done)) => self.begin_snapshot(chunks, done),
                // What is in the queue already is still done.
                Some(Item::Close) => self.items.close(),
                Some(Item::Written(written, done)) => {
                    self.adopt_snapshot(written, done);
                    more_to_prune = true;
                }
            }
            if more_to_prune {
                more_to_prune = self.prune();
            }
        }
        if let Some(snapshot) = self.snapshot.take() {
            // It sees that we are closing.
            let _ = snapshot.join();
        }
    }

    /// Everything that is ready goes together, up to what does not; and what comes in a moment, if
    /// nobody waits. Returns what ended it, too.
    fn gather(&mut self, first: Item) -> (Vec<Batch>, Option<Item>) {
        let until = boottime() + COMMIT_GATHER_TIME;
        let (mut batches, mut bytes, mut records) = (Vec::new(), 0, 0);
        let mut is_awaited = false;
        let mut item = Some(first);
        loop {
            let mut has_room = true;
            while let Some(Item::Batch(batch)) = item {
                bytes += batch.bytes();
                records += batch.records.len();
                is_awaited |= batch.is_awaited;
                batches.push(batch);
                has_room = bytes < COMMIT_BYTES_MAX && records < COMMIT_RECORDS_MAX;
                item = if has_room { self.items.try_recv().ok() } else { None };
            }
            let left = until.since(boottime());
            if item.is_some() || is_awaited || !has_room || left == Span::ZERO {
                return (batches, item);
            }
            // Until something comes that is awaited.
            thread::park_timeout(left.into());
            item = self.items.try_recv().ok();
        }
    }

    /// The next item; the time until it comes is spent on pruning.
    fn next(&mut self, more_to_prune: &mut bool) -> Option<Item> {
        while *more_to_prune {
            match self.items.try_recv() {
                Ok(item) => return Some(item),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => *more_to_prune = self.prune(),
            }
        }
        self.items.blocking_recv()
    }

    fn commit(&mut self, batches: Vec<Batch>) {
        let mut commit = Commit::default();
        for batch in &batches {
            commit.records.extend(batch.records.iter().map(Vec::as_slice));
            commit.small_blobs.extend(batch.small_blobs.iter().map(|(d, blob)| (*d, &blob[..])));
        }
        let needed = batches.iter().any(|batch| !batch.is_empty());
        let committed = match &self.failed {
            Some(error) => Err(error.clone()),
            None if needed => self.append(&commit),
            None => Ok(self.journal.last_sequence()),
        };
        for batch in batches {
            (batch.after)(committed.as_ref().copied().map_err(AsRef::as_ref));
        }
    }

    /// Appends, and waits as long as the disk is full.
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, Arc<StoreError>> {
        loop {
            match self.journal.append(commit) {
                Ok(sequence) => {
                    if matches!(*self.state.borrow(), StoreState::Full(_)) {
                        tracing::info!("the disk has space again, commits go on");
                        self.state.send_replace(StoreState::Ready);
                    }
                    return Ok(sequence);
                }
                Err(error) if error.is_full() => {
                    let error = Arc::new(error);
                    if matches!(*self.state.borrow(), StoreState::Ready) {
                        tracing::error!("{error}; commits wait");
                    }
                    self.state.send_replace(StoreState::Full(error.clone()));
                    if self.closing.load(Ordering::Acquire) {
                        // Nor is anything kept that came later, and that may follow from this.
                        self.failed = Some(error.clone());
                        return Err(error);
                    }
                    // Nothing tells us when a disk has space again.
                    thread::park_timeout(FULL_RECHECK);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    fn fail(&mut self, error: StoreError) -> Arc<StoreError> {
        let error = Arc::new(error);
        tracing::error!("{}; nothing is accepted until the broker is restarted", error.chain());
        self.failed = Some(error.clone());
        self.state.send_replace(StoreState::Failed(error.clone()));
        error
    }

    fn begin_snapshot(&mut self, chunks: Chunks, done: SnapshotDone) {
        if let Some(error) = &self.failed {
            return done(Err(error));
        }
        if self.snapshot.is_some() {
            return done(Err(&StoreError::SnapshotUnderWay));
        }
        let writer = match self.journal.begin_snapshot() {
            Ok(writer) => writer,
            Err(error) => return done(Err(&error)),
        };
        let queue = self.queue.clone();
        let closing = self.closing.clone();
        // Where there is no thread, what it was to have is still here.
        let parts = Arc::new(Mutex::new(Some((writer, chunks, done))));
        let taken = Arc::clone(&parts);
        let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || {
            let Some((writer, chunks, done)) = take(&taken) else { return };
            let written = write_snapshot(writer, chunks, &closing);
            match queue.upgrade() {
                Some(queue) => {
                    if let Err(refused) = queue.blocking_send(Item::Written(written, done)) {
                        refuse(refused.0);
                    }
                }
                None => done(Err(&StoreError::Closed)),
            }
        });
        match spawned {
            Ok(handle) => self.snapshot = Some(handle),
            Err(error) => {
                if let Some((_, _, done)) = take(&parts) {
                    done(Err(&StoreError::file("start", "a snapshot's thread".as_ref())(error)));
                }
            }
        }
    }

    fn adopt_snapshot(&mut self, written: Result<u64, StoreError>, done: SnapshotDone) {
        if let Some(handle) = self.snapshot.take() {
            let _ = handle.join();
        }
        let sequence = match written {
            Ok(sequence) => sequence,
            Err(error) => {
                tracing::warn!("no snapshot, the journal goes on without: {}", error.chain());
                return done(Err(&error));
            }
        };
        match self.journal.adopt_snapshot(sequence) {
            Ok(()) => {
                done(Ok(sequence));
            }
            Err(error) => {
                let error = self.fail(error);
                done(Err(&error));
            }
        }
    }

    /// One step; returns whether there are more.
    fn prune(&mut self) -> bool {
        if self.failed.is_some() {
            return false;
        }
        match self.journal.prune(PRUNE_STEP_ENTRIES) {
            Ok(more) => more,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().ok()?.take()
}

fn write_snapshot(
    mut writer: Box<dyn SnapshotWriter>,
    chunks: Chunks,
    closing: &AtomicBool,
) -> Result<u64, StoreError> {
    for chunk in chunks {
        if closing.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        writer.write(&chunk)?;
    }
    writer.finish()
}
