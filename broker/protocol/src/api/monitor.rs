//! What a farm's monitor knows and its broker does not: JSON that the monitor posts, and that pages read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HostName;

/// Body of `POST /v1/farm/report`: what a monitor's sources say, and where they disagree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FarmReport {
    /// How its polls go; none where the farm is not polled.
    pub poll: Option<PollStatus>,
    /// What becomes of the farm's messages that something changed; none where nobody listens.
    pub farm_events: Option<FarmEventsStatus>,
    /// Where sources disagreed, the newest first; some of them.
    pub contradictions: Vec<HostContradiction>,
    /// How often they have since the monitor started.
    pub contradictions_total: u64,
}

/// How a farm's polls go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PollStatus {
    /// Which farm manager is polled.
    pub source: String,
    /// Polls since the monitor started.
    pub polls: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// How long ago the newest answer was asked for, in milliseconds; none where there is none.
    pub answered_age_ms: Option<u64>,
    /// Hosts that it lists.
    pub hosts: u64,
    /// Parts of it that are not understood.
    pub not_understood: u64,
    /// What people should know of it, in words.
    pub notes: Vec<String>,
    /// What is wrong, where the newest poll failed.
    pub failing: Option<PollFailure>,
}

/// Polls that fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PollFailure {
    /// How long ago the first of them began, in milliseconds.
    pub since_ms: u64,
    /// How many there were in a row.
    pub polls: u64,
    /// Why the newest one failed.
    pub error: String,
    /// What to do.
    pub cure: String,
}

/// What becomes of the messages in which a farm says that something changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmEventsStatus {
    /// Where they come from.
    pub url: String,
    /// Whether they are listened to now.
    pub is_connected: bool,
    /// Why not, if so.
    pub trouble: Option<String>,
    /// How many came since the monitor started.
    pub heard: u64,
}

/// Two sources that disagreed about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostContradiction {
    /// Which host.
    pub host: HostName,
    /// In which way, how often and when.
    #[serde(flatten)]
    pub contradiction: Contradiction,
}

/// Two sources that disagreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contradiction {
    /// In which way.
    pub text: String,
    /// How often.
    pub times: u32,
    /// How long ago last, in milliseconds.
    pub age_ms: u64,
}

/// Answer to `GET /v1/farm/report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmReportStatus {
    /// How long ago the monitor has said it, in milliseconds; none where none has.
    pub age_ms: Option<u64>,
    /// What it said last.
    pub report: Option<FarmReport>,
}

/// Body of `POST /v1/farm/comparison`: what harvest costs the farm's renders, as its monitor has measured
/// it (`gleaner farm compare`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmComparison {
    /// Thousandths of the hosts that are held out of harvest.
    pub held_out_permille: u16,
    /// The time zone in which a day begins at midnight.
    pub time_zone: String,
    /// The day, as `2026-11-22`.
    pub day: String,
    /// Hosts that are held out now.
    pub held_out: Vec<String>,
    /// Hosts that may be harvested and are compared with them.
    pub harvested: u64,
    /// What is compared.
    pub metrics: Vec<ComparedMetric>,
}

/// A measure of renders beside harvest and without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    /// Its name, with its unit.
    pub name: String,
    /// Whether more of it is better for the farm.
    pub more_is_better: bool,
    /// Days on which there were hosts of both.
    pub days: u64,
    /// Of hosts that may be harvested.
    pub harvested: Option<ComparedArm>,
    /// Of those that are held out.
    pub held_out: Option<ComparedArm>,
    /// The former less the latter; none with fewer days than say anything.
    pub difference: Option<ComparedDifference>,
}

/// A measure of some hosts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedArm {
    /// Hosts, each day's counted anew.
    pub host_days: u64,
    /// The mean of the days' means.
    pub mean: f64,
}

/// A difference, in the measure's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedDifference {
    /// As estimated.
    pub estimate: f64,
    /// The 95 % interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Answer to `GET /v1/farm/comparison`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmComparisonStatus {
    /// When the monitor has said it, in milliseconds of UTC by the broker's clock; none where none has.
    pub at_ms: Option<u64>,
    /// What it said last.
    pub comparison: Option<FarmComparison>,
}
