//! Policies of the deadline lane: predicted run times, admission, shares of cores.

pub(crate) mod admission;
pub(crate) mod book;
mod capacity;
pub(crate) mod cores;
pub(crate) mod estimate;
mod feasible;
mod gleaner;
mod least_squares;
mod name;
mod predictor;
mod survival;
#[cfg(test)]
mod tests;

pub use capacity::{Claim, Overload, fits};
pub use gleaner::{Gleaner, GleanerConfig};
pub use name::Name;
pub use predictor::{FitError, PARAMETERS_MAX, Predictor, RecordedRun};
