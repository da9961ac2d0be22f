//! Applications that are built in.

use std::error::Error;

use gleaner_protocol::OutputFile;
use thiserror::Error as ThisError;

use crate::plan::Plan;

/// An application that is built in. It is deterministic: the same index and item give the same
/// output on every host; where it is floating point, on every host of one kind of processor.
///
/// A kernel without a natural cut, such as a count that tells its progress as it goes, is a plan
/// of one unit: it is stopped with its process, as everything else that runs here can be.
pub trait Kernel: Sync {
    /// Its name in jobs and configurations.
    fn name(&self) -> &'static str;

    /// What there is to do for one workunit.
    ///
    /// # Errors
    /// The item is not one of this kernel.
    fn plan(
        &self,
        index: u32,
        item: Option<&str>,
    ) -> Result<Box<dyn Plan<Output = Vec<OutputFile>, Error = KernelError>>, KernelError>;
}

/// Why a kernel has no output for a workunit.
#[derive(Debug, ThisError)]
pub enum KernelError {
    /// The workunit has no item, or one that is malformed.
    #[error("item {item:?}: {problem}")]
    Item {
        /// The beginning of the item.
        item: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A part of the work cannot be done.
    #[error("{kernel}: {source}")]
    Work {
        /// The kernel.
        kernel: &'static str,
        /// What it ran into, on what, and what to do.
        source: Box<dyn Error + Send + Sync>,
    },
}
