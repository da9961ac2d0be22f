//! What is written down: a line for each ended replica and each decided workunit.
//!
//! ```text
//!  a1b2c3d4 {"ended":{"job":17,"index":3,"owner":"eve","host":"render042",…,"output":123}}
//!  e5f6a7b8 {"decided":{"job":17,"index":3,"output":123}}
//! ```
//! The first word is the beginning of the JSON's BLAKE3.

use gleaner_protocol::api::ReplicaOutcome;
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, HostName, JobId, OwnerName, ProjectName};
use serde::{Deserialize, Serialize};

/// Something that the accounts are made from. Fields and variants may be added; new fields have
/// defaults, and a reader passes over variants that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageRecord {
    /// A replica has ended.
    Ended(EndedReplica),
    /// A workunit is decided: its counted replicas with this output are accepted.
    Decided {
        /// Its job.
        job: JobId,
        /// Which of the job's workunits.
        index: u32,
        /// The accepted output.
        output: OutputMark,
    },
    /// What CPU time one took that the broker had ended, and so has recorded before its agent could say:
    /// nothing else of it counts.
    Took(EndedReplica),
}

/// A replica that has ended, however it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedReplica {
    /// Its job.
    pub job: JobId,
    /// Which of the job's workunits.
    pub index: u32,
    /// Whose job.
    pub owner: OwnerName,
    /// The job's project, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// Where it ran.
    pub host: HostName,
    /// Whose host, where that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_owner: Option<OwnerName>,
    /// The job's lane.
    pub lane: Lane,
    /// When its lease began, in milliseconds of UTC.
    pub began_ms: u64,
    /// When its lease ended, in milliseconds of UTC.
    pub ended_ms: u64,
    /// For how long it had a core, times its share of it, in microseconds.
    pub slot_us: u64,
    /// CPU time as its agent reported it, in microseconds; 0 where nobody said.
    pub cpu_us: u64,
    /// Most memory that it took, in MiB, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_mib: Option<u64>,
    /// How it ended.
    pub outcome: ReplicaOutcome,
    /// Its output, where that is a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputMark>,
}

/// The beginning of an output's digest: enough to tell two outputs of one workunit apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputMark(u64);

impl OutputMark {
    /// That of an output.
    #[must_use]
    pub fn of(output: Digest) -> Self {
        let first = output.as_bytes().first_chunk().expect("a digest has more bytes");
        Self(u64::from_le_bytes(*first))
    }
}

/// Adds a record to lines.
pub(super) fn write_line(record: &UsageRecord, lines: &mut Vec<u8>) {
    let json = serde_json::to_vec(record).expect("our own types serialise");
    lines.extend(check_of(&json));
    lines.push(b' ');
    lines.extend(json);
    lines.push(b'\n');
}

/// The JSON of a line without its end, if that is what was written.
pub(super) fn json_of(line: &[u8]) -> Option<&[u8]> {
    let (check, json) = line.split_at_checked(CHECK_BYTES)?;
    let json = json.strip_prefix(b" ")?;
    (check == check_of(json)).then_some(json)
}

const CHECK_BYTES: usize = 8;

fn check_of(json: &[u8]) -> [u8; CHECK_BYTES] {
    let digest = Digest::of(json);
    let mut check = [0; CHECK_BYTES];
    for (pair, byte) in check.chunks_exact_mut(2).zip(digest.as_bytes()) {
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_was_written_or_nothing() {
        let output = OutputMark::of(Digest::of(b"output"));
        let record = UsageRecord::Decided { job: JobId::new(17), index: 3, output };
        let mut line = Vec::new();
        write_line(&record, &mut line);
        let text = String::from_utf8(line.clone()).expect("text");
        assert!(text.contains(r#" {"decided":{"job":17,"index":3,"output":"#), "{text}");
        let line = line.strip_suffix(b"\n").expect("a whole line");
        let json = json_of(line).expect("as it was written");
        assert_eq!(serde_json::from_slice::<UsageRecord>(json).expect("ours"), record);
        for at in [0, 7, 8, 20] {
            let mut other = line.to_vec();
            other[at] ^= 1;
            assert_eq!(json_of(&other), None, "{at}");
        }
        assert_eq!(json_of(b"short"), None);
    }
}
