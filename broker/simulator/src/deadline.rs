//! Scenarios of the family `deadline`: bags of tasks that are due at a time.
//!
//! Machines of one core run tasks under shares of it ([`host`]); how guests share a core is
//! [`shared_core`]. Beside the policies stands what one could do who knows everything before
//! ([`clairvoyant`]).

mod clairvoyant;
mod clinic;
mod contest;
mod figures;
mod host;
mod limits;
mod predictor;
mod random;
mod shared_core;
mod sharing;
pub(crate) mod tables;
mod taken_back;
pub(crate) mod workload;
mod world;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[
    &predictor::PredictorErrors,
    &clinic::Clinic,
    &random::Random,
    &taken_back::TakenBack,
    &sharing::SharedCore,
];
