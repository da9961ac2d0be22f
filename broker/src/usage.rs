//! The accounts: what each ended replica took, written down for whoever is to answer for it.
//!
//! ```text
//!  data folder
//!  └── usage   segments of records, kept in the order in which replicas ended
//! ```
//!
//! A thread of its own writes them, once the turn in which a replica ended is durable: nobody waits
//! for it. What has been added before is in what is read after. Jobs may be forgotten meanwhile: a
//! record names all that it is summed by.
//!
//! Charged is the time of counted replicas whose output is the accepted one. When a replica ends, that
//! may not be known: its workunit may wait for more votes, for days and over restarts. So a record
//! carries the mark of its output, and when the workunit is decided a second, small record says which
//! output that was. They are brought together where they are summed. So nobody has to remember which
//! replicas wait, records are only ever added, and a vote whose workunit was given up or cancelled is
//! never charged. A workunit is decided as soon as enough votes agree: no more of them agree than its
//! job asked for.
//!
//! Credit is what volunteers have done for others. It is the same for all who agree, and no more than the
//! least that one of them took: so nobody earns by saying much, or by taking long.
//!
//! # Invariants
//! - Who adds never waits: where too much is waiting it is let go, and that is said.
//! - A record is there only if what ended the replica is durable. A kill may lose the last ones that
//!   were not handed to the kernel yet. A replica that was lost has another one if it comes back.
//! - On a disk that is nearly full nothing is written; what waits is written when there is space.

mod record;
mod segments;
mod sums;

pub use record::{EndedReplica, OutputMark, UsageRecord};
pub(crate) use segments::{is_segment, segment_names};
pub(crate) use sums::{UsageError, UsageQuery, Whose};

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use gleaner_protocol::Account;
use gleaner_protocol::api::UsageRow;
use gleaner_scheduling::Fact;
use tokio::sync::{Mutex, oneshot};

use crate::limits::{USAGE_QUEUED_MAX, USAGE_WAITING_MAX};
use crate::store::FreeSpace;
use crate::wall_clock::utc_ms;
use segments::{Bounds, Segments};

/// What the thread is to do.
enum Order {
    Add(Vec<UsageRecord>),
    /// To say where the records are, when all before it are there.
    Say(oneshot::Sender<Vec<PathBuf>>),
    End,
}

/// Adds to the accounts and reads them. Clones are of the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    orders: SyncSender<Order>,
    /// Held by who sums: one at a time, for it reads all of it.
    reading: Arc<Mutex<()>>,
}

/// The thread that writes.
pub(crate) struct UsageWriter {
    orders: SyncSender<Order>,
    thread: thread::JoinHandle<()>,
}

/// Begins to write into the data folder.
///
/// # Errors
/// There can be no thread.
pub(crate) fn start(data_folder: &Path, min_free_bytes: u64) -> io::Result<(Usage, UsageWriter)> {
    let (orders, queue) = sync_channel(USAGE_QUEUED_MAX);
    let data_folder = data_folder.to_owned();
    let serve = move || {
        // They are looked through here, not before the broker serves: they may be long.
        let segments = open(&data_folder);
        let space = FreeSpace::new(&data_folder, min_free_bytes);
        let waiting = VecDeque::new();
        Recorder { segments, space, waiting, has_failed: false }.serve(&queue);
    };
    let thread = thread::Builder::new().name("usage".into()).spawn(serve)?;
    Ok((Usage { orders: orders.clone(), reading: Arc::default() }, UsageWriter { orders, thread }))
}

fn open(data_folder: &Path) -> Option<Segments> {
    match Segments::open(data_folder, Bounds::default(), utc_ms()) {
        Ok((segments, damaged)) => {
            for of in damaged {
                tracing::error!(
                    "{} records of ended replicas are damaged; their segment is {} now, and what \
                     could be read of it is kept",
                    of.lines,
                    of.aside.display()
                );
            }
            Some(segments)
        }
        Err(error) => {
            let folder = data_folder.display();
            tracing::error!(
                "cannot read the records of ended replicas in {folder}, and write down none: {error}"
            );
            None
        }
    }
}

/// What facts say of accounts that nobody has seen being decided: those that are added when a store is
/// opened.
pub(crate) fn decisions(facts: &[Fact]) -> Vec<UsageRecord> {
    facts.iter().filter_map(decision).collect()
}

/// The record of a decision.
pub(crate) fn decision(fact: &Fact) -> Option<UsageRecord> {
    let Fact::Decided { workunit, digest } = fact else { return None };
    let output = OutputMark::of(*digest);
    Some(UsageRecord::Decided { job: workunit.job, index: workunit.index, output })
}

impl Usage {
    /// Adds records, in order. It is not waited for.
    pub(crate) fn add(&self, records: Vec<UsageRecord>) {
        if records.is_empty() {
            return;
        }
        match self.orders.try_send(Order::Add(records)) {
            Ok(()) => {}
            Err(TrySendError::Full(Order::Add(records))) => let_go(records.len()),
            // The broker ends, and its thread has written what came before.
            Err(_) => tracing::debug!("records of ended replicas came after the end"),
        }
    }

    /// Sums all that was added before.
    ///
    /// # Errors
    /// See [`UsageError`].
    pub(crate) async fn sum(&self, query: UsageQuery) -> Result<Vec<UsageRow>, UsageError> {
        self.read(move |segments| sums::sum(segments, &query)).await
    }

    /// What each account has used by then, as [fair shares](gleaner_scheduling::Core::note_used) count it.
    ///
    /// # Errors
    /// See [`UsageError`].
    pub(crate) async fn used(&self, until_ms: u64) -> Result<BTreeMap<Account, f64>, UsageError> {
        self.read(move |segments| sums::used(segments, until_ms)).await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&[PathBuf]) -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        // Kept for as long as somebody reads, also where nobody waits for that any more.
        let turn = Arc::clone(&self.reading).lock_owned().await;
        let orders = self.orders.clone();
        let summed = tokio::task::spawn_blocking(move || {
            let (say, said) = oneshot::channel();
            orders.send(Order::Say(say)).map_err(|_| UsageError::Ends)?;
            let segments = said.blocking_recv().map_err(|_| UsageError::Ends)?;
            let answer = read(&segments);
            drop(turn);
            answer
        });
        summed.await.unwrap_or(Err(UsageError::Ends))
    }
}

impl UsageWriter {
    /// Writes what was added before, and ends.
    pub(crate) fn end(self) {
        let Self { orders, thread } = self;
        // One that has panicked is gone already, and its log says why.
        let _ = orders.send(Order::End);
        let _ = thread.join();
    }
}

fn let_go(count: usize) {
    tracing::error!("{count} records of ended replicas are let go: the disk is too slow or full");
}

/// The thread's own.
struct Recorder {
    segments: Option<Segments>,
    space: FreeSpace,
    /// Not written yet, the oldest first.
    waiting: VecDeque<UsageRecord>,
    /// Whether it was said that they cannot be written.
    has_failed: bool,
}

impl Recorder {
    fn serve(&mut self, queue: &Receiver<Order>) {
        while let Ok(order) = queue.recv() {
            match order {
                Order::Add(records) => self.take(records),
                Order::Say(say) => {
                    self.write();
                    // Who asked may have gone.
                    let _ =
                        say.send(self.segments.as_ref().map(Segments::paths).unwrap_or_default());
                }
                Order::End => break,
            }
        }
        self.write();
    }

    fn take(&mut self, mut records: Vec<UsageRecord>) {
        if self.segments.is_none() {
            return;
        }
        let room = USAGE_WAITING_MAX.saturating_sub(self.waiting.len());
        // A turn may end a whole job at once: what the disk takes never waits here.
        if records.len() > room && !self.waiting.is_empty() {
            let_go(records.len() - room);
            records.truncate(room);
        }
        self.waiting.extend(records);
        self.write();
    }

    /// Writes what waits, and says so once where that cannot be.
    fn write(&mut self) {
        let Some(segments) = &mut self.segments else { return };
        if self.waiting.is_empty() || self.space.admit().is_err() {
            return;
        }
        match segments.append(&mut self.waiting) {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!("cannot write down ended replicas: {error}");
                }
                self.has_failed = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
