//! Bodies of the broker's HTTP interface under `/v1`. JSON.

use serde::{Deserialize, Serialize};

use crate::control::Verdict;
use crate::job::Lane;
use crate::{
    Digest, Epoch, GpuInfo, HostKind, HostName, JobId, KernelName, Origin, OwnerName, WorkunitId,
};

/// Answer to `POST /v1/jobs`: the job is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its id.
    pub job: JobId,
    /// How many workunits it has.
    pub workunits: u32,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// No replica was given out yet.
    Queued,
    /// Under way.
    Running,
    /// Every workunit is decided.
    Completed,
    /// Every workunit is decided or was given up, and at least one was.
    Failed,
    /// Cancelled by its submitter.
    Cancelled,
}

impl JobState {
    /// Whether nothing more will change.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// `GET /v1/jobs/{job}`, and an element of `GET /v1/jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its id.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: OwnerName,
    /// Its lane.
    pub lane: Lane,
    /// The kernel that does it, where it has a specification: its workunits are parts of one result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<KernelName>,
    /// Where it stands.
    pub state: JobState,
    /// Workunits it has.
    pub workunits: u32,
    /// Of these, decided.
    pub decided: u32,
    /// Of these, given up.
    pub failed: u32,
    /// Of these, begun and not ended.
    pub open: u32,
    /// Replicas that run or are about to.
    pub pending: u32,
    /// What has happened to its replicas.
    pub replicas: ReplicaCounts,
}

/// Counts over the replicas of a job or of a broker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplicaCounts {
    /// Given to a host.
    pub leased: u64,
    /// Reported with an output that counted.
    pub reported: u64,
    /// Reported as failed.
    pub failed: u64,
    /// Given back before they were done.
    pub released: u64,
    /// Taken back by the broker.
    pub aborted: u64,
    /// Not heard of in time.
    pub expired: u64,
    /// Counted, and not equal to the canonical output.
    pub disagreed: u64,
    /// CPU time of those that agreed with the canonical output, in microseconds.
    pub accepted_cpu_us: u64,
}

impl ReplicaCounts {
    /// Both together, each up to the most that fits.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            leased: self.leased.saturating_add(other.leased),
            reported: self.reported.saturating_add(other.reported),
            failed: self.failed.saturating_add(other.failed),
            released: self.released.saturating_add(other.released),
            aborted: self.aborted.saturating_add(other.aborted),
            expired: self.expired.saturating_add(other.expired),
            disagreed: self.disagreed.saturating_add(other.disagreed),
            accepted_cpu_us: self.accepted_cpu_us.saturating_add(other.accepted_cpu_us),
        }
    }
}

/// An element of `GET /v1/jobs/{job}/results?from=N&limit=N`, in order of index; only workunits
/// that have ended. A page may be shorter than its limit; the list ends where one is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkunitResult {
    /// Which workunit.
    pub index: u32,
    /// Its output, or why there is none.
    #[serde(flatten)]
    pub result: ResultState,
}

/// How a workunit ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum ResultState {
    /// Decided.
    Decided {
        /// Digest of the canonical output.
        digest: Digest,
        /// Its files.
        files: Vec<ResultFile>,
    },
    /// Given up.
    Failed {
        /// Why.
        reason: String,
    },
    /// Decided, but the disk no longer has its content. The same work submitted once more mends
    /// it: contents are kept under their digests.
    Damaged {
        /// Digest of the canonical output.
        digest: Digest,
        /// What is wrong with it.
        reason: String,
    },
}

/// A file of a canonical output. Fetch its content from
/// `GET /v1/jobs/{job}/results/{index}/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its content, where it is short UTF-8 text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// An element of `GET /v1/hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub host: HostName,
    /// Which side it is on.
    pub origin: Origin,
    /// Whose it is.
    pub owner: Option<OwnerName>,
    /// What hosts like it are called, where its agent was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<HostKind>,
    /// Whether its agent is connected.
    pub connected: bool,
    /// Cores it could give at most.
    pub cores: u32,
    /// Replicas it may run now.
    pub slots: u32,
    /// Replicas it holds now.
    pub running: u32,
    /// Its epoch as last announced.
    pub epoch: Epoch,
    /// Outputs of it that counted.
    pub reported: u64,
    /// Of these, not equal to the canonical output.
    pub disagreed: u64,
    /// Replicas it gave back.
    pub released: u64,
    /// What on it needs a person, so that nothing runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    /// Why it gives nothing, as its farm's monitor said when it closed it, since the broker's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// The graphics processor that computes kernels on it, where its owner gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuInfo>,
}

/// Answer to `GET /v1/explain/{job}` and `GET /v1/explain/{job}/{index}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What is explained.
    pub subject: String,
    /// The answer in one sentence.
    pub summary: String,
    /// Each reason.
    pub reasons: Vec<Reason>,
}

/// One reason why something waits, runs or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// For programs: a stable word.
    pub code: String,
    /// For people.
    pub text: String,
}

/// A line of the event stream `GET /v1/events` (server-sent events, one JSON object each).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProgressEvent {
    /// A job was accepted.
    JobAccepted {
        /// Its id.
        job: JobId,
        /// How many workunits it has.
        workunits: u32,
    },
    /// A job came further. At most a few times a second per job; the last one is never left out.
    JobProgress {
        /// Its id.
        job: JobId,
        /// Where it stands.
        state: JobState,
        /// Decided workunits.
        decided: u32,
        /// Given-up workunits.
        failed: u32,
    },
    /// A host's agent connected.
    HostConnected {
        /// The host.
        host: HostName,
        /// Which side it is on.
        origin: Origin,
    },
    /// A host's agent is gone.
    HostDisconnected {
        /// The host.
        host: HostName,
    },
    /// A host announced another fragment.
    FragmentChanged {
        /// The host.
        host: HostName,
        /// Replicas it may run now.
        slots: u32,
    },
    /// A report that did not count.
    ReportRefused {
        /// The host.
        host: HostName,
        /// On what.
        workunit: WorkunitId,
        /// Why not.
        verdict: Verdict,
    },
}

/// Answer to `POST /v1/farm/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarmEventsAccepted {
    /// Events that were passed to an agent.
    pub delivered: u32,
    /// Hosts named whose agents are not connected.
    pub unknown_hosts: Vec<HostName>,
}

/// Body of every answer with a status of 400 or above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// For programs: a stable word.
    pub code: String,
    /// For people: what, on what, and what to do.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_end_at_the_most_that_fits() {
        let most = ReplicaCounts { accepted_cpu_us: u64::MAX - 1, ..ReplicaCounts::default() };
        assert_eq!(most.plus(most).accepted_cpu_us, u64::MAX);
    }
}
