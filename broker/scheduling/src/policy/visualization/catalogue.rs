//! Datasets and their chunks by small numbers.

use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{ChunkId, DatasetId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Number of a chunk of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChunkIx(u32);

impl ChunkIx {
    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("CHUNKS_MAX fits u32"))
    }
}

/// Number of a dataset, as split into chunks of one size, of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetIx(u32);

impl SetIx {
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("CHUNKS_MAX fits u32"))
    }

    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}

/// A dataset as jobs name it, or a run of its chunks: a step of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dataset {
    /// Its name.
    pub(crate) id: DatasetId,
    /// The place of its first chunk in the whole dataset.
    pub(crate) start: u32,
    /// Its first chunk; the others follow.
    pub(crate) first: ChunkIx,
    /// How many chunks it has.
    pub(crate) chunks: u32,
    /// The size of each.
    pub(crate) chunk_bytes: u64,
}

/// All datasets that jobs ever named.
///
/// # Invariants
/// - The chunks of all datasets are numbered without gaps, in the order of their naming.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    by_reads: FxHashMap<(DatasetId, u32, u32, u64), SetIx>,
    /// In the order of their naming.
    by_id: FxHashMap<DatasetId, SmallVec<[SetIx; 2]>>,
    listed: Vec<Dataset>,
    chunks: usize,
}

impl Catalogue {
    /// How many chunks there are.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks
    }

    pub(crate) fn get(&self, set: SetIx) -> &Dataset {
        &self.listed[set.get()]
    }

    /// The dataset that a job reads, entered where it is new. One that is split in another way
    /// is another one.
    pub(crate) fn of_job(&mut self, spec: &JobSpec) -> Option<SetIx> {
        let reads = spec.profile.reads?;
        let chunks = spec.workunits.len();
        let key = (reads.dataset, reads.first, chunks, reads.chunk_bytes);
        if let Some(set) = self.by_reads.get(&key) {
            return Some(*set);
        }
        let set = SetIx::from_index(self.listed.len());
        let (id, start, chunk_bytes) = (reads.dataset, reads.first, reads.chunk_bytes);
        let first = ChunkIx::from_index(self.chunks);
        self.listed.push(Dataset { id, start, first, chunks, chunk_bytes });
        self.chunks += chunks as usize;
        self.by_reads.insert(key, set);
        self.by_id.entry(id).or_default().push(set);
        Some(set)
    }

    /// A chunk by the number of the set that named it last, and its place there, where a job has named
    /// its dataset.
    pub(crate) fn find(&self, chunk: ChunkId) -> Option<(SetIx, u32)> {
        let sets = self.by_id.get(&chunk.dataset)?;
        sets.iter().rev().find_map(|set| {
            let Dataset { start, chunks, .. } = *self.get(*set);
            let index = chunk.index.checked_sub(start).filter(|index| *index < chunks)?;
            Some((*set, index))
        })
    }

    /// The chunk that workunit `index` of a job on this dataset reads, by its place in all of it.
    pub(crate) fn id(&self, set: SetIx, index: u32) -> ChunkId {
        let Dataset { id, start, .. } = *self.get(set);
        ChunkId { dataset: id, index: start + index }
    }

    /// The chunk that workunit `index` of a job on this dataset reads.
    pub(crate) fn chunk(&self, set: SetIx, index: u32) -> ChunkIx {
        ChunkIx(self.get(set).first.0 + index)
    }
}
