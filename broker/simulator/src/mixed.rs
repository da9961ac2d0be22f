//! Scenarios of the family `mixed`: a batch whose expected times on each kind of machine are
//! known is mapped at once.

mod etc;
mod figures;
pub(crate) mod npairs;
mod profile;
mod workload;
mod world;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[&npairs::Npairs, &etc::EtcFile];
