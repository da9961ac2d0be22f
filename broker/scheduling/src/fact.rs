//! What must be on disk before anyone is told.

use std::sync::Arc;

use gleaner_protocol::api::ReplicaCounts;
use gleaner_protocol::job::{Cause, JobSpec};
use gleaner_protocol::{Digest, HostName, JobId, LeaseToken, Origin, OwnerName, WorkunitId};
use serde::{Deserialize, Serialize};

/// A durable decision. Replaying all facts in order restores the core
/// ([`Core::restore`](crate::Core::restore)); leases are not among them, because agents say what
/// they hold.
///
/// This is the disk format: a variant or field is only ever added at the end, together with a
/// new format version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A job was accepted.
    JobAccepted {
        /// Its id.
        job: JobId,
        /// What was asked for.
        spec: Arc<JobSpec>,
        /// When, in microseconds of UTC.
        accepted_us: u64,
    },
    /// A job was cancelled.
    JobCancelled {
        /// Its id.
        job: JobId,
    },
    /// A replica's output counts as a vote.
    Voted {
        /// On what.
        workunit: WorkunitId,
        /// Side of the workunit.
        side: Origin,
        /// Whose vote.
        host: HostName,
        /// The host's owner, who shares the vote.
        owner: Option<OwnerName>,
        /// The lease it was given under.
        token: LeaseToken,
        /// For which output.
        digest: Digest,
        /// CPU time spent on it.
        cpu_us: u64,
    },
    /// An attempt ended without an output.
    AttemptFailed {
        /// Of what.
        workunit: WorkunitId,
        /// Side of the workunit.
        side: Origin,
        /// Where.
        host: HostName,
        /// The host's owner.
        owner: Option<OwnerName>,
        /// The lease it was given under.
        token: LeaseToken,
        /// What ended it.
        cause: Cause,
        /// In words.
        why: Arc<str>,
    },
    /// Enough votes agree.
    Decided {
        /// On what.
        workunit: WorkunitId,
        /// The canonical output, for ever.
        digest: Digest,
    },
    /// A workunit will have no output.
    GivenUp {
        /// Which.
        workunit: WorkunitId,
        /// Why.
        reason: String,
    },
    /// What has happened to a job's replicas so far: in snapshots, whose other facts leave the
    /// votes of decided workunits out.
    Counted {
        /// Its id.
        job: JobId,
        /// The counts.
        counts: ReplicaCounts,
    },
    /// An ended job is remembered no longer; its id is never used again.
    JobForgotten {
        /// Its id.
        job: JobId,
    },
    /// What a host's votes were worth so far: in snapshots, after all votes. In the journal, with
    /// nothing but zeroes: the host is forgotten.
    HostStood {
        /// Which.
        host: HostName,
        /// Its owner.
        owner: Option<OwnerName>,
        /// Its side.
        side: Origin,
        /// Outputs of it that counted.
        reported: u64,
        /// Of these, not equal to the canonical output.
        disagreed: u64,
        /// Checks passed.
        passed: u32,
        /// Failures.
        failures: u16,
        /// Checks passed at the last failure.
        failed_at: u32,
    },
    /// When a vote on an open workunit was given: in snapshots, after all votes.
    VoteStood {
        /// On what.
        workunit: WorkunitId,
        /// The lease it was given under.
        token: LeaseToken,
        /// In checks that its host had passed.
        mark: u32,
        /// In failures of its host.
        failures: u16,
        /// One in so many of its host's results was to be computed by another host too.
        per_check: u8,
    },
    /// What a host saved is a part of the vote that another host gives under this lease: it has no
    /// vote of its own on the workunit. After that vote.
    HandedOver {
        /// On what.
        workunit: WorkunitId,
        /// Side of the workunit.
        side: Origin,
        /// Whose state.
        host: HostName,
        /// The host's owner.
        owner: Option<OwnerName>,
        /// The lease under which the vote is given.
        token: LeaseToken,
    },
    /// What an owner's outputs are worth from now on; see [`Voice`](crate::Voice).
    OwnerStood {
        /// Whose.
        owner: OwnerName,
        /// Outputs in a row that were what trusted owners decided without it.
        agreed: u32,
        /// Outputs that were not.
        disagreed: u16,
    },
}

impl Fact {
    /// The job that it is about, if it is about one.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::JobAccepted { job, .. }
            | Self::JobCancelled { job }
            | Self::Counted { job, .. }
            | Self::JobForgotten { job } => Some(*job),
            Self::Voted { workunit, .. }
            | Self::AttemptFailed { workunit, .. }
            | Self::Decided { workunit, .. }
            | Self::GivenUp { workunit, .. }
            | Self::VoteStood { workunit, .. }
            | Self::HandedOver { workunit, .. } => Some(workunit.job),
            Self::HostStood { .. } | Self::OwnerStood { .. } => None,
        }
    }
}
