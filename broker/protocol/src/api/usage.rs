//! `GET /v1/usage`: what ended replicas took, and what of it is charged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HostName, JobId, OwnerName, ProjectName};

/// What the rows of usage are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UsageBy {
    /// The project of the jobs; jobs of none are a row without one.
    Project,
    /// The owner of the jobs.
    #[default]
    Owner,
    /// The job.
    Job,
    /// The host that the replicas ran on.
    Host,
    /// The owner of that host; hosts of nobody are a row without one.
    HostOwner,
    /// How the replicas ended.
    Outcome,
}

/// How a replica ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaOutcome {
    /// Its output is a vote.
    Counted,
    /// It failed, or its output broke the rules.
    Failed,
    /// Its host did not run it, or its owner had a vote already: the output is none.
    Refused,
    /// A render, its host's owner or another replica took its cores.
    Preempted,
    /// It was not done when its lease ran out.
    Expired,
    /// Its host was not heard of for too long, or started again without it.
    Lost,
    /// Its workunit ended without it.
    Aborted,
    /// Its job was cancelled.
    Cancelled,
}

impl ReplicaOutcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Counted,
        Self::Failed,
        Self::Refused,
        Self::Preempted,
        Self::Expired,
        Self::Lost,
        Self::Aborted,
        Self::Cancelled,
    ];

    /// The word for it, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Preempted => "preempted",
            Self::Expired => "expired",
            Self::Lost => "lost",
            Self::Aborted => "aborted",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An element of `GET /v1/usage`. Of the six fields after `start_ms` only the one is filled that was
/// asked by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    /// When the minute, hour or day began in which the replicas ended, in milliseconds of UTC, where that
    /// was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// The project of the jobs.
    pub project: Option<ProjectName>,
    /// Whose jobs.
    pub owner: Option<OwnerName>,
    /// Which job.
    pub job: Option<JobId>,
    /// On which host.
    pub host: Option<HostName>,
    /// On whose hosts.
    pub host_owner: Option<OwnerName>,
    /// How the replicas ended.
    pub outcome: Option<ReplicaOutcome>,
    /// Seconds for which they had a core, times the share of it.
    pub slot_s: f64,
    /// CPU time as agents reported it, in seconds.
    pub cpu_s: f64,
    /// Seconds of graphics processors: none is recorded yet.
    pub gpu_s: f64,
    /// Replicas that ended.
    pub replicas: u64,
    /// Of these, those whose output is the accepted one.
    pub accepted: u64,
    /// The slot seconds of those.
    pub charged_s: f64,
    /// What the owners of the hosts have done for others, in seconds of CPU time: for each accepted
    /// output the least that one of its replicas took, the same for each of them. Jobs of a host's own
    /// owner earn nothing.
    pub credit_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_the_same_words_everywhere() {
        for outcome in ReplicaOutcome::ALL {
            let json = serde_json::to_string(&outcome).expect("it serialises");
            assert_eq!(json, format!("{:?}", outcome.as_str()));
        }
    }
}
