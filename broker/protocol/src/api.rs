//! Bodies of the broker's HTTP interface under `/v1`. JSON.

mod dataset;
mod monitor;
mod pages;
mod usage;

pub use dataset::{ChunkStatus, DatasetRequest, DatasetStatus};
pub use monitor::{
    ComparedArm, ComparedDifference, ComparedMetric, Contradiction, FarmComparison,
    FarmComparisonStatus, FarmEventsStatus, FarmReport, FarmReportStatus, HostContradiction,
    PollFailure, PollStatus,
};
pub use pages::{
    FailedReplica, FarmHistoryRow, FarmNow, FarmStopStatus, HistoryBy, HostState, LaneCores,
    LoginLink, LoginRequest, Me, OpenReplica, OpenWorkunit, PrintedText, ReplicaLog, StopRequest,
    StoppedFarm, WorkunitLog,
};
pub use usage::{ReplicaOutcome, UsageBy, UsageRow};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control::Verdict;
use crate::job::Lane;
use crate::{
    Digest, Epoch, GpuInfo, HostKind, HostName, JobId, KernelName, Origin, OwnerName, ProjectName,
    WorkunitId,
};

/// Answer to `POST /v1/jobs`: the job is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// Its id.
    pub job: JobId,
    /// How many workunits it has.
    pub workunits: u32,
    /// What it is promised, where it is due at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
}

/// When a job is due, and when it is expected to be done. Times are milliseconds of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promise {
    /// When it is due.
    pub due_ms: u64,
    /// How sure it was to be at least, in thousandths.
    pub confidence_permille: Option<u16>,
    /// How sure it is to be in time, in thousandths, where that can be said.
    pub chance_permille: Option<u16>,
    /// When it is expected to be done as things are.
    pub expected_end_ms: Option<u64>,
}

/// An element of `GET /v1/lanes`, in the order in which lanes are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaneStatus {
    /// Which.
    pub lane: Lane,
    /// Its policy.
    pub policy: String,
    /// Jobs that go on.
    pub jobs: u32,
    /// Cores that its replicas hold, in thousandths.
    pub held_permille: u64,
    /// Cores that connected hosts give to all lanes together, in thousandths.
    pub given_permille: u64,
    /// Replicas that stand still for lanes before this one.
    pub parked: u32,
    /// Replicas that it could be given now: on idle cores, and in the place of lanes behind it.
    pub room: u64,
    /// Most that it may hold, in percent of what is given.
    pub max_percent: u32,
    /// What the lanes before it leave it while it has a job, likewise.
    pub min_percent: u32,
}

/// An element of `GET /v1/shares`: a project, or an owner of jobs without one; whoever comes next
/// before the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareStatus {
    /// The project, unless it is an owner.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// The owner, unless it is a project.
    #[serde(default)]
    pub owner: Option<OwnerName>,
    /// How much it is due, beside others.
    pub weight: u32,
    /// Core-seconds that it has used, of which half count a week later.
    pub used_s: f64,
    /// Cores that its replicas hold, in thousandths.
    pub held_permille: u64,
    /// Of a project with a cap: cores that its background replicas may hold at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_cores: Option<u32>,
    /// Of a project with a budget: core hours that may be charged to it in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_core_h: Option<f64>,
    /// Core hours that are charged to it by now, where it has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_core_h: Option<f64>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// `GET /v1/jobs/{job}`, and an element of `GET /v1/jobs?from=JOB&limit=N`, in order of submission. A
/// page has up to 1,000 jobs; the list ends where one is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// Its id.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: OwnerName,
    /// Its project, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
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
    /// When it is due, in milliseconds of UTC, where somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// How sure it is to be in time now, in thousandths, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance_permille: Option<u16>,
    /// When it is expected to be done, in milliseconds of UTC, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_ms: Option<u64>,
    /// What has happened to its replicas.
    pub replicas: ReplicaCounts,
}

/// Counts over the replicas of a job or of a broker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// Timed out, or lost with their hosts.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkunitResult {
    /// Which workunit.
    pub index: u32,
    /// Its output, or why there is none.
    #[serde(flatten)]
    pub result: ResultState,
}

/// How a workunit ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its content, where it is short UTF-8 text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// An element of `GET /v1/hosts?after=HOST&limit=N`, in the order of names. A page has at most 1,000;
/// the list ends where one is empty. A host without a link that nothing open speaks of is forgotten
/// when 20,000 others have left after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Cores that it gives now.
    pub cores_given: u32,
    /// Memory that it gives to all replicas together now, in MiB, where its agent says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_given: Option<u64>,
    /// GPUs that it gives now.
    #[serde(default)]
    pub gpus_given: u32,
    /// Replicas it holds now.
    pub running: u32,
    /// Its epoch as last announced.
    pub epoch: Epoch,
    /// What it gets none of for a while, since it failed or refused that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backing_off: Vec<BackingOff>,
    /// How many replicas it may be given, where it has erred; any number where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaStatus>,
    /// How much its owner's outputs decide, where the broker's admin trusts somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<VoiceStatus>,
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

/// How many replicas a host may be given that has erred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaStatus {
    /// So many an hour.
    pub allowed: u32,
    /// Of these, given.
    pub given: u32,
    /// In so many seconds they are counted anew.
    pub for_s: u64,
}

/// How much the outputs of an owner decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceStatus {
    /// Nothing.
    New {
        /// Outputs in a row that were what trusted owners decided.
        agreed: u32,
    },
    /// As much as half of a trusted owner's.
    Earned,
    /// The broker's admin trusts this owner.
    Trusted,
}

/// An element of `GET /v1/history`: an application whose runs are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedApplication {
    /// A kernel with its part, the path of a program, or a module by the beginning of its digest.
    pub application: String,
    /// Runs that are kept.
    pub runs: usize,
    /// Of these, come to their end; the others were given back or lost.
    pub ended: usize,
    /// The kinds of hosts that it ran on; `any` where hosts have none.
    pub kinds: Vec<String>,
    /// When the last one was recorded, in UTC milliseconds.
    pub last_ms: u64,
}

/// `GET /v1/history/{application}`; the application percent-encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationHistory {
    /// Which.
    pub application: String,
    /// A row for each kind of hosts that it ran on.
    pub kinds: Vec<KindHistory>,
}

/// What is recorded of an application on one kind of host, and what is predicted from that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindHistory {
    /// The kind; `any` where hosts have none.
    pub kind: String,
    /// Runs that are kept.
    pub runs: usize,
    /// Of these, come to their end; the others are known as lower bounds only.
    pub ended: usize,
    /// The middle of what ended runs took of CPU time, in microseconds.
    pub cpu_median_us: Option<u64>,
    /// The middle of what went by while they ran, in microseconds.
    pub wall_median_us: Option<u64>,
    /// Most memory that a run was seen to take, in MiB.
    pub peak_memory_mib: Option<u64>,
    /// The fit: how long a run takes, as a formula of its features.
    pub formula: Option<String>,
    /// How well each of the last runs is predicted by all the others.
    pub left_out: Option<LeftOutErrors>,
    /// What parts of runs stay below which multiples of the formula.
    pub quantiles: Vec<RatioQuantile>,
}

/// Errors of runs, each predicted by all the others, in percent of what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOutErrors {
    /// Mean of them without their signs.
    pub mean_percent: f64,
    /// The greatest.
    pub max_percent: f64,
    /// How many.
    pub runs: usize,
}

/// A quantile of what runs took over what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioQuantile {
    /// The part of runs that stay below it.
    pub p: f64,
    /// In multiples of what was expected.
    pub ratio: f64,
}

/// Something that a host gets none of for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackingOff {
    /// What: a kernel, a program, modules of a size.
    pub what: String,
    /// How many replicas of it came to nothing there in a row.
    pub in_a_row: u32,
    /// For how long it gets none, in seconds from now.
    pub for_s: u64,
    /// What the last one came to.
    pub reason: String,
}

/// Answer to `GET /v1/explain/{job}` and `GET /v1/explain/{job}/{index}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// What is explained.
    pub subject: String,
    /// The answer in one sentence.
    pub summary: String,
    /// Each reason.
    pub reasons: Vec<Reason>,
}

/// One reason why something waits, runs or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// For programs: a stable word.
    pub code: String,
    /// For people.
    pub text: String,
}

/// A line of the event stream `GET /v1/events` (server-sent events, one JSON object each).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        /// Cores that it gives now.
        cores: u32,
    },
    /// A job is less likely than not to be done by its due time.
    PromiseInDanger {
        /// Its id.
        job: JobId,
        /// The chance, in thousandths.
        chance_permille: u16,
        /// When it is due, in milliseconds of UTC.
        due_ms: u64,
        /// When it is expected to be done, likewise, where that can be said.
        expected_end_ms: Option<u64>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmEventsAccepted {
    /// Events that were passed to an agent.
    pub delivered: u32,
    /// Hosts named whose agents are not connected.
    pub unknown_hosts: Vec<HostName>,
}

/// Body of every answer with a status of 400 or above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiError {
    /// For programs: a stable word.
    pub code: String,
    /// For people: what, on what, and what to do.
    pub error: String,
    /// Of a job that is declined for its due time: when it could be due, in milliseconds of UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_due_ms: Option<u64>,
}

impl ApiError {
    /// Of this code, in these words.
    #[must_use]
    pub fn new(code: impl Into<String>, error: impl Into<String>) -> Self {
        Self { code: code.into(), error: error.into(), earliest_due_ms: None }
    }
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
