//! Scenarios of the family `replication`: a dataset in copies on many shared servers.
//!
//! Every server has a disk with copies of some of the dataset's chunks and computes on one of
//! them at a time; people share it, so that its speed varies ([`load`]). The broker learns of
//! a server's speed only from reports. Moves of copies go over a network ([`network`]) in which
//! every pair of servers has a path of its own and a source's paths share what it can send.

mod figures;
mod given;
mod load;
pub(crate) mod network;
mod placement;
mod scenario;
pub(crate) mod servers;
mod trace;
pub(crate) mod world;

pub(crate) use self::load::{Day, SAMPLES};
pub(crate) use self::trace::read_trace;
use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[&scenario::Replication];
