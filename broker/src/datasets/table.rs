//! What is in the datasets: chunks by their place, and places by chunk.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gleaner_protocol::{ChunkFile, ChunkId, DatasetId, DatasetManifest, Digest};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The manifests of all datasets. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub struct ChunkTable(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    sets: BTreeMap<DatasetId, Set>,
    /// Where each content stands.
    places: FxHashMap<Digest, SmallVec<[ChunkId; 1]>>,
}

#[derive(Debug)]
struct Set {
    manifest: Arc<DatasetManifest>,
    /// Of all its chunks.
    bytes: u64,
}

impl ChunkTable {
    /// Takes a dataset in.
    pub fn add(&self, dataset: DatasetId, manifest: Arc<DatasetManifest>) {
        let set = Set { manifest: Arc::clone(&manifest), bytes: manifest.bytes() };
        let mut inner = self.write();
        if inner.sets.insert(dataset, set).is_some() {
            return;
        }
        for (chunk, index) in manifest.chunks.iter().zip(0..) {
            inner.places.entry(chunk.digest).or_default().push(ChunkId { dataset, index });
        }
    }

    /// Takes a dataset out.
    pub fn remove(&self, dataset: DatasetId) {
        let mut inner = self.write();
        let Some(Set { manifest, .. }) = inner.sets.remove(&dataset) else { return };
        for chunk in &manifest.chunks {
            if let Some(places) = inner.places.get_mut(&chunk.digest) {
                places.retain(|place| place.dataset != dataset);
                if places.is_empty() {
                    inner.places.remove(&chunk.digest);
                }
            }
        }
    }

    /// What is in a dataset.
    #[must_use]
    pub fn manifest(&self, dataset: DatasetId) -> Option<Arc<DatasetManifest>> {
        self.read().sets.get(&dataset).map(|set| Arc::clone(&set.manifest))
    }

    /// Bytes of all chunks of a dataset; 0 where nothing is known of it.
    pub(crate) fn bytes(&self, dataset: DatasetId) -> u64 {
        self.read().sets.get(&dataset).map_or(0, |set| set.bytes)
    }

    /// All datasets.
    pub(crate) fn ids(&self) -> Vec<DatasetId> {
        self.read().sets.keys().copied().collect()
    }

    /// A chunk as a host gets it.
    #[must_use]
    pub fn chunk(&self, ChunkId { dataset, index }: ChunkId) -> Option<ChunkFile> {
        self.read().sets.get(&dataset)?.manifest.chunk(index)
    }

    /// Where a content stands in all datasets.
    #[must_use]
    pub fn places(&self, content: &Digest) -> SmallVec<[ChunkId; 1]> {
        self.read().places.get(content).cloned().unwrap_or_default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
