//! Scenarios of the family `visualization`: users turn volumes while others have animations made.
//!
//! Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
//! Visualization Services using GPU Clusters", 2012.

mod live;
mod node;
pub(crate) mod rendering;
mod rows;
pub(crate) mod service;
mod settings;
pub(crate) mod tally;
#[cfg(test)]
mod tests;
mod timed;
pub(crate) mod workload;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] =
    &[&rows::FIRST, &rows::SECOND, &rows::THIRD, &rows::FOURTH, &live::Live];
