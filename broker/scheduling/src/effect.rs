//! What the core asks its driver to do.

use gleaner_protocol::control::{AbortReason, GoesOn, Verdict};
use gleaner_protocol::job::{JobError, Lane};
use gleaner_protocol::{
    Account, ChunkId, HostName, JobId, LeaseToken, Origin, ReplicaId, Share, Span, WorkunitId,
};
use thiserror::Error;

use crate::limits::{ABILITIES_MAX, JOBS_MAX};
use crate::{Fact, HostIx, RequestId};

/// Something to be done, in the order of emission. What promises something (an answer, a verdict,
/// news) waits until every [`Effect::Persist`] before it is durable; what tells a host what to do
/// need not: a lease that was given for what is lost then is not known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write this down first.
    Persist(Fact),
    /// Answers [`Input::Submit`](crate::Input::Submit).
    Submitted {
        /// Who asked.
        request: RequestId,
        /// The new job's id, or why there is none.
        result: Result<JobId, SubmitRefusal>,
    },
    /// Answers [`Input::Cancel`](crate::Input::Cancel): whether the job was there.
    Cancelled {
        /// Who asked.
        request: RequestId,
        /// Whether such a job is known.
        known: bool,
    },
    /// Answers [`Input::HostJoined`](crate::Input::HostJoined).
    Welcome {
        /// Whom.
        host: HostIx,
        /// Held replicas that stay with it.
        adopted: Vec<LeaseToken>,
    },
    /// Send a replica to a host.
    Lease {
        /// Whom.
        host: HostIx,
        /// Its token.
        token: LeaseToken,
        /// Which replica.
        replica: ReplicaId,
        /// How much of the host's cores it may use.
        share: Share,
        /// What another replica saved, if it goes on from that.
        goes_on: Option<GoesOn>,
        /// Whether what it saves may be of use to another host.
        hands_on: bool,
    },
    /// Have a host freeze a replica where it is: the lease that comes next takes its slot.
    Park {
        /// Whom.
        host: HostIx,
        /// Its token.
        token: LeaseToken,
    },
    /// Let a replica go on that was parked.
    Resume {
        /// Whom.
        host: HostIx,
        /// Its token.
        token: LeaseToken,
    },
    /// Change the share of a replica that runs.
    Share {
        /// Whom.
        host: HostIx,
        /// Its token.
        token: LeaseToken,
        /// What it may use from now on.
        share: Share,
    },
    /// Have a host fetch a copy of a chunk from another.
    Move {
        /// Of what.
        chunk: ChunkId,
        /// Who has it.
        from: HostIx,
        /// Whom.
        to: HostIx,
        /// When it is not worth going on with, where there is such a time.
        patience: Option<Patience>,
    },
    /// Tell a host to end a replica.
    Abort {
        /// Whom.
        host: HostIx,
        /// Its token.
        token: LeaseToken,
        /// Why.
        reason: AbortReason,
    },
    /// Tell a host what its report changed.
    Verdict {
        /// Whom.
        host: HostIx,
        /// The report's token.
        token: LeaseToken,
        /// On which workunit.
        workunit: WorkunitId,
        /// What it changed.
        verdict: Verdict,
    },
    /// A job came further or ended.
    JobChanged {
        /// Which.
        job: JobId,
    },
    /// A host connected.
    HostConnected {
        /// Which.
        host: HostName,
        /// Its side.
        origin: Origin,
    },
    /// A host's link is gone.
    HostDisconnected {
        /// Which.
        host: HostName,
    },
    /// A host gives another number of cores.
    FragmentChanged {
        /// Which.
        host: HostName,
        /// How many.
        cores: u32,
    },
}

/// How long a move may take. A host that sees that it will take longer gives it up, and says so
/// by [`Input::Copies`](crate::Input::Copies).
///
/// Nobody knows beforehand how fast it will go, so a part of the chunk goes first: it has to be
/// there after as large a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long all of it may take.
    pub within: Span,
    /// The part that goes first, in thousandths.
    pub first_permille: u16,
}

/// Why a job is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitRefusal {
    /// Something is wrong with it.
    #[error("the job is not accepted: {0}")]
    Invalid(#[from] JobError),
    /// Nothing schedules that lane here.
    #[error("the {0} lane runs nothing at this broker")]
    NoPolicy(Lane),
    /// Its policy does not take it.
    #[error("the job is not accepted: {why}")]
    Declined {
        /// Why.
        why: String,
        /// When it could be due, in microseconds of UTC, where that is what is wrong.
        earliest_due_us: Option<u64>,
    },
    /// Too many jobs.
    #[error(
        "{JOBS_MAX} jobs are known already; forget ended ones with `gleaner forget`, or have the broker do it (retention_days)"
    )]
    TooManyJobs,
    /// Too many jobs of whoever submits.
    #[error(
        "{most} jobs of {account} go on already, as many as may: wait for one to end, cancel one, or put \
         more workunits into one job"
    )]
    TooManyOfOne {
        /// Whose.
        account: Account,
        /// As many as may go on.
        most: u32,
    },
    /// Too many workunits of whoever submits.
    #[error(
        "the job has {asked} workunits, and jobs of {account} that go on have {open} of {most} that may \
         be: wait for one to end, cancel one, or have `workunits` of [limits] raised"
    )]
    TooManyWorkunits {
        /// Whose.
        account: Account,
        /// Those that there are.
        open: u64,
        /// Those of the job.
        asked: u64,
        /// As many as may be.
        most: u64,
    },
    /// Too many different kernels and programs.
    #[error(
        "jobs ask for {ABILITIES_MAX} different kernels and programs already; forget ended jobs with `gleaner forget`"
    )]
    TooManyAbilities,
}
