//! What ends a module from our side, while it runs.

use thiserror::Error;

/// Why it ends.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Halt {
    /// It said so.
    #[error("it ended with exit code {0}")]
    Exit(i32),
    /// The agent wants its core back.
    #[error("it was stopped")]
    Stopped,
    /// It has had its CPU time.
    #[error("it took more than its {0} s of CPU time: raise cpu_s, or split the workunit")]
    OutOfTime(u64),
    /// It has executed its instructions.
    #[error("it executed more than its {0} instructions: raise fuel, or split the workunit")]
    OutOfFuel(u64),
    /// It asked for something that ends it.
    #[error("{0}")]
    Refused(String),
    /// This host failed, and not the module.
    #[error("this host failed: {0}")]
    Host(String),
}
