//! Votes: replicas that were reported with an output.

use gleaner_protocol::{Digest, LeaseToken};

use super::{HostIx, VoterIx};

/// A replica that was reported with an output (`completeResults`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The lease it was given under.
    pub token: LeaseToken,
    /// Whose vote.
    pub voter: VoterIx,
    /// Where it ran.
    pub host: HostIx,
    /// Its output; `None` where the host only handed its state over.
    pub digest: Option<Digest>,
    /// CPU time spent on it.
    pub cpu_us: u64,
    /// When it was given, counted in checks that its host had passed, this workunit's own among
    /// them.
    pub mark: u32,
    /// When it was given, counted in failures of its host.
    pub failures: u16,
    /// One in so many of its host's results was to be computed by another host too.
    pub per_check: u8,
    /// Whether the host gave no vote of its own: what it saved is a part of the one that another
    /// gave under this lease.
    pub handed_over: bool,
}
