//! Policies of partitioned datasets: a workunit runs where a copy of its chunk is.
//!
//! The jobs of these policies read a dataset ([`Profile::reads`]), workunit `i` chunk `i`, and
//! the chunks lie in copies on the hosts' disks. Which host runs what is one half of the
//! scheduling, which host gets a further copy of what is the other.
//!
//! [`Gleaner`] is the default. [`WorkQueue`] is what the others are measured against, [`CoScheduling`] the
//! published policy (with moves of copies, or without them as [`CoScheduling::adaptive`]).
//!
//! # Invariants
//! - Nothing is started on a host that has no copy of the chunk. The core has no such rule: the
//!   hosts of other lanes load a chunk that they lack.
//! - Nothing is started outside the window: a job's first workunit that has not ended and the
//!   `window - 1` behind it.
//!
//! [`CoScheduling`]: crate::baselines::CoScheduling
//! [`CoScheduling::adaptive`]: crate::baselines::CoScheduling::adaptive
//! [`Profile::reads`]: gleaner_protocol::Profile::reads
//! [`WorkQueue`]: crate::baselines::WorkQueue

pub(crate) mod board;
pub(crate) mod config;
mod gleaner;
mod name;
mod outlook;
pub(crate) mod pace;
mod plan;
pub(crate) mod tasks;

pub use config::ReplicationConfig;
pub use gleaner::Gleaner;
pub use name::Name;
