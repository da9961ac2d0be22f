//! What the broker's pages ask, and what a browser is let in with.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{Cause, Lane};
use crate::people::PrincipalId;
use crate::{Digest, HostName, OwnerName};

/// Answer to `POST /v1/logins`: what opens the pages in a browser, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginLink {
    /// Stands behind `#login=` of the pages' address; nothing where the pages ask for nothing.
    pub secret: Option<String>,
    /// For how long it is good, in seconds.
    pub valid_s: u64,
}

impl fmt::Debug for LoginLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginLink(for {} s)", self.valid_s)
    }
}

/// `POST /v1/login`: a browser has such a link.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// Of the link.
    pub secret: String,
}

impl fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginRequest(secret)")
    }
}

/// Answer to `GET /v1/me`: who asks, and what of the pages is there for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// A role in a word: `local` is whoever is on the broker's machine, where nothing is asked for.
    pub role: String,
    /// Of a principal: whose it is.
    pub owner: Option<OwnerName>,
    /// Of a principal: its key.
    pub id: Option<PrincipalId>,
    /// Whether people are there for them.
    pub is_admin: bool,
    /// Whether they may stop harvest and resume it.
    pub stops: bool,
    /// Whether they may submit and cancel.
    pub submits: bool,
    /// Of a principal: bytes of its owner's datasets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_bytes: Option<u64>,
    /// Of a principal: bytes that they may have, where that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_bytes_max: Option<u64>,
    /// Whether a browser was let in by a cookie, which is to be renewed within this time, in seconds.
    pub renew_s: Option<u64>,
    /// The broker's version.
    pub version: String,
}

/// How long the rows of a farm's history are.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum HistoryBy {
    /// A minute; the last two days.
    Minute,
    /// An hour; the last 90 days.
    #[default]
    Hour,
    /// A day of UTC; ten years.
    Day,
}

impl HistoryBy {
    /// All of them, the shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// The word for it, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// How long it is, in milliseconds.
    #[must_use]
    pub const fn length_ms(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }
}

/// An element of `GET /v1/farm/history?by=hour&from_ms=N&to_ms=N`, in the order of time: what connected
/// hosts did on average while the broker ran, and the replicas that ended then. What has not ended yet
/// has its row as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmHistoryRow {
    /// When it begins, in milliseconds of UTC.
    pub start_ms: u64,
    /// How much of it was seen, in seconds.
    pub seen_s: f64,
    /// Connected hosts.
    pub hosts: f64,
    /// Cores of farm hosts that renders have, or that are kept for them beside renders.
    pub rendered: f64,
    /// Cores that replicas have.
    pub harvested: f64,
    /// Cores that could be harvested, and nothing is there for them.
    pub idle: f64,
    /// Cores that are not given for another reason: a quiet period, a stop, a user at the machine.
    pub closed: f64,
    /// Replicas that ended with an output that counted.
    pub counted: u64,
    /// Replicas that failed.
    pub failed: u64,
    /// Replicas that were given back: to renders, to hosts' owners.
    pub released: u64,
    /// Replicas that were taken back, timed out or were lost.
    pub ended_otherwise: u64,
    /// CPU time of outputs that were accepted, in seconds.
    pub accepted_cpu_s: f64,
    /// Of the cores that replicas have, those of each lane.
    #[serde(default)]
    pub lanes: LaneCores,
}

/// Cores that replicas of each lane have.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LaneCores {
    /// Of frames.
    pub rendering: f64,
    /// Of what is due at a time.
    pub deadline: f64,
    /// Of what reads datasets.
    pub dataset: f64,
    /// Of batches.
    pub batch: f64,
    /// Of the rest.
    pub background: f64,
}

impl LaneCores {
    /// Of lanes in their order.
    #[must_use]
    pub const fn of(cores: [f64; Lane::COUNT]) -> Self {
        let [rendering, deadline, dataset, batch, background] = cores;
        Self { rendering, deadline, dataset, batch, background }
    }
}

/// What the farm does now: cores of connected hosts, as in [`FarmHistoryRow`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FarmNow {
    /// Hosts that are known.
    pub known: u64,
    /// Hosts that are connected.
    pub hosts: u64,
    /// Their cores.
    pub cores: f64,
    /// Rendered.
    pub rendered: f64,
    /// Harvested.
    pub harvested: f64,
    /// Idle.
    pub idle: f64,
    /// Not given.
    pub closed: f64,
}

/// Who has stopped the harvest of all hosts of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoppedFarm {
    /// Who it was.
    pub by: String,
    /// When, in milliseconds of UTC by the broker's clock.
    pub at_ms: u64,
    /// Why.
    pub reason: String,
}

/// Answer to `GET /v1/farm/stop`, `POST /v1/farm/stop` and `POST /v1/farm/resume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmStopStatus {
    /// Who has stopped it; none where it goes on.
    pub stopped: Option<StoppedFarm>,
    /// What this request lifted; none of others.
    #[serde(default)]
    pub lifted: Option<StoppedFarm>,
    /// Why it may be forgotten when the broker restarts; none where it is on disk.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// Body of `POST /v1/farm/stop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Why, in a line, for everybody who wonders.
    pub reason: String,
}

/// What a host does, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Something on it needs a person.
    Alarm,
    /// Its agent is not connected.
    Lost,
    /// Replicas run on it.
    Harvested,
    /// It waits for work.
    Idle,
    /// Renders have all of it that could be harvested.
    Rendering,
    /// A render has just ended, and another may follow.
    Quiet,
    /// Its owner, or other programs, need it.
    GivenWay,
    /// It is held out of harvest, to compare.
    HeldOut,
    /// Somebody has stopped the harvest.
    Stopped,
    /// Its farm's monitor gives it to nobody, for another reason.
    Withheld,
}

/// An element of `GET /v1/jobs/{job}/workunits?from=N&limit=N`, in order of index: a workunit that is
/// begun and has not ended. A page has up to 200; the list ends where one is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenWorkunit {
    /// Which.
    pub index: u32,
    /// Replicas that wait for a host.
    pub waiting: u32,
    /// Outputs that have a vote.
    pub votes: u32,
    /// Replicas that were begun so far.
    pub attempts: u32,
    /// Replicas that are given out.
    pub replicas: Vec<OpenReplica>,
}

/// A replica that is given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenReplica {
    /// Which try at its workunit it is.
    pub attempt: u32,
    /// Where.
    pub host: HostName,
    /// Whether it stands still for a lane before its own.
    pub is_parked: bool,
    /// Whether its host is not connected.
    pub is_away: bool,
}

/// Answer to `GET /v1/jobs/{job}/log/{index}`: what the replicas of a workunit have printed, as far as it
/// is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkunitLog {
    /// Why it was given up; it names its attempts.
    pub reason: Option<String>,
    /// Attempts without an output, while the workunit has not ended.
    pub failed: Vec<FailedReplica>,
    /// Outputs: all that have a vote while it has not ended, then the accepted one.
    pub outputs: Vec<ReplicaLog>,
}

/// A replica that ended without an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedReplica {
    /// Where.
    pub host: HostName,
    /// What ended it.
    pub cause: Cause,
    /// In words, with the end of its standard error.
    pub text: String,
}

/// What replicas with one and the same output have printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaLog {
    /// Their output.
    pub digest: Digest,
    /// Where they ran, while the workunit has not ended.
    pub hosts: Vec<HostName>,
    /// Standard output, and standard error where the job asked for it.
    pub printed: Vec<PrintedText>,
}

/// The end of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrintedText {
    /// `stdout` or `stderr`.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// The first byte that is shown.
    pub from: u64,
    /// From there on.
    pub text: String,
}
