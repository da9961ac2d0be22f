//! What the committer's thread does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use gleaner_protocol::{Span, boottime};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::{Batch, Compact, Item, StoreState};
use crate::limits::{
    COMMIT_BYTES_MAX, COMMIT_GATHER_TIME, COMMIT_RECORDS_MAX, FULL_RECHECK, PRUNE_STEP_PARTS,
};
use crate::store::error::StoreError;
use crate::store::journal::{Commit, Journal};
use crate::store::past::Past;

pub(super) struct Worker {
    pub(super) journal: Box<dyn Journal>,
    pub(super) items: mpsc::Receiver<Item>,
    pub(super) queue: mpsc::WeakSender<Item>,
    pub(super) state: watch::Sender<StoreState>,
    pub(super) failed: Option<Arc<StoreError>>,
    /// From how many bytes on, and how.
    pub(super) compaction: Option<(u64, Arc<Compact>)>,
    /// After one that failed the next one waits until the journal has this many bytes.
    pub(super) not_before_bytes: u64,
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
                Some(Item::Past(reply)) => {
                    let past = self.past();
                    // Whoever asked may have gone.
                    let _ = reply.send(past);
                }
                // What is in the queue already is still done.
                Some(Item::Close) => self.items.close(),
                Some(Item::Written(written)) => self.adopt_snapshot(written),
            }
            self.compact_if_due();
            // Whoever read the old files may be done.
            more_to_prune = self.prune();
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

    fn past(&mut self) -> Result<Past, StoreError> {
        if self.failed.is_some() {
            return Err(StoreError::Closed);
        }
        self.journal.past()
    }

    fn compact_if_due(&mut self) {
        let Some((after_bytes, compact)) = &self.compaction else { return };
        let tail_bytes = self.journal.tail_bytes();
        let due = after_bytes.max(&self.not_before_bytes);
        if self.failed.is_some() || self.snapshot.is_some() || tail_bytes < *due {
            return;
        }
        if tail_bytes < self.journal.snapshot_bytes() {
            self.not_before_bytes = self.journal.snapshot_bytes();
            return;
        }
        let compact = Arc::clone(compact);
        if let Err(error) = self.begin_snapshot(compact) {
            self.give_up_snapshot(&error);
        }
    }

    fn begin_snapshot(&mut self, compact: Arc<Compact>) -> Result<(), StoreError> {
        let past = self.journal.past()?;
        let mut writer = self.journal.begin_snapshot()?;
        let (queue, closing) = (self.queue.clone(), self.closing.clone());
        let handle = thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || {
                let written = compact(&past, &mut *writer, &closing).and_then(|()| writer.finish());
                drop(past);
                if let Some(queue) = queue.upgrade() {
                    // Refused only while the broker ends: then the next one makes another.
                    let _ = queue.blocking_send(Item::Written(written));
                }
            })
            .map_err(StoreError::file("start", "a snapshot's thread".as_ref()))?;
        self.snapshot = Some(handle);
        Ok(())
    }

    fn adopt_snapshot(&mut self, written: Result<u64, StoreError>) {
        if let Some(handle) = self.snapshot.take() {
            let _ = handle.join();
        }
        self.not_before_bytes = 0;
        match written {
            Ok(sequence) => match self.journal.adopt_snapshot(sequence) {
                Ok(()) => tracing::info!(sequence, "journal shortened to a snapshot"),
                Err(error) => drop(self.fail(error)),
            },
            Err(error) => self.give_up_snapshot(&error),
        }
    }

    fn give_up_snapshot(&mut self, error: &StoreError) {
        tracing::warn!("no snapshot, the journal goes on without: {}", error.chain());
        let after_bytes = self.compaction.as_ref().map_or(0, |(after_bytes, _)| *after_bytes);
        self.not_before_bytes = self.journal.tail_bytes().saturating_add(after_bytes);
    }

    /// One step; returns whether there are more.
    fn prune(&mut self) -> bool {
        if self.failed.is_some() {
            return false;
        }
        match self.journal.prune(PRUNE_STEP_PARTS) {
            Ok(more) => more,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }
}
