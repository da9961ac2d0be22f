//! Storms: everything that can go wrong does, from a seed.

mod broker;
mod host;
mod watcher;
mod world;

use std::fmt;

use gleaner_protocol::{JobId, LeaseToken, Span, Time, WorkunitId};
use gleaner_scheduling::{PolicyName, RestoreError, Violation};
use thiserror::Error;

/// What a storm is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StormConfig {
    /// The policy of the background lane.
    pub policy: PolicyName,
    /// Render hosts, whose fragments open and close.
    pub farm_hosts: u32,
    /// Desktops, which leave and return.
    pub desktop_hosts: u32,
    /// Slots of a host at most.
    pub slots: u32,
    /// Jobs that are submitted while it lasts.
    pub jobs: u32,
    /// Workunits of each at most.
    pub workunits: u32,
    /// How long faults happen.
    pub lasts: Span,
    /// Of 1000 hosts, how many lie.
    pub faulty_permille: u32,
    /// How often a faulty host lies, of 1000 replicas.
    pub lie_permille: u32,
    /// How often the broker dies, on average.
    pub crash_every: Span,
}

impl Default for StormConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::FragmentAware,
            farm_hosts: 12,
            desktop_hosts: 12,
            slots: 4,
            jobs: 4,
            workunits: 30,
            lasts: Span::from_secs(1200),
            faulty_permille: 150,
            lie_permille: 500,
            crash_every: Span::from_secs(300),
        }
    }
}

/// What happened in a storm without a breach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StormReport {
    /// Events.
    pub events: u64,
    /// When the last workunit ended.
    pub ended_at: Time,
    /// Jobs acknowledged to their submitters.
    pub jobs_accepted: u32,
    /// Of these, cancelled.
    pub jobs_cancelled: u32,
    /// Workunits decided.
    pub decided: u64,
    /// Workunits given up.
    pub given_up: u64,
    /// Decided workunits whose canonical output is not the right one. One faulty host decides
    /// where one vote does.
    pub wrong: u64,
    /// Leases given.
    pub leases: u64,
    /// Of these, adopted by a broker that had restarted or had lost the host.
    pub adopted: u64,
    /// Reports acknowledged as counted.
    pub counted: u64,
    /// Reports acknowledged as anything else.
    pub refused: u64,
    /// Replicas that a render drove out.
    pub preempted: u64,
    /// Links that broke.
    pub links_broken: u64,
    /// Times the broker died.
    pub crashes: u64,
    /// Facts that the broker had decided and not yet written when it died.
    pub facts_lost: u64,
}

/// What must never happen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Breach {
    /// The core's own check failed.
    #[error(transparent)]
    Invariant(#[from] Violation),
    /// The facts on disk do not restore a core.
    #[error("the facts on disk do not restore: {0}")]
    Restore(#[from] RestoreError),
    /// An acknowledged job is gone.
    #[error("{0} was acknowledged and is not known any more")]
    JobLost(JobId),
    /// An acknowledged report is not on disk.
    #[error("a vote on {0} was acknowledged and is not on disk")]
    VoteLost(WorkunitId),
    /// A decision changed or is gone.
    #[error("{0} was decided, and has another canonical output or none now")]
    DecisionChanged(WorkunitId),
    /// A host voted twice.
    #[error("{1} voted twice on {0}")]
    SecondVote(WorkunitId, String),
    /// A fencing token fences nothing.
    #[error("{0} was given out twice")]
    TokenReused(LeaseToken),
    /// A host was given more than its fragment.
    #[error("{host} was given {held} replicas, its fragment has {slots} slots")]
    OverFragment {
        /// The host.
        host: String,
        /// What it was given.
        held: usize,
        /// What it gives.
        slots: u32,
    },
    /// An output that no majority can have agreed on.
    #[error("{0} has a wrong output although honest hosts are the majority of its quorum")]
    WrongOutput(WorkunitId),
    /// Work does not end although nothing goes wrong any more.
    #[error("{job} has not ended {calm} after the last fault: {why}")]
    Stuck {
        /// The job.
        job: JobId,
        /// How long nothing went wrong.
        calm: Span,
        /// What the core says.
        why: String,
    },
}

/// A storm in which something happened that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StormFailure {
    /// Its seed.
    pub seed: u64,
    /// Its policy.
    pub policy: PolicyName,
    /// When.
    pub at: Time,
    /// After which event.
    pub event: String,
    /// What.
    pub breach: Breach,
}

impl fmt::Display for StormFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, policy, at, event, breach } = self;
        write!(
            f,
            "storm of seed {seed} under {policy} at {at:?}, after {event}: {breach}\n\
             replay it: GLEANER_STORM_SEED={seed} GLEANER_STORM_POLICY={policy} \
             cargo test -p gleaner-simulator --test storm one_storm"
        )
    }
}

impl std::error::Error for StormFailure {}

/// Runs a storm, then a calm in which all work has to end.
///
/// # Errors
/// The first thing that must never happen, with what replays it.
pub fn storm(seed: u64, config: &StormConfig) -> Result<StormReport, StormFailure> {
    world::World::new(seed, config).run()
}
