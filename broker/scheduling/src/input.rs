//! What the core is told.

use std::collections::BTreeSet;

use gleaner_protocol::control::{Fragment, Held, ReleaseReason};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{
    Account, ChunkId, Digest, HostInfo, HostName, JobId, LeaseToken, OwnerName, ReplicaId,
};

/// Names a request, so that its answer finds the one who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Wraps a number that the driver chose.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A submitter sent a job.
    Submit {
        /// Who asked.
        request: RequestId,
        /// The job, checked.
        spec: Box<JobSpec>,
    },
    /// A submitter cancels a job.
    Cancel {
        /// Who asked.
        request: RequestId,
        /// Which.
        job: JobId,
    },
    /// An agent connected.
    HostJoined {
        /// What it says of itself.
        info: HostInfo,
        /// What it gives.
        fragment: Fragment,
        /// Replicas that it holds from before.
        held: Vec<Held>,
        /// Tells its processes apart: another one has lost what an earlier one ran.
        incarnation: u64,
    },
    /// An agent's link is gone. Its replicas stay leased for the grace period.
    HostLeft {
        /// Which.
        host: HostName,
    },
    /// An agent's link is gone, and it may not come back: its replicas go to others at once.
    HostExpelled {
        /// Which.
        host: HostName,
    },
    /// A host gives another fragment from now on.
    Fragment {
        /// Which host.
        host: HostName,
        /// What it gives.
        fragment: Fragment,
    },
    /// A host asks for work for more cores.
    Request {
        /// Which host.
        host: HostName,
        /// How many more than before.
        cores: u32,
    },
    /// A replica produced an output, or failed.
    Report {
        /// Which host says so.
        host: HostName,
        /// Its lease.
        token: LeaseToken,
        /// Which replica it says it was.
        replica: ReplicaId,
        /// What came of it.
        outcome: ReportedOutcome,
        /// CPU time it took.
        cpu_us: u64,
        /// For how long it had its place, in microseconds: what went by while it ran, or its CPU time
        /// where no more is known.
        took_us: u64,
    },
    /// A host gave a replica back.
    Released {
        /// Which host.
        host: HostName,
        /// The lease.
        token: LeaseToken,
        /// Why.
        reason: ReleaseReason,
    },
    /// A replica saved where it is, and others can have that.
    Saved {
        /// Which host.
        host: HostName,
        /// The lease.
        token: LeaseToken,
        /// What it saved.
        state: Digest,
    },
    /// A host stops a replica where it is and keeps it, out of every slot, or has it go on.
    Frozen {
        /// Which host.
        host: HostName,
        /// The lease.
        token: LeaseToken,
        /// Whether it stands still from now on.
        frozen: bool,
    },
    /// Something on a host needs a person, or does not any more.
    Alarm {
        /// Which host.
        host: HostName,
        /// What, in words; none where it is over.
        reason: Option<String>,
    },
    /// Copies of chunks came to a host, or are gone from it.
    Copies {
        /// Which host.
        host: HostName,
        /// Copies that it has from now on.
        gained: Vec<ChunkId>,
        /// Copies that it has no longer, or that could not be moved to it.
        lost: Vec<ChunkId>,
    },
    /// Of those who are limited these get nothing more in background for now, and all others do.
    HoldBack {
        /// Who.
        accounts: BTreeSet<Account>,
    },
    /// Whoever runs the farm vouches for these owners of hosts, and for nobody else.
    Vouch {
        /// Whose hosts.
        owners: BTreeSet<OwnerName>,
    },
    /// The key of a host was revoked: whoever has the host's name next has yet to earn trust.
    KeyRevoked {
        /// Which host.
        host: HostName,
        /// The host's owner, where no other host of its has a key.
        last_of: Option<OwnerName>,
    },
    /// An ended job need not be remembered any longer.
    Forget {
        /// Which.
        job: JobId,
    },
    /// Nothing but time went by.
    Tick,
}

/// A replica's outcome as far as the core cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedOutcome {
    /// An output of this digest, whose content the driver keeps.
    Output(Digest),
    /// None, for this reason.
    Failed(String),
    /// The driver refused the output: it was malformed.
    Malformed,
}
