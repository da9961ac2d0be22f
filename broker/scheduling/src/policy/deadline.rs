//! Policies of the deadline lane: predicted run times, admission, shares of cores.

mod admission;
mod book;
mod capacity;
mod cores;
mod eladur;
mod estimate;
mod fcfs_backfill;
mod feasible;
mod gleaner;
mod grid_engine;
mod least_squares;
mod name;
mod predictor;
mod survival;
#[cfg(test)]
mod tests;

pub use capacity::{Claim, Overload, fits};
pub use eladur::{Eladur, EladurConfig};
pub use fcfs_backfill::{FcfsBackfill, FcfsBackfillConfig};
pub use gleaner::{Gleaner, GleanerConfig};
pub use grid_engine::GridEngine;
pub use name::Name;
pub use predictor::{FitError, PARAMETERS_MAX, Predictor, RecordedRun};
