//! The journal in a local folder: its entries in sled, all else in files.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use gleaner_scheduling::TokenKey;

use super::ballast::Ballast;
use super::engine;
use super::entries::Entries;
use super::error::StoreError;
use super::folder::{DataFolder, sync_folder};
use super::free_space::FreeSpace;
use super::journal::{Admission, Commit, Journal, SnapshotWriter};
use super::mark::{Acknowledged, Mark};
use super::meta::{FORMAT, Identity, Meta};
use super::past::{Past, Replayed};
use super::sealed;
use super::small_blobs::{Append, SmallBlobWriter, SmallBlobs};
use super::snapshot::{self, SnapshotFile};
use super::sync_step::{DataSync, SyncStep};
use crate::limits::{RECORD_BYTES_MAX, SMALL_BLOB_BYTES_MAX};

/// How a store is opened.
pub struct StoreOptions {
    /// Nothing new is accepted with less free space than this; half of it is left to what was
    /// accepted before.
    pub min_free_bytes: u64,
    /// How a file is made durable.
    pub sync: Box<dyn SyncStep>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { min_free_bytes: 64 << 20, sync: Box::new(DataSync) }
    }
}

/// What was found when a store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Which start of a broker on this folder this is, from 1; on disk.
    pub incarnation: u32,
    /// Drawn at random when the folder was made.
    pub token_key: TokenKey,
    /// Drawn at random when the folder was made, as hexadecimal digits.
    pub folder_id: String,
    /// Sequence of the last commit; 0 for a new store.
    pub last_sequence: u64,
    /// Sequence of the snapshot that the replay began with.
    pub snapshot_sequence: Option<u64>,
}

/// The journal in a local folder.
pub struct SledJournal {
    entries: Entries,
    small_blobs: SmallBlobWriter,
    meta: Meta,
    sync: Box<dyn SyncStep>,
    mark: Mark,
    acknowledged: Acknowledged,
    snapshots: PathBuf,
    /// Whether nothing is left that the snapshot has replaced.
    is_pruned: bool,
    space: FreeSpace,
    ballast: Ballast,
    failed: Option<String>,
    path: PathBuf,
    /// Last, so that the lock is given back last.
    _folder: DataFolder,
}

impl SledJournal {
    /// Opens the store of a data folder, or makes one, and passes all that is in it to `visit`:
    /// the snapshot's chunks, then the records after it.
    ///
    /// # Errors
    /// Anything that is not as it was written; an error of `visit`, with the place.
    pub fn open<E>(
        folder: DataFolder,
        options: StoreOptions,
        visit: impl FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<(Self, Recovered), StoreError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let path = folder.path().to_owned();
        let space = FreeSpace::new(&path, options.min_free_bytes);
        let ballast = Ballast::new(&path, options.min_free_bytes);
        ballast.drop_if_full(&space);
        let damaged = |what: String| StoreError::damaged(&path, what);
        let store = path.join("sled");
        let known = Meta::read(&path)?;
        if known.is_none() && store.exists() && !path.join("outputs").exists() {
            let folder = path.clone();
            return Err(StoreError::Format { folder, found: 3, known: FORMAT, release: None });
        }
        let (mark, acknowledged) = Mark::open(&path)?.map_err(damaged)?;
        let acknowledged = acknowledged.unwrap_or_default();
        let is_new = acknowledged == Acknowledged::default() && !store.exists();
        let mut meta = match known {
            Some(meta) => meta,
            None if is_new => Meta::draw()?,
            None => return Err(damaged("meta is missing, what every store begins with".into())),
        };
        if !store.exists() {
            if !is_new || meta.identity.incarnation > 0 {
                let sequence = acknowledged.sequence;
                return Err(damaged(format!(
                    "sled is missing, but everything up to sequence {sequence} was acknowledged"
                )));
            }
            // First: a folder with the one and without the other is another release's.
            meta.write(&path)?;
            engine::create(&path, &store)?;
        }
        // The outputs are listed while the journal is read.
        let outputs = path.join("outputs");
        let listing = thread::spawn({
            let path = path.clone();
            move || SmallBlobs::open(&path, &outputs)
        });

        let mut entries = Entries::open(&path, &store)?;
        let snapshots = path.join("snapshots");
        let past = Past {
            folder: path.clone(),
            snapshots: snapshots.clone(),
            snapshot: meta.snapshot,
            engine: entries.engine(),
            last_sequence: acknowledged.sequence,
            identity: meta.identity,
        };
        let end = past.read(u64::MAX, visit)?;
        drop(past);
        let last_sequence = end.last;
        if meta.identity.incarnation < acknowledged.incarnation {
            return Err(damaged(format!(
                "it knows {} starts, but {} were told",
                meta.identity.incarnation, acknowledged.incarnation
            )));
        }
        let incarnation = meta
            .identity
            .incarnation
            .checked_add(1)
            .ok_or_else(|| damaged("it was started more often than it can count".to_owned()))?;
        let small_blobs = listing.join().expect("listing outputs does not panic")?;

        // Everything is sound: from here on what the folder says is changed.
        if !end.torn.is_empty() {
            tracing::info!(
                "a commit after sequence {last_sequence} was cut off before it was acknowledged; \
                 removed"
            );
        }
        let mut sync = options.sync;
        entries.settle(end, acknowledged.sequence, &mut *sync)?;
        sync_folder(&store)?;
        snapshot::clear_all_but(&snapshots, meta.snapshot)?;
        sync_folder(&path)?;
        // Durable before anyone is told of it.
        meta.identity.incarnation = incarnation;
        meta.write(&path)?;
        let acknowledged = Acknowledged { sequence: last_sequence, incarnation };
        let mut opened = Self {
            entries,
            small_blobs,
            meta,
            sync,
            mark,
            acknowledged,
            snapshots,
            is_pruned: false,
            space,
            ballast,
            failed: None,
            path,
            _folder: folder,
        };
        opened.mark.write(acknowledged)?;
        opened.ballast.take_if_room(&opened.space);
        let recovered = Recovered {
            incarnation,
            token_key: opened.meta.token_key(),
            folder_id: opened.meta.folder_id(),
            last_sequence,
            snapshot_sequence: opened.meta.snapshot,
        };
        Ok((opened, recovered))
    }

    /// Reads small blobs.
    #[must_use]
    pub fn small_blobs(&self) -> SmallBlobs {
        self.small_blobs.reader()
    }

    /// Makes a folder that was filled from another one the same as that: agents that hold leases of
    /// the other are known.
    pub(crate) fn take_identity(&mut self, identity: Identity) -> Result<(), StoreError> {
        self.acknowledged.incarnation = identity.incarnation;
        self.meta.identity = identity;
        self.meta.write(&self.path)?;
        self.mark.write(self.acknowledged)
    }

    fn write(&mut self, sequence: u64, commit: &Commit<'_>) -> Result<(), Append> {
        // The outputs first: no fact refers to what is not there.
        self.small_blobs.put_all(&commit.small_blobs, &mut *self.sync)?;
        let entry = sealed::seal(&sequence.to_be_bytes(), &commit.records);
        Ok(self.entries.append(sequence, &entry, &mut *self.sync)?)
    }

    /// Runs one operation unless an earlier one failed; remembers if this one does.
    fn attempt<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(first) = &self.failed {
            return Err(StoreError::Failed { folder: self.path.clone(), first: first.clone() });
        }
        let done = operation(self);
        if let Err(error) = &done
            && !error.is_full()
        {
            self.failed = Some(error.chain());
        }
        done
    }
}

impl Journal for SledJournal {
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, StoreError> {
        check_lengths(commit)?;
        let sequence = self.acknowledged.sequence + 1;
        self.attempt(|journal| {
            // Before anything is touched.
            journal.space.commit(commit.bytes())?;
            match journal.write(sequence, commit) {
                Ok(()) => {}
                Err(Append::Full) => return Err(journal.space.full(commit.bytes())),
                Err(Append::Failed(error)) => return Err(error),
            }
            journal.acknowledged.sequence = sequence;
            journal.mark.write(journal.acknowledged)?;
            Ok(sequence)
        })
    }

    fn last_sequence(&self) -> u64 {
        self.acknowledged.sequence
    }

    fn tail_bytes(&self) -> u64 {
        self.entries.bytes()
    }

    fn snapshot_bytes(&self) -> u64 {
        self.meta.snapshot.map_or(0, |live| snapshot::bytes_of(&self.snapshots, live))
    }

    fn admission(&self) -> Admission {
        let space = self.space.clone();
        Arc::new(move || space.admit())
    }

    fn past(&mut self) -> Result<Past, StoreError> {
        Ok(Past {
            folder: self.path.clone(),
            snapshots: self.snapshots.clone(),
            snapshot: self.meta.snapshot,
            engine: self.entries.engine(),
            last_sequence: self.acknowledged.sequence,
            identity: self.meta.identity,
        })
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        let sequence = self.acknowledged.sequence;
        let file = SnapshotFile::create(&self.snapshots, sequence)?;
        self.entries.begin_snapshot(sequence);
        Ok(Box::new(file))
    }

    fn adopt_snapshot(&mut self, sequence: u64) -> Result<(), StoreError> {
        let live = self.meta.snapshot;
        if live.is_some_and(|live| live >= sequence) {
            return Ok(());
        }
        self.attempt(|journal| {
            journal.meta.snapshot = Some(sequence);
            journal.meta.write(&journal.path)
        })?;
        self.entries.end_snapshot(sequence);
        self.is_pruned = false;
        self.ballast.take_if_room(&self.space);
        Ok(())
    }

    fn prune(&mut self, parts_max: usize) -> Result<bool, StoreError> {
        let Some(sequence) = self.meta.snapshot.filter(|_| !self.is_pruned) else {
            return Ok(false);
        };
        if self.entries.are_read() {
            // They go when this is asked again.
            return Ok(false);
        }
        self.attempt(|journal| {
            snapshot::remove_before(&journal.snapshots, sequence)?;
            let has_more = journal.entries.remove_some(sequence, parts_max)?;
            journal.is_pruned = !has_more;
            Ok(has_more)
        })
    }
}

fn check_lengths(commit: &Commit<'_>) -> Result<(), StoreError> {
    let too_large = |what, bytes: usize, max| {
        (bytes > max).then_some(StoreError::TooLarge { what, bytes, max })
    };
    let record = commit.records.iter().map(|record| record.len()).max().unwrap_or(0);
    let blob = commit.small_blobs.iter().map(|(_, blob)| blob.len()).max().unwrap_or(0);
    match too_large("record", record, RECORD_BYTES_MAX)
        .or_else(|| too_large("small blob", blob, SMALL_BLOB_BYTES_MAX))
    {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
