//! Storms that are over soon.

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{StormConfig, StormReport, storm};

/// The policies of the fragment-aware paper.
pub(crate) const PUBLISHED: [PolicyName; 2] = [PolicyName::FragmentAware, PolicyName::Plain];

pub(crate) fn small(policy: PolicyName) -> StormConfig {
    let lasts = Span::from_secs(1_200);
    StormConfig { policy, hosts: 10, lasts, fury: 8, ..StormConfig::default() }
}

pub(crate) fn run(seed: u64, config: &StormConfig) -> StormReport {
    storm(seed, config).unwrap_or_else(|failure| panic!("{failure}"))
}
