//! The scheduling core.
//!
//! [`Core`] is told what happened ([`Input`]) and says what is to be done ([`Effect`]); it has
//! no I/O, no clock and no randomness of its own. The broker's driver feeds it from real
//! agents, the simulator from a modelled farm: it is the same code.
//!
//! ```text
//!  Input ──► Core ──► Effect          Farm      jobs, workunits, replicas, hosts, leases: the
//!             │                                 rules that no policy can break
//!             ├── Farm ◄── Desk ◄─── Policy     what a fragment runs next
//!             └── Fact (through Effect::Persist): what must be on disk first
//! ```
//!
//! The [`Farm`] keeps the rules: who may run what, who has voted, what is decided. A [`Policy`]
//! keeps only its own order of things. It sees the farm, and acts on it through the [`Desk`],
//! which refuses what the rules forbid; so a new policy cannot break an invariant, and every
//! policy is measured under the same rules: the defaults, and in [`baselines`] the published ones that
//! they are compared with.
//!
//! # Invariants
//! Those of [`check_invariants`], after every input.

mod ability;
pub mod baselines;
mod core;
mod desk;
mod effect;
mod explain;
mod fact;
mod farm;
mod features;
mod input;
mod invariants;
pub mod limits;
mod policy;
mod trust;

pub use crate::core::{Core, CoreConfig, LaneConfig, RestoreError, TokenKey};
#[cfg(feature = "sabotage")]
pub use desk::Sabotage;
pub use desk::{Desk, Refusal};
pub use effect::{Effect, Patience, SubmitRefusal};
pub use explain::{TooLittle, WaitReason};
pub use fact::Fact;
pub use farm::{
    AccountLimit, AccountShare, Backoff, Begins, Ended, FailedAttempt, Farm, Host, HostIx, Job,
    JobPhase, LaneLimits, Lease, OwnerlessVote, Party, Pending, Quota, Reputation, Rule,
    SavedState, Standing, Voice, Vote, VoterIx, Workunit, WorkunitIx,
};
pub use features::{application, features};
pub use input::{Input, ReportedOutcome, RequestId};
pub use invariants::{INVARIANTS, Violation, check_invariants};
pub use policy::{Change, Decline, FragmentAware, Gleaner, LanePolicy, Policy, PolicyName};
pub use policy::{PolicyStep, Trigger, UnknownPolicy, Watch, Watched};
pub use policy::{deadline, mixed, replication, visualization};
