//! Datasets that this broker keeps: their names, and what is in them.
//!
//! ```text
//!  data folder
//!  ├── datasets.json   names, owners, and the digests of manifests
//!  └── blobs           manifests and chunks, as any other content
//! ```
//!
//! # Invariants
//! - What was answered is on the disk. A file of names that cannot be read keeps the broker from
//!   starting.
//! - A dataset that was removed keeps its chunks for as long as a job goes on that reads it; nobody
//!   finds it by its name any more.
//! - No id is given twice.
//! - Manifests and chunks of all datasets are named to the collector, and where one of these manifests
//!   cannot be read, no blob is removed.

mod book;
mod table;

pub use book::DatasetsError;
pub use table::ChunkTable;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gleaner_protocol::api::{DatasetRequest, DatasetStatus};
use gleaner_protocol::limits::DATASET_MANIFEST_BYTES_MAX;
use gleaner_protocol::{
    DatasetError, DatasetId, DatasetKind, DatasetManifest, DatasetName, Digest, OwnerName,
    error_chain,
};
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;

use crate::blobs::{BlobError, BlobStore, read_whole};
use crate::limits::DATASETS_MAX;
use crate::wall_clock::utc_ms;
use book::{Book, Record};

/// Why a dataset is not added.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(
        "{owner} has a dataset {name} already, another one: choose another name, or remove that one \
         first (`gleaner dataset remove {name}`)"
    )]
    NameTaken { name: DatasetName, owner: OwnerName },
    #[error("this broker has {DATASETS_MAX} datasets, as many as it can: remove some")]
    Full,
    #[error(
        "it has {mib} MiB, and the datasets of {owner} have {used_mib} of {mib_max} MiB that they may: \
         remove some, or have `dataset_mib` of [limits] raised"
    )]
    TooLarge { owner: OwnerName, mib: u64, used_mib: u64, mib_max: u64 },
    #[error("it cannot be written down: {0}")]
    Disk(#[from] DatasetsError),
}

/// All of them. Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct Datasets {
    /// As it is on the disk.
    book: Arc<RwLock<Arc<Book>>>,
    /// Held while another one is written.
    writing: Arc<Mutex<()>>,
    /// Held by who begins to use a dataset, and by who removes one.
    using: Arc<tokio::sync::Mutex<()>>,
    table: ChunkTable,
    /// Bytes of all datasets of an owner.
    bytes_max: Option<u64>,
}

/// Why a manifest is of no use.
#[derive(Debug, Error)]
pub(crate) enum ManifestError {
    #[error("is not in the store")]
    Missing,
    #[error("is damaged")]
    Damaged(#[source] BlobError),
    #[error("is none")]
    Malformed(#[from] DatasetError),
    /// What the store says of today, and not of the manifest.
    #[error("cannot be read")]
    Store(#[source] BlobError),
}

/// What cannot be found out, because a manifest cannot be read.
#[derive(Debug, Error)]
#[error("the manifest of {0} cannot be read")]
pub(crate) struct LostManifest(DatasetId);

impl Datasets {
    /// The file of names.
    pub(crate) fn path_in(data_folder: &Path) -> PathBuf {
        data_folder.join("datasets.json")
    }

    /// Reads what a data folder has, or begins there.
    pub(crate) async fn open(
        data_folder: &Path,
        blobs: &dyn BlobStore,
    ) -> Result<Self, DatasetsError> {
        let book = Book::open(&Self::path_in(data_folder))?;
        let table = ChunkTable::default();
        for (id, record) in &book.records {
            match read_manifest(blobs, record.manifest).await {
                Ok(manifest) => table.add(*id, Arc::new(manifest)),
                // Agents would be told to drop its chunks.
                Err(ManifestError::Store(error)) => return Err(error.into()),
                Err(why) => tracing::error!(
                    "{id} ({} of {}) cannot be used: its manifest {} {}; remove it, and add it anew",
                    record.name,
                    record.owner,
                    record.manifest,
                    error_chain(&why)
                ),
            }
        }
        Ok(Self {
            bytes_max: None,
            book: Arc::new(RwLock::new(Arc::new(book))),
            writing: Arc::default(),
            using: Arc::default(),
            table,
        })
    }

    /// What is in them.
    pub(crate) fn table(&self) -> &ChunkTable {
        &self.table
    }

    /// As things stand.
    fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the book: on the disk first, then for everybody.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = Book::clone(&self.book());
        let changed = change(&mut book)?;
        book.save()?;
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
        Ok(changed)
    }

    /// Held while somebody begins to use a dataset: none is removed meanwhile.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.using).lock_owned().await
    }

    /// Names a dataset whose manifest and chunks are in the store and stay there. The same dataset under
    /// the same name is the one that is there already. Writes a file.
    pub(crate) fn add(
        &self,
        request: &DatasetRequest,
        manifest: DatasetManifest,
    ) -> Result<DatasetId, Refusal> {
        let DatasetRequest { name, owner, manifest: digest } = request;
        let record = Record {
            name: name.clone(),
            owner: owner.clone(),
            manifest: *digest,
            made_ms: utc_ms(),
            removed: false,
        };
        let id = self.change(|book| {
            if let Some((id, known)) = book.named(name).find(|(_, of)| of.owner == *owner) {
                let taken = Refusal::NameTaken { name: name.clone(), owner: owner.clone() };
                return if known.manifest == *digest { Ok(id) } else { Err(taken) };
            }
            if book.records.len() >= DATASETS_MAX {
                return Err(Refusal::Full);
            }
            let (used, bytes) = (self.bytes_of(owner), manifest.bytes());
            if self.bytes_max.is_some_and(|most| used.saturating_add(bytes) > most) {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                let (owner, mib_max) = (owner.clone(), self.bytes_max.unwrap_or(0) >> 20);
                let (mib, used_mib) = (mib(bytes), mib(used));
                return Err(Refusal::TooLarge { owner, mib, used_mib, mib_max });
            }
            book.last += 1;
            let id = DatasetId::new(book.last);
            book.records.insert(id, record);
            Ok(id)
        })?;
        self.table.add(id, Arc::new(manifest));
        Ok(id)
    }

    /// Takes a dataset's name away, and all of it where it is not `in_use`. Writes a file.
    pub(crate) fn remove(&self, id: DatasetId, in_use: bool) -> Result<(), Refusal> {
        self.change(|book| {
            match book.records.get_mut(&id) {
                Some(record) if in_use => record.removed = true,
                _ => drop(book.records.remove(&id)),
            }
            Ok(())
        })?;
        if !in_use {
            self.table.remove(id);
        }
        Ok(())
    }

    /// Those that were removed and kept for jobs.
    pub(crate) fn kept_for_jobs(&self) -> Vec<DatasetId> {
        let book = self.book();
        book.records.iter().filter(|(_, of)| of.removed).map(|(id, _)| *id).collect()
    }

    /// With as many MiB for each owner; any number where it is 0.
    pub(crate) fn with_limit(self, mib: u64) -> Self {
        let bytes_max = (mib > 0).then(|| mib.saturating_mul(1 << 20));
        Self { bytes_max, ..self }
    }

    /// Bytes that all datasets of an owner have, those included that are kept for jobs; and how many they
    /// may, where that is limited.
    pub(crate) fn room_of(&self, owner: &OwnerName) -> (u64, Option<u64>) {
        (self.bytes_of(owner), self.bytes_max)
    }

    fn bytes_of(&self, owner: &OwnerName) -> u64 {
        let book = self.book();
        let records = book.records.iter().filter(|(_, record)| record.owner == *owner);
        records.map(|(id, _)| self.table.bytes(*id)).sum()
    }

    /// Ids of datasets of this name, of one owner or of all.
    pub(crate) fn named(&self, name: &DatasetName, owner: Option<&OwnerName>) -> Vec<DatasetId> {
        let book = self.book();
        let of = |record: &Record| owner.is_none_or(|owner| *owner == record.owner);
        book.named(name).filter(|(_, record)| of(record)).map(|(id, _)| id).collect()
    }

    /// Ids of all datasets of one owner, or of all.
    pub(crate) fn all(&self, owner: Option<&OwnerName>) -> Vec<DatasetId> {
        let book = self.book();
        let of = |record: &Record| owner.is_none_or(|owner| *owner == record.owner);
        let shown = book.records.iter().filter(|(_, record)| !record.removed && of(record));
        shown.map(|(id, _)| *id).collect()
    }

    /// Whether one is there under some name, for an owner or for all.
    pub(crate) fn is_there(&self, id: DatasetId, owner: Option<&OwnerName>) -> bool {
        let book = self.book();
        let of = |record: &&Record| owner.is_none_or(|owner| *owner == record.owner);
        book.records.get(&id).filter(|record| !record.removed).filter(of).is_some()
    }

    /// How one stands, but for its copies.
    pub(crate) fn status(&self, id: DatasetId) -> Option<DatasetStatus> {
        let book = self.book();
        let record = book.records.get(&id)?;
        let manifest = self.table.manifest(id);
        let volume = manifest.as_ref().and_then(|of| match &of.kind {
            DatasetKind::Bricks(volume) => Some(volume.clone()),
            DatasetKind::Ranges { .. } | DatasetKind::Files { .. } => None,
        });
        let of = manifest.as_deref();
        Some(DatasetStatus {
            id,
            name: record.name.clone(),
            owner: record.owner.clone(),
            manifest: record.manifest,
            made_ms: record.made_ms,
            kind: of.map_or("damaged", |of| of.kind.as_str()).to_owned(),
            size: volume.as_ref().map(|of| of.size),
            steps: volume.as_ref().map(|of| of.steps),
            chunks: of.map_or(0, DatasetManifest::work_chunks),
            chunk_bytes: of.map_or(0, DatasetManifest::longest),
            bytes: of.map_or(0, DatasetManifest::bytes),
            copies: of.map_or(0, |of| of.copies),
            copied: Vec::new(),
        })
    }

    /// Tells the digests of all manifests and chunks.
    pub(crate) fn each_name(&self, mut tell: impl FnMut(&Digest)) -> Result<(), LostManifest> {
        for (id, record) in &self.book().records {
            tell(&record.manifest);
            let manifest = self.table.manifest(*id).ok_or(LostManifest(*id))?;
            manifest.chunks.iter().for_each(|chunk| tell(&chunk.digest));
        }
        Ok(())
    }
}

/// Reads a manifest that is in the store.
pub(crate) async fn read_manifest(
    blobs: &dyn BlobStore,
    digest: Digest,
) -> Result<DatasetManifest, ManifestError> {
    let read = read_whole(blobs, digest, DATASET_MANIFEST_BYTES_MAX).await;
    let content = read.map_err(|error| match error {
        BlobError::Damaged { .. } | BlobError::TooLarge { .. } => ManifestError::Damaged(error),
        error => ManifestError::Store(error),
    })?;
    Ok(DatasetManifest::decode(&content.ok_or(ManifestError::Missing)?)?)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Chunk;

    use super::*;
    use crate::blobs::LocalBlobs;

    struct Stage {
        folder: tempfile::TempDir,
        blobs: LocalBlobs,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let blobs = LocalBlobs::open(&folder.path().join("blobs"), 1 << 20).expect("opened");
            Self { folder, blobs }
        }

        async fn open(&self) -> Datasets {
            Datasets::open(self.folder.path(), &self.blobs).await.expect("sound")
        }

        /// A request for a dataset of one chunk, and its manifest, which is in the store.
        fn request(&self, name: &str, owner: &str) -> (DatasetRequest, DatasetManifest) {
            let content = format!("chunk of {name} of {owner}");
            let digest = Digest::of(content.as_bytes());
            let chunk = Chunk { digest, bytes: content.len() as u64, bounds: None };
            let kind = DatasetKind::Ranges { name: "file".into() };
            let manifest = DatasetManifest { kind, chunks: vec![chunk], copies: 2 };
            let bytes = manifest.encode();
            let blob = self.blobs.take(manifest.digest());
            blob.and_then(|blob| blob.add(&bytes)?.finish()).expect("stored");
            let request = DatasetRequest {
                name: DatasetName::new(name).expect("plain"),
                owner: OwnerName::new(owner).expect("plain"),
                manifest: manifest.digest(),
            };
            (request, manifest)
        }
    }

    #[tokio::test]
    async fn names_are_each_owners_own_and_outlive_a_restart() {
        let stage = Stage::new();
        let datasets = stage.open().await;
        let (jet, manifest) = stage.request("jet", "anna");
        let id = datasets.add(&jet, manifest.clone()).expect("added");
        assert_eq!(datasets.add(&jet, manifest.clone()).expect("the same"), id);
        let (other, of_other) = stage.request("jet", "ben");
        let second = datasets.add(&other, of_other.clone()).expect("another owner's");
        assert_ne!(id, second);
        let another = DatasetRequest { manifest: other.manifest, ..jet.clone() };
        let told = datasets.add(&another, of_other).expect_err("taken").to_string();
        assert!(told.contains("anna has a dataset jet already"), "{told}");
        drop(datasets);
        let datasets = stage.open().await;
        assert_eq!(datasets.named(&jet.name, Some(&jet.owner)), [id]);
        assert_eq!(datasets.named(&jet.name, None), [id, second]);
        let status = datasets.status(id).expect("there");
        assert_eq!((status.chunks, status.copies, status.kind.as_str()), (1, 2, "ranges"));
        assert!(datasets.is_there(id, None) && !datasets.is_there(id, Some(&other.owner)));
    }

    #[tokio::test]
    async fn one_that_jobs_use_loses_its_name_first_and_its_chunks_last() {
        let stage = Stage::new();
        let datasets = stage.open().await;
        let (jet, manifest) = stage.request("jet", "anna");
        let id = datasets.add(&jet, manifest.clone()).expect("added");
        datasets.remove(id, true).expect("written");
        let datasets = stage.open().await;
        assert_eq!((datasets.all(None), datasets.kept_for_jobs()), (vec![], vec![id]));
        let mut named = Vec::new();
        datasets.each_name(|digest| named.push(*digest)).expect("readable");
        assert_eq!(named, [jet.manifest, manifest.chunks[0].digest]);
        assert!(datasets.table().manifest(id).is_some());
        let again = datasets.add(&jet, manifest).expect("the name is free");
        assert!(again > id);
        datasets.remove(id, false).expect("written");
        assert!(datasets.table().manifest(id).is_none());
        assert_eq!((datasets.all(None), datasets.kept_for_jobs()), (vec![again], vec![]));
    }

    #[tokio::test]
    async fn a_manifest_that_is_lost_is_told_and_nothing_else_is_harmed() {
        let stage = Stage::new();
        let (jet, manifest) = stage.request("jet", "anna");
        let id = stage.open().await.add(&jet, manifest).expect("added");
        let digits = jet.manifest.to_string();
        let path = stage.folder.path().join("blobs").join(&digits[..2]).join(&digits[2..]);
        std::fs::write(&path, "something else").expect("written");
        let datasets = stage.open().await;
        assert_eq!(datasets.status(id).expect("there").kind, "damaged");
        assert!(datasets.each_name(|_| ()).is_err(), "no blob may be removed");
        datasets.remove(id, false).expect("written");
        datasets.each_name(|_| ()).expect("it is gone");
        let book = Datasets::path_in(stage.folder.path());
        let text =
            std::fs::read_to_string(&book).expect("read").replace("\"last\": 1", "\"last\": 2");
        std::fs::write(&book, text).expect("written");
        let Err(error) = Datasets::open(stage.folder.path(), &stage.blobs).await else {
            panic!("it is damaged")
        };
        assert!(error.to_string().contains("is damaged"), "{error}");
    }
}
