//! Policies: what a fragment runs next.
//!
//! A policy is told of every [`Change`] that can matter to its order of things, and is asked to
//! plan when there is something to plan for ([`Trigger`]). Greedy ones (all of the
//! background lane) serve the one host that asks; cycle-driven ones collect changes and plan many assignments at
//! their own [`Policy::next_deadline`]; ones that learn speeds read them off
//! [`Change::Completed`]. All act through the [`Desk`] alone.
//!
//! Here are the defaults and what a lane's policies share; what they are compared with is in
//! [`baselines`](crate::baselines).

mod backlog;
pub(crate) mod chance;
mod choice;
pub mod deadline;
mod fragment_aware;
mod gleaner;
pub mod mixed;
pub mod replication;
mod turns;
pub mod visualization;
mod watched;

pub use choice::{LanePolicy, UnknownPolicy};
pub use fragment_aware::FragmentAware;
pub use gleaner::Gleaner;
pub use watched::{PolicyStep, Watch, Watched};

pub(crate) use backlog::Backlog;
use turns::Turns;

use std::fmt;

use crate::baselines::{BoincAdaptive, Plain};
use crate::explain::WaitReason;
use crate::farm::{Begins, Farm, Host, HostIx, Workunit, WorkunitIx};
use crate::{Desk, Violation};
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{ChunkId, JobId, Origin, Span, Time, WorkunitId};

/// Something that can matter to a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A job has untouched workunits.
    JobAdded(JobId),
    /// A job has no untouched workunits any more, not by the policy's own hand.
    JobTouched(JobId),
    /// A job has ended or was cancelled; its workunits were reported as ended before.
    JobEnded(JobId),
    /// A workunit's replicas moved between waiting, pending and complete (not by the policy's
    /// own hand), or it was touched by an adoption.
    WorkunitChanged(WorkunitIx),
    /// A workunit is about to be forgotten; its number will be used again.
    WorkunitEnded(WorkunitIx),
    /// A host connected (perhaps with other capabilities or another owner), left, or gives
    /// another fragment.
    HostChanged(HostIx),
    /// A host was forgotten that had left; its number will be used again.
    HostForgotten(HostIx),
    /// A workunit that was never open here was decided: the journal says so.
    DecidedBefore(WorkunitId),
    /// A host has a copy of a chunk, or has none: it came, was dropped, or could not be moved.
    CopyChanged {
        /// Which host.
        host: HostIx,
        /// Of which chunk.
        chunk: ChunkId,
        /// Whether it has it now.
        held: bool,
    },
    /// A replica has ended with an output that counts, or has failed.
    Completed {
        /// Of what.
        workunit: WorkunitIx,
        /// Where.
        host: HostIx,
        /// For how long it had its place; none where it failed, which says nothing of how long such
        /// work takes.
        took: Option<Span>,
    },
}

/// Why a policy is asked to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// This host asks for work.
    Host(HostIx),
    /// There is new work, perhaps for a standing request. Comes after every input that brought
    /// some, whether or not anyone asks.
    Work,
    /// The policy's own deadline has come.
    Deadline,
}

/// Why a policy does not take a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decline {
    /// In words for its submitter.
    pub why: String,
    /// When it could be done, where that is what is wrong.
    pub earliest_due: Option<Time>,
}

impl From<String> for Decline {
    fn from(why: String) -> Self {
        Self { why, earliest_due: None }
    }
}

/// Decides what a fragment runs next. One per lane.
pub trait Policy: Send {
    /// Its name, as in configuration and in tables.
    fn name(&self) -> &'static str;

    /// Whether a job is taken at all; `Err` says why not, in words for its submitter.
    ///
    /// # Errors
    /// The job is declined.
    fn admit(&mut self, _now: Time, _farm: &Farm, _spec: &JobSpec) -> Result<(), Decline> {
        Ok(())
    }

    /// How long each task of a job of its lane that has not ended is still expected to take on a core,
    /// in microseconds, where the policy keeps account of that.
    fn left_us(&self, _now: Time, _job: JobId) -> Vec<u64> {
        Vec::new()
    }

    /// When a job of its lane is expected to be done, where the policy can tell.
    fn expected_end(&self, _farm: &Farm, _job: JobId) -> Option<Time> {
        None
    }

    /// Where a second replica of a workunit runs that is there in case the first is not done in time.
    fn insured_on(&self, _workunit: WorkunitId) -> Option<HostIx> {
        None
    }

    /// Whether a job can no longer be done in time, as far as the policy can tell.
    fn is_out_of_reach(&self, _job: JobId) -> bool {
        false
    }

    /// Takes note of a change. Nothing may be started here; a policy that wants to plan because
    /// of it makes [`Policy::next_deadline`] due, and is asked before the input is done with.
    fn observe(&mut self, now: Time, farm: &Farm, change: Change);

    /// Starts what it wants to start.
    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger);

    /// How the workunits of a job begin that are opened by what an agent or the journal knows of
    /// them, not by its own hand. What was decided about them before is not known: where that
    /// could be fewer or more replicas, they are more.
    fn begins(&self, spec: &JobSpec) -> Begins {
        Begins::fixed(spec)
    }

    /// Whether a host that holds a replica from before may keep it, where the rules allow it.
    fn keeps(&self, _farm: &Farm, _workunit: WorkunitIx, _host: HostIx) -> bool {
        true
    }

    /// When it wants to be asked again without a cause from outside.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Why this workunit (of this lane, open, with a replica waiting) waits, as far as it is the
    /// policy's doing.
    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason>;

    /// Checks its own state against the farm, of which it has the jobs of `lane`.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation>;
}

/// The policies of the background lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyName {
    /// Workunits stay on one side, those nearest to completion first.
    FragmentAware,
    /// Replicas are individual tasks, first come first served.
    Plain,
    /// The same, and hosts that gave valid results in a row are mostly left alone.
    BoincAdaptive,
    /// As few replicas as the allowed error asks for, and results are final after later checks.
    Gleaner,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::FragmentAware, Self::Plain, Self::BoincAdaptive, Self::Gleaner];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FragmentAware => "fragment-aware",
            Self::Plain => "plain",
            Self::BoincAdaptive => "boinc-adaptive",
            Self::Gleaner => "gleaner",
        }
    }

    /// A fresh one. What it leaves to chance depends on `seed`.
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::FragmentAware => Box::new(FragmentAware::default()),
            Self::Plain => Box::new(Plain::default()),
            Self::BoincAdaptive => Box::new(BoincAdaptive::new(seed)),
            Self::Gleaner => Box::new(Gleaner::new(seed)),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Place of a workunit in the order of submission and index.
pub(crate) fn place(id: WorkunitId) -> u64 {
    id.job.get() << 32 | u64::from(id.index)
}

/// Of a policy that holds nobody back.
pub(crate) const fn anyone(_: &Host) -> bool {
    true
}

/// `nobody-idles`: there is no standing request for which the lane has work that may start.
pub(crate) fn check_nobody_idles(
    farm: &Farm,
    lane: Lane,
    side: impl Fn(&Workunit) -> Option<Origin>,
    may: impl Fn(&Host) -> bool,
) -> Result<(), Violation> {
    if farm.is_lane_full(lane) {
        return Ok(());
    }
    let of_lane = |job: JobId| farm.lane_of(job) == Some(lane);
    for (workunit, unit) in farm.workunits().filter(|(_, unit)| of_lane(unit.id.job)) {
        if let Some(host) = farm.first_asking_untried(workunit, side(unit), &may) {
            let detail = format!("{} waits and {} asks", unit.id, farm.host(host).info.name);
            return Err(Violation::new("nobody-idles", detail));
        }
    }
    for job in farm.jobs().filter(|job| of_lane(job.id) && job.has_untouched()) {
        if let Some(host) = farm.first_asking_able(job.id, &may).filter(|_| !farm.is_full()) {
            let detail = format!("{} is untouched and {} asks", job.id, farm.host(host).info.name);
            return Err(Violation::new("nobody-idles", detail));
        }
    }
    Ok(())
}
