//! One thread that writes the journal, so that many callers share one sync. Where nobody waits for
//! what is ready, it gathers more for a moment.
//!
//! When the journal has grown, a thread of its own makes a snapshot of what is on disk, from the last
//! snapshot and the records after it: whoever decides has no part in that.
//!
//! # Invariants
//! - Batches are committed, and their callers told, in the order in which they were handed over;
//!   one without records waits its turn too, but needs no sync.
//! - Nobody is told of success before the commit is durable.
//! - After a failure every batch is refused. While the disk is full the thread waits with what it
//!   has: what came first is committed first, and nothing is left out.

mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use gleaner_protocol::Digest;
use tokio::sync::{mpsc, oneshot, watch};

use self::worker::Worker;
use super::error::StoreError;
use super::journal::{Admission, Journal, SnapshotWriter};
use super::past::Past;
use crate::limits::COMMIT_QUEUE_MAX;

/// Called once on the committer's thread, with the sequence of the commit or with what went
/// wrong. It holds up everyone behind it, so it should only pass the word on.
pub type After = Box<dyn FnOnce(Result<u64, &StoreError>) + Send>;
/// Writes, chunk by chunk, what stands for all that the journal held. It asks now and then whether
/// the broker ends, and gives up then ([`StoreError::Closed`]).
pub type Compact = Box<
    dyn Fn(&Past, &mut dyn SnapshotWriter, &AtomicBool) -> Result<(), StoreError> + Send + Sync,
>;

/// How the journal is kept short.
pub struct Compaction {
    /// When it has grown by so much since its snapshot, and by as much as that takes: making one takes
    /// time in proportion to all that is known.
    pub after_bytes: u64,
    /// How.
    pub compact: Compact,
}

/// What one caller wants to be durable together.
pub struct Batch {
    /// Records, in order; none for a batch that only keeps its place in the order.
    pub records: Vec<Vec<u8>>,
    /// Blobs that the records refer to.
    pub small_blobs: Vec<(Digest, Vec<u8>)>,
    /// Told when it is.
    pub after: After,
    /// Whether somebody waits for it: then it is committed at once, with all that was gathered.
    pub is_awaited: bool,
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
    Past(oneshot::Sender<Result<Past, StoreError>>),
    Written(Result<u64, StoreError>),
    Close,
}

/// The way to the thread. Clones lead to the same one.
#[derive(Clone)]
pub struct Committer {
    queue: mpsc::Sender<Item>,
    state: watch::Receiver<StoreState>,
    admission: Admission,
    thread: Arc<CommitterThread>,
}

struct CommitterThread {
    closing: Arc<AtomicBool>,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
    waker: thread::Thread,
}

impl Committer {
    /// Starts the thread; without `compaction` the journal only grows.
    ///
    /// # Errors
    /// [`StoreError::File`] where no thread can be had.
    pub fn start(
        journal: Box<dyn Journal>,
        compaction: Option<Compaction>,
    ) -> Result<Self, StoreError> {
        let (queue, items) = mpsc::channel(COMMIT_QUEUE_MAX);
        let (state, state_receiver) = watch::channel(StoreState::Ready);
        let admission = journal.admission();
        let closing = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            journal,
            items,
            queue: queue.downgrade(),
            state,
            failed: None,
            compaction: compaction.map(|of| (of.after_bytes, Arc::new(of.compact))),
            not_before_bytes: 0,
            snapshot: None,
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
        Ok(Self { queue, state: state_receiver, admission, thread })
    }

    /// Hands over a batch; waits while the queue is full. `after` is called whatever happens.
    pub async fn submit(&self, batch: Batch) {
        let is_awaited = batch.is_awaited;
        match self.queue.send(Item::Batch(batch)).await {
            Ok(()) => self.thread.gather_no_more(is_awaited),
            Err(refused) => refuse(refused.0),
        }
    }

    /// As [`Committer::submit`], for threads that may block.
    pub fn submit_blocking(&self, batch: Batch) {
        let is_awaited = batch.is_awaited;
        match self.queue.blocking_send(Item::Batch(batch)) {
            Ok(()) => self.thread.gather_no_more(is_awaited),
            Err(refused) => refuse(refused.0),
        }
    }

    /// As [`Committer::submit`], but gives the batch back while the queue is full.
    ///
    /// # Errors
    /// The batch, untouched.
    pub fn try_submit(&self, batch: Batch) -> Result<(), Batch> {
        let is_awaited = batch.is_awaited;
        match self.queue.try_send(Item::Batch(batch)) {
            Ok(()) => {
                self.thread.gather_no_more(is_awaited);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(Item::Batch(batch))) => Err(batch),
            Err(refused) => {
                refuse(refused.into_inner());
                Ok(())
            }
        }
    }

    /// All that was handed over before, to be read by another thread while commits go on.
    ///
    /// # Errors
    /// Those of the disk; [`StoreError::Closed`] where the broker is stopping.
    pub async fn past(&self) -> Result<Past, StoreError> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Item::Past(reply)).await.is_err() {
            return Err(StoreError::Closed);
        }
        self.thread.gather_no_more(true);
        answer.await.unwrap_or(Err(StoreError::Closed))
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

    /// Whether what is handed over is committed some time, as far as can be told.
    #[must_use]
    pub fn works(&self) -> bool {
        !matches!(&*self.state.borrow(), StoreState::Failed(_))
    }

    /// How the store is, and a way to wait for it to change.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<StoreState> {
        self.state.clone()
    }

    /// Gives up commits that wait for free space, now and from now on: the broker ends.
    pub fn give_up_waiting(&self) {
        self.thread.give_up_waiting();
    }

    /// Commits what was handed over, ends the thread and closes the journal. What other clones
    /// hand over from now on is refused; commits that wait for free space are given up.
    ///
    /// # Panics
    /// On a thread of an async runtime, for it blocks: there, use `spawn_blocking`.
    pub fn close(self) {
        self.thread.give_up_waiting();
        // An error means that it is closed already.
        let _ = self.queue.blocking_send(Item::Close);
        self.thread.gather_no_more(true);
        self.thread.join();
    }
}

impl CommitterThread {
    fn give_up_waiting(&self) {
        self.closing.store(true, Ordering::Release);
        self.waker.unpark();
    }

    /// Wakes it where it gathers, if what was handed over is awaited.
    fn gather_no_more(&self, is_awaited: bool) {
        if is_awaited {
            self.waker.unpark();
        }
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
        Item::Past(reply) => {
            // Whoever asked may have gone.
            let _ = reply.send(Err(StoreError::Closed));
        }
        Item::Written(_) | Item::Close => {}
    }
}
