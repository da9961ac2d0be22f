//! One thread that writes the journal, so that many callers share one sync.
//!
//! # Invariants
//! - Batches are committed, and their callers told, in the order in which they were handed over;
//!   one without records waits its turn too, but needs no sync.
//! - Nobody is told of success before the commit is durable.
//! - After a failure every batch is refused. While the disk is full the thread waits with what it
//!   has: what came first is committed first, and nothing is left out.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use gleaner_protocol::Digest;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::error::StoreError;
use super::journal::{Admission, Commit, Journal, SnapshotWriter};
use crate::limits::{
    COMMIT_BYTES_MAX, COMMIT_QUEUE_MAX, COMMIT_RECORDS_MAX, FULL_RECHECK, PRUNE_STEP_ENTRIES,
    SNAPSHOT_AFTER_BYTES,
};

/// Called once on the committer's thread, with the sequence of the commit or with what went
/// wrong. It holds up everyone behind it, so it should only pass the word on.
pub type After = Box<dyn FnOnce(Result<u64, &StoreError>) + Send>;
/// Called once when a snapshot is in use, with its sequence, or was given up.
pub type SnapshotDone = Box<dyn FnOnce(Result<u64, &StoreError>) + Send>;

type Chunks = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// What one caller wants to be durable together.
pub struct Batch {
    /// Records, in order; none for a batch that only keeps its place in the order.
    pub records: Vec<Vec<u8>>,
    /// Blobs that the records refer to.
    pub small_blobs: Vec<(Digest, Vec<u8>)>,
    /// Told when it is.
    pub after: After,
}

impl Batch {
    fn bytes(&self) -> usize {
        let records: usize = self.records.iter().map(Vec::len).sum();
        records + self.small_blobs.iter().map(|(_, blob)| blob.len()).sum::<usize>()
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.small_blobs.is_empty()
    }
}

/// How the store is.
#[derive(Debug, Clone)]
pub enum StoreState {
    /// It takes what comes.
    Ready,
    /// Commits wait for free space.
    Full(Arc<StoreError>),
    /// It takes nothing until the broker is restarted.
    Failed(Arc<StoreError>),
}

enum Item {
    Batch(Batch),
    Snapshot(Chunks, SnapshotDone),
    Written(Result<u64, StoreError>, SnapshotDone),
    Close,
}

/// The way to the thread. Clones lead to the same one.
#[derive(Clone)]
pub struct Committer {
    queue: mpsc::Sender<Item>,
    state: watch::Receiver<StoreState>,
    admission: Admission,
    tail_bytes: Arc<AtomicU64>,
    thread: Arc<CommitterThread>,
}

struct CommitterThread {
    closing: Arc<AtomicBool>,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
    waker: thread::Thread,
}

impl Committer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`StoreError::File`] where no thread can be had.
    pub fn start(journal: Box<dyn Journal>) -> Result<Self, StoreError> {
        let (queue, items) = mpsc::channel(COMMIT_QUEUE_MAX);
        let (state, state_receiver) = watch::channel(StoreState::Ready);
        let admission = journal.admission();
        let tail_bytes = Arc::new(AtomicU64::new(journal.tail_bytes()));
        let closing = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            journal,
            items,
            queue: queue.downgrade(),
            state,
            failed: None,
            snapshot: None,
            tail_bytes: tail_bytes.clone(),
            closing: closing.clone(),
        };
        let handle = thread::Builder::new()
            .name("committer".into())
            .spawn(move || worker.run_to_the_end())
            .map_err(StoreError::file("start", "the committer's thread".as_ref()))?;
        let waker = handle.thread().clone();
        let thread =
            CommitterThread { closing, handle: std::sync::Mutex::new(Some(handle)), waker };
        let thread = Arc::new(thread);
        Ok(Self { queue, state: state_receiver, admission, tail_bytes, thread })
    }

    /// Hands over a batch; waits while the queue is full. `after` is called whatever happens.
    pub async fn submit(&self, batch: Batch) {
        if let Err(refused) = self.queue.send(Item::Batch(batch)).await {
            refuse(refused.0);
        }
    }

    /// As [`Committer::submit`], for threads that may block.
    pub fn submit_blocking(&self, batch: Batch) {
        if let Err(refused) = self.queue.blocking_send(Item::Batch(batch)) {
            refuse(refused.0);
        }
    }

    /// As [`Committer::submit`], but gives the batch back while the queue is full.
    ///
    /// # Errors
    /// The batch, untouched.
    pub fn try_submit(&self, batch: Batch) -> Result<(), Batch> {
        match self.queue.try_send(Item::Batch(batch)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(Item::Batch(batch))) => Err(batch),
            Err(refused) => {
                refuse(refused.into_inner());
                Ok(())
            }
        }
    }

    /// Has a snapshot written that stands for all batches handed over before. The chunks are
    /// taken and written by a thread of its own while commits go on.
    pub async fn snapshot(
        &self,
        chunks: impl Iterator<Item = Vec<u8>> + Send + 'static,
        done: SnapshotDone,
    ) {
        if let Err(refused) = self.queue.send(Item::Snapshot(Box::new(chunks), done)).await {
            refuse(refused.0);
        }
    }

    /// Whether something new may be accepted. To be asked before anything is promised: what was
    /// handed over already is committed even when there is no space for more.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self) -> Result<(), Arc<StoreError>> {
        match &*self.state.borrow() {
            StoreState::Ready => {}
            StoreState::Full(why) | StoreState::Failed(why) => return Err(why.clone()),
        }
        (self.admission)().map_err(Arc::new)
    }

    /// Whether so much was committed since the last snapshot that another one is due.
    #[must_use]
    pub fn snapshot_is_due(&self) -> bool {
        self.tail_bytes.load(Ordering::Relaxed) >= SNAPSHOT_AFTER_BYTES
    }

    /// How the store is, and a way to wait for it to change.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<StoreState> {
        self.state.clone()
    }

    /// Commits what was handed over, ends the thread and closes the journal. What other clones
    /// hand over from now on is refused; commits that wait for free space are given up.
    pub async fn close(self) {
        self.thread.give_up_waiting();
        // An error means that it is closed already.
        let _ = self.queue.send(Item::Close).await;
        let thread = self.thread;
        if tokio::task::spawn_blocking(move || thread.join()).await.is_err() {
            tracing::error!("the committer's thread could not be waited for");
        }
    }

    /// As [`Committer::close`], for threads that may block.
    pub fn close_blocking(self) {
        self.thread.give_up_waiting();
        let _ = self.queue.blocking_send(Item::Close);
        self.thread.join();
    }
}

impl CommitterThread {
    fn give_up_waiting(&self) {
        self.closing.store(true, Ordering::Release);
        self.waker.unpark();
    }

    fn join(&self) {
        let handle = self.handle.lock().ok().and_then(|mut handle| handle.take());
        if let Some(handle) = handle
            && handle.join().is_err()
        {
            tracing::error!("the committer's thread panicked");
        }
    }
}

fn refuse(item: Item) {
    match item {
        Item::Batch(batch) => (batch.after)(Err(&StoreError::Closed)),
        Item::Snapshot(_, done) | Item::Written(_, done) => done(Err(&StoreError::Closed)),
        Item::Close => {}
    }
}

struct Worker {
    journal: Box<dyn Journal>,
    items: mpsc::Receiver<Item>,
    queue: mpsc::WeakSender<Item>,
    state: watch::Sender<StoreState>,
    failed: Option<Arc<StoreError>>,
    snapshot: Option<JoinHandle<()>>,
    tail_bytes: Arc<AtomicU64>,
    closing: Arc<AtomicBool>,
}

impl Worker {
    fn run_to_the_end(&mut self) {
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
            let mut batches = Vec::new();
            let mut bytes = 0;
            let mut records = 0;
            let mut item = Some(next);
            // Everything that is ready goes together, up to what does not.
            while let Some(Item::Batch(batch)) = item {
                bytes += batch.bytes();
                records += batch.records.len();
                batches.push(batch);
                let room = bytes < COMMIT_BYTES_MAX && records < COMMIT_RECORDS_MAX;
                item = if room { self.items.try_recv().ok() } else { None };
            }
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
                    self.tail_bytes.store(self.journal.tail_bytes(), Ordering::Relaxed);
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
        let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || {
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
            // `done` went down with the thread that was not to be.
            Err(error) => tracing::error!("no thread for a snapshot: {error}"),
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
                self.tail_bytes.store(self.journal.tail_bytes(), Ordering::Relaxed);
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
