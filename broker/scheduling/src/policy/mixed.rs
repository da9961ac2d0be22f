//! Policies of mixed batches: a matrix of expected times of jobs on hosts is mapped at once.

mod batch;
mod gleaner;
mod mapping;
mod one_by_one;
mod relaxation;
mod rule;
mod run_times;
mod times;
mod whole_batch;

pub use batch::{Batch, BatchConfig};
pub use gleaner::Effort;
pub use mapping::Mapping;
pub use relaxation::{Part, Relaxation};
pub use rule::Rule;
pub use times::{NEVER, Times};
