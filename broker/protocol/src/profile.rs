//! What is known of a job's workunits before they run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DatasetId, HostKind};

/// What a submitter, or a predictor, knows beforehand of the workunits of a job. Policies plan
/// with it; no rule trusts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Expected run time of one workunit on a whole core of each kind of host, in microseconds.
    /// A kind that is not named cannot run it, where any is named.
    pub run_time_us: BTreeMap<HostKind, u64>,
    /// What its workunits read.
    pub reads: Option<Reads>,
    /// The interactive session that the job is a frame of: frames of one session are shown in
    /// their order.
    pub session: Option<u64>,
    /// When all of it is to be done, in milliseconds after its submission.
    pub due_ms: Option<u64>,
    /// Most workunits of it that run at once; all of them where not given.
    pub parallel: Option<u32>,
    /// A replica keeps what it did up to its last checkpoint; these are so far apart, in
    /// milliseconds of its run time.
    pub checkpoint_ms: Option<u64>,
}

/// A dataset of which workunit `i` of a job reads chunk `i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Which.
    pub dataset: DatasetId,
    /// Size of one chunk, in bytes.
    pub chunk_bytes: u64,
}

/// A part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId {
    /// Of which dataset.
    pub dataset: DatasetId,
    /// Its place in it, from 0.
    pub index: u32,
}
