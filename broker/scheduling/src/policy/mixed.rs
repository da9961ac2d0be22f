//! Policies of mixed batches: a matrix of expected times of jobs on hosts is mapped at once.

mod batch;
mod gleaner;
pub(crate) mod mapping;
mod relaxation;
mod rule;
mod run_times;
pub(crate) mod times;
mod whole_batch;

pub use batch::{Batch, BatchConfig};
pub use gleaner::Effort;
pub use mapping::Mapping;
pub use relaxation::{Part, Relaxation};
pub use rule::Rule;
pub use times::{NEVER, Times};
