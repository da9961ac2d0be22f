//! `/v1/datasets`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DatasetId, DatasetName, Digest, HostName, OwnerName};

/// Body of `POST /v1/datasets`: a manifest gets a name. It and its chunks were uploaded before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetRequest {
    /// Its name, which no other dataset of the owner has.
    pub name: DatasetName,
    /// Whose it is; a submitter's own, whatever stands here.
    pub owner: OwnerName,
    /// The manifest's digest.
    pub manifest: Digest,
}

/// A dataset: an element of `GET /v1/datasets`, and the answer to the other requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetStatus {
    /// What jobs call it.
    pub id: DatasetId,
    /// Its name.
    pub name: DatasetName,
    /// Whose it is.
    pub owner: OwnerName,
    /// The manifest's digest.
    pub manifest: Digest,
    /// When it was made, in milliseconds of UTC.
    pub made_ms: u64,
    /// What its chunks are: `bricks`, `ranges` or `files`.
    pub kind: String,
    /// Voxels along x, y, z, where it is a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[u32; 3]>,
    /// Steps of time, where it is a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Chunks that workunits read.
    pub chunks: u32,
    /// The longest of these, in bytes.
    pub chunk_bytes: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Hosts that are to have a copy of each chunk.
    pub copies: u8,
    /// Chunks by how many connected hosts have a copy: none, one, and so on.
    pub copied: Vec<u32>,
}

/// An element of `GET /v1/datasets/{name}/chunks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChunkStatus {
    /// Its place in the dataset.
    pub index: u32,
    /// The name of its file.
    pub name: String,
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// The smallest and the largest value in it, where it has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<[f32; 2]>,
    /// Hosts that have a copy, connected or not.
    pub hosts: Vec<HostName>,
}
