//! Datasets: immutable sets of chunks, and what their manifests say.
//!
//! A manifest is a content as any other: a version byte, then postcard. Its digest names the dataset.
//!
//! # Invariants
//! - What is decoded has been checked: it has chunks, as many as its kind says, and none is too large.
//! - Chunks that workunits read come first, in order; coarse ones come after all of them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{BLOB_BYTES_MAX, COPIES_MAX, DATASET_CHUNKS_MAX, DATASET_STEPS_MAX};
use crate::output::check_file_name;
use crate::{Digest, ManifestError};

/// Version of manifests, and their first byte.
const MANIFEST_VERSION: u8 = 1;

/// The name under which a kernel's specification knows the chunk that is read.
pub const CHUNK_FILE: &str = "chunk.nrrd";

/// What a dataset consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetManifest {
    /// What its chunks are.
    pub kind: DatasetKind,
    /// The chunks, in order.
    pub chunks: Vec<Chunk>,
    /// Hosts that are to have a copy of each.
    pub copies: u8,
}

/// What the chunks of a dataset are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DatasetKind {
    /// Bricks of a volume, or of volumes of one size step by step; then a coarse volume of each step.
    Bricks(BrickedVolume),
    /// Parts of a file, one after the other.
    Ranges {
        /// The file's name.
        name: String,
    },
    /// Files as they are.
    Files {
        /// Their names.
        names: Vec<String>,
    },
}

/// A volume in bricks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrickedVolume {
    /// Voxels along x, y, z.
    pub size: [u32; 3],
    /// How far they are apart.
    pub spacing: [f64; 3],
    /// Bricks along x, y, z; x fastest.
    pub bricks: [u32; 3],
    /// Steps of time, each a volume.
    pub steps: u32,
}

/// A part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// The smallest and the largest value in it, where it has values.
    pub bounds: Option<[f32; 2]>,
}

/// A chunk as a host gets it: all that it takes to fetch it, and the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFile {
    /// The file's name.
    pub name: String,
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// Why bytes are no manifest of a dataset.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// Written by another release, or something else.
    #[error(
        "it is no manifest of version {MANIFEST_VERSION}: make it with the broker's own release"
    )]
    Version,
    /// Not what was expected.
    #[error("it is malformed")]
    Malformed(#[from] postcard::Error),
    /// Something follows.
    #[error("{0} bytes follow the manifest")]
    Trailing(usize),
    /// No chunks, or too many.
    #[error(
        "it has {0} chunks, must have from 1 to {DATASET_CHUNKS_MAX}: make chunks larger (--chunk-mib)"
    )]
    Chunks(usize),
    /// Not as many as its kind says.
    #[error("it has {found} chunks and its kind has {expected}")]
    Count {
        /// What its kind says.
        expected: u64,
        /// What is there.
        found: usize,
    },
    /// Too many steps.
    #[error("it has {0} steps, must have from 1 to {DATASET_STEPS_MAX}")]
    Steps(u32),
    /// One chunk is too large.
    #[error("chunk {index} has {bytes} bytes, at most {BLOB_BYTES_MAX} are kept: split it")]
    LongChunk {
        /// Which.
        index: usize,
        /// Its length.
        bytes: u64,
    },
    /// No copies, or too many.
    #[error("copies is {0}, must be from 1 to {COPIES_MAX}")]
    Copies(u8),
    /// A name that is none of a plain file.
    #[error(transparent)]
    Name(#[from] ManifestError),
}

impl DatasetKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Bricks(_) => "bricks",
            Self::Ranges { .. } => "ranges",
            Self::Files { .. } => "files",
        }
    }
}

impl BrickedVolume {
    /// Bricks of one step.
    #[must_use]
    pub fn bricks_of_step(&self) -> u64 {
        self.bricks.iter().map(|count| u64::from(*count)).product()
    }
}

impl DatasetManifest {
    /// Its stored form.
    ///
    /// # Panics
    /// If it cannot be serialised, which our own types always can.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![MANIFEST_VERSION]).expect("our own types serialise")
    }

    /// Reads and checks a stored form.
    ///
    /// # Errors
    /// See [`DatasetError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DatasetError> {
        let (&version, body) = bytes.split_first().ok_or(DatasetError::Version)?;
        if version != MANIFEST_VERSION {
            return Err(DatasetError::Version);
        }
        let (manifest, rest): (Self, _) = postcard::take_from_bytes(body)?;
        if !rest.is_empty() {
            return Err(DatasetError::Trailing(rest.len()));
        }
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks that it is one.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), DatasetError> {
        let found = self.chunks.len();
        if !(1..=DATASET_CHUNKS_MAX).contains(&found) {
            return Err(DatasetError::Chunks(found));
        }
        if !(1..=COPIES_MAX).contains(&self.copies) {
            return Err(DatasetError::Copies(self.copies));
        }
        let expected = match &self.kind {
            DatasetKind::Bricks(volume) => {
                if !(1..=DATASET_STEPS_MAX).contains(&volume.steps) {
                    return Err(DatasetError::Steps(volume.steps));
                }
                let bricks = volume
                    .bricks
                    .iter()
                    .try_fold(1_u64, |product, count| product.checked_mul(u64::from(*count)));
                let each = bricks.unwrap_or(u64::MAX).saturating_add(1);
                each.saturating_mul(u64::from(volume.steps))
            }
            DatasetKind::Ranges { name } => {
                check_file_name(name)?;
                found as u64
            }
            DatasetKind::Files { names } => {
                names.iter().try_for_each(|name| check_file_name(name))?;
                names.len() as u64
            }
        };
        if expected != found as u64 {
            return Err(DatasetError::Count { expected, found });
        }
        match self.chunks.iter().position(|chunk| chunk.bytes > BLOB_BYTES_MAX) {
            Some(index) => Err(DatasetError::LongChunk { index, bytes: self.chunks[index].bytes }),
            None => Ok(()),
        }
    }

    /// The name of the dataset.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.encode())
    }

    /// Chunks that workunits read: the first so many.
    #[must_use]
    pub fn work_chunks(&self) -> u32 {
        let all = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        match &self.kind {
            DatasetKind::Bricks(volume) => all.saturating_sub(volume.steps),
            DatasetKind::Ranges { .. } | DatasetKind::Files { .. } => all,
        }
    }

    /// Bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// The longest chunk that a workunit reads.
    #[must_use]
    pub fn longest(&self) -> u64 {
        let work = self.work_chunks() as usize;
        self.chunks[..work].iter().map(|chunk| chunk.bytes).max().unwrap_or(0)
    }

    /// A chunk as a host gets it.
    #[must_use]
    pub fn chunk(&self, index: u32) -> Option<ChunkFile> {
        let &Chunk { digest, bytes, .. } = self.chunks.get(index as usize)?;
        let name = match &self.kind {
            DatasetKind::Bricks(_) => format!("brick-{index:06}.nrrd"),
            DatasetKind::Ranges { .. } => format!("chunk-{index:06}"),
            DatasetKind::Files { names } => names.get(index as usize)?.clone(),
        };
        Some(ChunkFile { name, digest, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(content: &[u8]) -> Chunk {
        let (digest, bytes) = (Digest::of(content), content.len() as u64);
        Chunk { digest, bytes, bounds: Some([0.0, 1.0]) }
    }

    fn bricks(steps: u32, chunks: usize) -> DatasetManifest {
        let (size, spacing, bricks) = ([9, 9, 9], [1.0; 3], [2, 1, 1]);
        DatasetManifest {
            kind: DatasetKind::Bricks(BrickedVolume { size, spacing, bricks, steps }),
            chunks: (0..chunks).map(|at| chunk(&[at as u8])).collect(),
            copies: 2,
        }
    }

    #[test]
    fn it_comes_back_under_its_digest() {
        let manifest = bricks(2, 6);
        let bytes = manifest.encode();
        assert_eq!(DatasetManifest::decode(&bytes).expect("our own"), manifest);
        assert_eq!(manifest.digest(), Digest::of(&bytes));
        assert_eq!((manifest.work_chunks(), manifest.bytes()), (4, 6));
        let file = manifest.chunk(3).expect("there");
        assert_eq!((file.name.as_str(), file.digest), ("brick-000003.nrrd", Digest::of(&[3])));
        assert_eq!(manifest.chunk(6), None);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_what_is_wrong() {
        let told = |manifest: &DatasetManifest| match DatasetManifest::decode(&manifest.encode()) {
            Ok(_) => panic!("{manifest:?} is none"),
            Err(error) => error.to_string(),
        };
        assert!(told(&bricks(2, 5)).contains("has 5 chunks and its kind has 6"));
        assert!(told(&bricks(0, 5)).contains("0 steps"));
        assert!(told(&DatasetManifest { chunks: Vec::new(), ..bricks(1, 3) }).contains("0 chunks"));
        assert!(told(&DatasetManifest { copies: 0, ..bricks(1, 3) }).contains("copies is 0"));
        let mut long = bricks(1, 3);
        long.chunks[1].bytes = BLOB_BYTES_MAX + 1;
        assert!(told(&long).contains("chunk 1 has 1073741825 bytes"));
        let names = vec!["../x".into()];
        let files = DatasetKind::Files { names };
        let files = DatasetManifest { kind: files, chunks: vec![chunk(b"x")], copies: 1 };
        assert!(told(&files).contains("plain file name"));
        let mut huge = bricks(2, 6);
        let DatasetKind::Bricks(volume) = &mut huge.kind else { panic!("bricks") };
        volume.bricks = [u32::MAX; 3];
        assert!(told(&huge).contains("its kind has 18446744073709551615"));
        let bytes = bricks(1, 3).encode();
        assert!(matches!(DatasetManifest::decode(&[]), Err(DatasetError::Version)));
        assert!(matches!(DatasetManifest::decode(b"x"), Err(DatasetError::Version)));
        let long = [&bytes[..], &[0]].concat();
        assert!(matches!(DatasetManifest::decode(&long), Err(DatasetError::Trailing(1))));
        let short = &bytes[..bytes.len() - 1];
        assert!(matches!(DatasetManifest::decode(short), Err(DatasetError::Malformed(_))));
    }
}
