//! The journal's entries, in the engine: in parts, under their sequences.
//!
//! # Invariants
//! - Entries follow each other without a gap. They are only ever added behind the last one, or removed
//!   once a snapshot stands for them.
//! - An entry that was cut off by a kill is the last one, and was not acknowledged: it is removed when
//!   the journal is opened.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sled::IVec;

use super::engine::{self, Engine, guarded};
use super::error::StoreError;
use super::sync_step::SyncStep;
use super::{parts, sealed};

/// All of them.
pub(crate) struct Entries {
    /// The data folder, for messages.
    folder: PathBuf,
    /// Had by everybody who reads them, too.
    engine: Arc<Engine>,
    path: PathBuf,
    file: File,
    /// Bytes behind the snapshot, and of these, those before a snapshot that is being written, with
    /// its sequence.
    bytes: u64,
    begun: Option<(u64, u64)>,
}

impl Entries {
    /// Opens those of a data folder.
    pub(crate) fn open(folder: &Path, store: &Path) -> Result<Self, StoreError> {
        let engine = engine::open(folder, store).map_err(engine::as_damage)?;
        let path = store.join("db");
        let file = File::open(&path).map_err(StoreError::file("open", &path))?;
        let (folder, engine) = (folder.to_owned(), Arc::new(engine));
        Ok(Self { folder, engine, path, file, bytes: 0, begun: None })
    }

    /// For those who read them beside us.
    pub(crate) fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Whether somebody reads them beside us.
    pub(crate) fn are_read(&self) -> bool {
        Arc::strong_count(&self.engine) > 1
    }

    /// Begins to count, and removes what a kill has left behind the last one. What is not known to
    /// have been acknowledged may not be on the disk itself yet.
    pub(crate) fn settle(
        &mut self,
        end: End,
        acknowledged: u64,
        sync: &mut dyn SyncStep,
    ) -> Result<(), StoreError> {
        self.bytes = end.bytes;
        if end.torn.is_empty() && end.last == acknowledged {
            return Ok(());
        }
        guarded(&self.folder, "beginning", || {
            parts::remove(&self.engine.journal, end.torn)
                .map_err(StoreError::engine("beginning", &self.folder))?;
            self.make_durable("beginning", sync)
        })
    }

    /// Appends an entry and makes it durable.
    pub(crate) fn append(
        &mut self,
        sequence: u64,
        entry: &[u8],
        sync: &mut dyn SyncStep,
    ) -> Result<(), StoreError> {
        guarded(&self.folder, "writing a commit", || {
            parts::put(&self.engine.journal, &sequence.to_be_bytes(), entry)
                .map_err(StoreError::engine("writing a commit", &self.folder))?;
            self.make_durable("writing a commit", sync)
        })?;
        self.bytes += entry.len() as u64;
        Ok(())
    }

    fn make_durable(&self, doing: &'static str, sync: &mut dyn SyncStep) -> Result<(), StoreError> {
        self.engine.db.flush().map_err(StoreError::engine(doing, &self.folder))?;
        sync.sync(&self.file).map_err(StoreError::file("sync", &self.path))
    }

    /// Bytes behind the snapshot.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A snapshot begins that stands for all up to `sequence`, the last one.
    pub(crate) fn begin_snapshot(&mut self, sequence: u64) {
        self.begun = Some((sequence, self.bytes));
    }

    /// A snapshot is adopted.
    pub(crate) fn end_snapshot(&mut self, sequence: u64) {
        if let Some((_, before)) = self.begun.take_if(|(begun, _)| *begun == sequence) {
            self.bytes -= before;
        }
    }

    /// Removes entries at or before `sequence`, at most `parts_max` parts of them; whether there may
    /// be more.
    pub(crate) fn remove_some(
        &mut self,
        sequence: u64,
        parts_max: usize,
    ) -> Result<bool, StoreError> {
        guarded(&self.folder, "removing old entries", || {
            let failed = || StoreError::engine("removing old entries", &self.folder);
            let journal = &self.engine.journal;
            let old = journal.range(..begin_after(sequence)).keys().take(parts_max);
            let old = old.collect::<sled::Result<Vec<_>>>().map_err(failed())?;
            let has_more = old.len() == parts_max;
            for key in old {
                journal.remove(key).map_err(failed())?;
            }
            Ok(has_more)
        })
    }
}

/// Before the keys of all entries after `sequence`, behind those of all others.
fn begin_after(sequence: u64) -> Vec<u8> {
    sequence.saturating_add(1).to_be_bytes().to_vec()
}

/// Where the entries end.
#[derive(Debug)]
pub(crate) struct End {
    /// Last whole entry.
    pub(crate) last: u64,
    /// Bytes of all whole entries that were read.
    pub(crate) bytes: u64,
    /// Keys of an entry behind it that was cut off by a kill.
    pub(crate) torn: Vec<IVec>,
}

/// Reads entries from the first to the last one, believing nothing.
pub(crate) struct Reader<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) engine: &'a Engine,
    /// Those after this one.
    pub(crate) begin: u64,
    /// All up to this one were acknowledged.
    pub(crate) acknowledged: u64,
    /// No others are looked at.
    pub(crate) last: u64,
}

/// An entry whose parts are still coming.
struct Open {
    sequence: u64,
    bytes: usize,
    entry: Vec<u8>,
    keys: Vec<IVec>,
}

impl Reader<'_> {
    pub(crate) fn run(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<End, StoreError> {
        let mut last = self.begin;
        let mut bytes = 0;
        let mut open: Option<Open> = None;
        let range = begin_after(self.begin)..begin_after(self.last.max(self.begin));
        let mut entries = self.engine.journal.range(range);
        loop {
            let next = guarded(self.folder, "reading the journal", || Ok(entries.next()));
            let (key, piece) = match next {
                Ok(Some(Ok(pair))) => pair,
                Ok(None) => break,
                Ok(Some(Err(error @ sled::Error::Io(_)))) => {
                    return Err(StoreError::engine("reading the journal", self.folder)(error));
                }
                Ok(Some(Err(error))) => {
                    return Err(self.damaged(last + 1, &format!("it cannot be read: {error}")));
                }
                Err(error) => {
                    return Err(self.damaged(last + 1, &format!("it cannot be read: {error}")));
                }
            };
            let mut current = self.take(open.take(), last, key, &piece)?;
            current.entry.extend_from_slice(&piece);
            if current.entry.len() < current.bytes {
                open = Some(current);
                continue;
            }
            let sequence = current.sequence;
            let records = sealed::open(&sequence.to_be_bytes(), &current.entry)
                .map_err(|what| self.damaged(sequence, &what))?;
            for record in records {
                visit(sequence, record)?;
            }
            last = sequence;
            bytes += current.entry.len() as u64;
        }
        let known = self.acknowledged;
        if last < known {
            let what = format!(
                "the journal ends after it, but everything up to sequence {known} was acknowledged"
            );
            return Err(self.damaged(last, &what));
        }
        let torn = open.map(|open| open.keys).unwrap_or_default();
        Ok(End { last, bytes, torn })
    }

    /// The entry to which this part belongs.
    fn take(
        &self,
        open: Option<Open>,
        last: u64,
        key: IVec,
        piece: &[u8],
    ) -> Result<Open, StoreError> {
        let place = parts::split_part_key(&key).and_then(|(key, part)| {
            Some((u64::from_be_bytes(key.try_into().ok()?), part as usize))
        });
        let Some((sequence, part)) = place else {
            return Err(self.damaged(last + 1, "something else stands in its place"));
        };
        match open {
            Some(mut open) if open.sequence == sequence && open.keys.len() == part => {
                open.keys.push(key);
                Ok(open)
            }
            Some(open) => Err(self.damaged(open.sequence, "a part of it is missing")),
            None if sequence == last + 1 && part == 0 => {
                let bytes =
                    sealed::entry_bytes(piece).map_err(|what| self.damaged(sequence, &what))?;
                Ok(Open { sequence, bytes, entry: Vec::new(), keys: vec![key] })
            }
            None => Err(self.damaged(
                last + 1,
                &format!("it is missing; what follows is sequence {sequence}, part {part}"),
            )),
        }
    }

    fn damaged(&self, sequence: u64, what: &str) -> StoreError {
        StoreError::damaged(self.folder, format!("sequence {sequence}: {what}"))
    }
}
