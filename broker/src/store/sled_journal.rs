//! The journal in a local folder, on sled.

use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use gleaner_scheduling::TokenKey;
use sled::{Db, Tree};

use super::ballast::Ballast;
use super::engine::{self, guarded};
use super::error::StoreError;
use super::folder::{DataFolder, sync_folder};
use super::free_space::FreeSpace;
use super::journal::{Admission, Commit, Journal, SnapshotWriter};
use super::mark::{Acknowledged, Mark};
use super::meta::Meta;
use super::replay::{Reader, Replayed};
use super::small_blobs::SmallBlobs;
use super::snapshot::{self, SnapshotFile};
use super::sync_step::{DataSync, SyncStep};
use super::{kept, parts, sealed};
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
    /// Drawn at random when it was first needed, the same ever since.
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
    db: Db,
    journal: Tree,
    blobs: SmallBlobs,
    meta: Meta,
    db_path: PathBuf,
    db_file: File,
    sync: Box<dyn SyncStep>,
    mark: Mark,
    acknowledged: Acknowledged,
    snapshots: PathBuf,
    snapshot_sequence: Option<u64>,
    /// Entry bytes since the snapshot, and of these, those before a snapshot that is being
    /// written.
    tail_bytes: u64,
    begun_bytes: u64,
    pruned: bool,
    space: FreeSpace,
    ballast: Ballast,
    failed: Option<String>,
    path: PathBuf,
    /// Last, so that the lock outlives the engine.
    _folder: DataFolder,
}

impl Drop for SledJournal {
    fn drop(&mut self) {
        engine::close(&self.db);
    }
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
        mut visit: impl FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<(Self, Recovered), StoreError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let path = folder.path().to_owned();
        let space = FreeSpace::new(&path, options.min_free_bytes);
        let ballast = Ballast::new(&path, options.min_free_bytes);
        let store = path.join("sled");
        if !store.exists() {
            engine::create(&path, &store)?;
        }
        ballast.drop_if_full(&space);
        engine::wait_until_free(&path, &store.join("db"))?;
        let kept = kept::keep(&path, &store, &space)?;
        let damaged =
            |what: String| StoreError::Damaged { folder: path.clone(), what, kept: kept.clone() };
        let (mark, acknowledged) = Mark::open(&path)?.map_err(damaged)?;
        let acknowledged = acknowledged.unwrap_or_default();

        let (db, journal, blobs, meta) =
            engine::open(&path, &store).map_err(|error| engine::as_damage(error, &kept))?;
        let facts = engine::read_facts(&path, &meta, &kept)?;

        let replay_error = |sequence: u64| {
            let folder = path.clone();
            move |error: E| StoreError::Replay { folder, sequence, source: error.into() }
        };
        let snapshots = path.join("snapshots");
        if let Some(sequence) = facts.snapshot {
            snapshot::read(&snapshots, sequence, |chunk| {
                visit(Replayed::Chunk(chunk)).map_err(replay_error(sequence))
            })?
            .map_err(damaged)?;
        }
        let reader = Reader {
            folder: &path,
            kept: &kept,
            tree: &journal,
            begin: facts.snapshot.unwrap_or(0),
            acknowledged: acknowledged.sequence,
        };
        let end = reader.run(|sequence, record| {
            visit(Replayed::Record { sequence, record }).map_err(replay_error(sequence))
        })?;
        if facts.incarnation < acknowledged.incarnation {
            return Err(damaged(format!(
                "it knows {} starts, but {} were told",
                facts.incarnation, acknowledged.incarnation
            )));
        }
        let incarnation = facts
            .incarnation
            .checked_add(1)
            .ok_or_else(|| damaged("it was started more often than it can count".to_owned()))?;

        let db_path = store.join("db");
        let db_file = File::open(&db_path).map_err(StoreError::file("open", &db_path))?;
        let mut opened = Self {
            db,
            journal,
            blobs,
            meta,
            db_path,
            db_file,
            sync: options.sync,
            mark,
            acknowledged: Acknowledged { sequence: end.last_sequence, incarnation },
            snapshots,
            snapshot_sequence: facts.snapshot,
            tail_bytes: end.bytes,
            begun_bytes: 0,
            pruned: false,
            space,
            ballast,
            failed: None,
            path: path.clone(),
            _folder: folder,
        };
        if !end.torn.is_empty() {
            tracing::info!(
                "a commit after sequence {} was cut off before it was acknowledged; removed",
                end.last_sequence
            );
        }
        let token_key = opened.settle(end.torn, facts.token_key)?;
        if let Some(kept) = kept {
            kept::release(&path, &kept)?;
        }
        snapshot::clear_all_but(&opened.snapshots, facts.snapshot)?;
        opened.ballast.take_if_room(&opened.space);
        let recovered = Recovered {
            incarnation,
            token_key: TokenKey::from_bytes(token_key),
            folder_id: facts.folder_id,
            last_sequence: end.last_sequence,
            snapshot_sequence: facts.snapshot,
        };
        Ok((opened, recovered))
    }

    /// Reads small blobs.
    #[must_use]
    pub fn small_blobs(&self) -> SmallBlobs {
        self.blobs.clone()
    }

    /// Makes the new incarnation durable before anyone is told of it, and the key of its tokens,
    /// which is drawn where there is none.
    fn settle(
        &mut self,
        torn: Vec<sled::IVec>,
        token_key: Option<[u8; 16]>,
    ) -> Result<[u8; 16], StoreError> {
        let path = self.path.clone();
        let drawn = token_key.is_none().then(engine::random_bytes).transpose()?;
        guarded(&path, "beginning", || {
            if let Some(key) = &drawn {
                self.meta.set_token_key(key)?;
            }
            parts::remove(&self.journal, torn).map_err(StoreError::engine("beginning", &path))?;
            self.meta.set_incarnation(self.acknowledged.incarnation)?;
            self.make_durable("beginning")
        })?;
        sync_folder(&path.join("sled"))?;
        self.mark.write(self.acknowledged)?;
        Ok(token_key.or(drawn).expect("it is drawn where there is none"))
    }

    fn make_durable(&mut self, doing: &'static str) -> Result<(), StoreError> {
        self.db.flush().map_err(StoreError::engine(doing, &self.path))?;
        self.sync.sync(&self.db_file).map_err(StoreError::file("sync", &self.db_path))
    }

    fn write(&mut self, sequence: u64, commit: &Commit<'_>) -> Result<(), StoreError> {
        let engine = || StoreError::engine("writing a commit", &self.path);
        for (digest, blob) in &commit.small_blobs {
            self.blobs.put(digest, blob).map_err(engine())?;
        }
        let key = sequence.to_be_bytes();
        let entry = sealed::seal(&key, &commit.records);
        parts::put(&self.journal, &key, &entry).map_err(engine())?;
        self.tail_bytes += entry.len() as u64;
        self.make_durable("writing a commit")
    }

    /// Runs one operation unless an earlier one failed; remembers if this one does.
    fn attempt<T>(
        &mut self,
        doing: &'static str,
        operation: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(first) = &self.failed {
            return Err(StoreError::Failed { folder: self.path.clone(), first: first.clone() });
        }
        let path = self.path.clone();
        let done = guarded(&path, doing, || operation(self));
        if let Err(error) = &done {
            self.failed = Some(error.chain());
        }
        done
    }
}

impl Journal for SledJournal {
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, StoreError> {
        check_lengths(commit)?;
        if self.failed.is_none() {
            // Before anything is touched: a full disk is no failure.
            self.space.commit(commit.bytes())?;
        }
        let sequence = self.acknowledged.sequence + 1;
        self.attempt("writing a commit", |journal| {
            journal.write(sequence, commit)?;
            journal.acknowledged.sequence = sequence;
            journal.mark.write(journal.acknowledged)?;
            Ok(sequence)
        })
    }

    fn last_sequence(&self) -> u64 {
        self.acknowledged.sequence
    }

    fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    fn admission(&self) -> Admission {
        let space = self.space.clone();
        Arc::new(move || space.admit())
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        let file = SnapshotFile::create(&self.snapshots, self.acknowledged.sequence)?;
        self.begun_bytes = self.tail_bytes;
        Ok(Box::new(file))
    }

    fn adopt_snapshot(&mut self, sequence: u64) -> Result<(), StoreError> {
        if self.snapshot_sequence.is_some_and(|live| live >= sequence) {
            return Ok(());
        }
        self.attempt("adopting a snapshot", |journal| {
            journal.meta.set_snapshot(sequence)?;
            journal.make_durable("adopting a snapshot")
        })?;
        // From here on nothing needs the old one. What stays is removed at the next start.
        if let Some(old) = self.snapshot_sequence.replace(sequence) {
            let _ = fs::remove_file(snapshot::path(&self.snapshots, old));
        }
        self.tail_bytes -= std::mem::take(&mut self.begun_bytes);
        self.pruned = false;
        self.ballast.take_if_room(&self.space);
        Ok(())
    }

    fn prune(&mut self, entries_max: usize) -> Result<bool, StoreError> {
        let Some(sequence) = self.snapshot_sequence else { return Ok(false) };
        if self.pruned || entries_max == 0 {
            return Ok(!self.pruned);
        }
        self.attempt("removing old entries", |journal| {
            let engine = || StoreError::engine("removing old entries", &journal.path);
            let end = (sequence + 1).to_be_bytes().to_vec();
            let old: Vec<_> = journal
                .journal
                .range(..end)
                .keys()
                .take(entries_max)
                .collect::<sled::Result<_>>()
                .map_err(engine())?;
            let more = old.len() == entries_max;
            for key in old {
                journal.journal.remove(key).map_err(engine())?;
            }
            journal.pruned = !more;
            Ok(more)
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
