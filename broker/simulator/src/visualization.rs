//! Scenarios of the family `visualization`: users turn volumes while others have animations made.
//!
//! Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
//! Visualization Services using GPU Clusters", 2012.

mod node;
mod rendering;
mod rows;
mod service;
mod settings;
mod tally;
#[cfg(test)]
mod tests;
mod timed;
mod workload;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] =
    &[&rows::FIRST, &rows::SECOND, &rows::THIRD, &rows::FOURTH];
