//! Policies of the interactive and batch rendering lanes: tasks on the nodes that have their
//! chunks.
//!
//! A job renders a frame of a dataset; its workunit *i* reads chunk *i*, as its
//! [`Profile`](gleaner_protocol::Profile) says. Frames of one user action carry the action's
//! number as their session; a job without a session is a batch job. Hosts keep the chunks that
//! they read in memory, as many as they have room for
//! ([`HostInfo::chunk_cache_mib`](gleaner_protocol::HostInfo)), and drop the least recently used
//! ones first.

pub(crate) mod board;
pub(crate) mod catalogue;
mod costs;
mod flow;
mod gleaner;
mod name;
mod recency;
mod tables;

pub use costs::TestRun;
pub use flow::{Flow, Grade, PictureOf, Wish};
pub use gleaner::Gleaner;
pub use name::Name;
pub use recency::Recency;
