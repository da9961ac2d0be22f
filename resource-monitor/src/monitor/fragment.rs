//! The fragment of one host, as the broker was told of it last.

use gleaner_protocol::{Epoch, Time};

/// Cores and memory that the farm leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) cores: u32,
    pub(super) memory_mib: u64,
}

impl Free {
    /// The smaller of both, of each.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            cores: self.cores.min(other.cores),
            memory_mib: self.memory_mib.min(other.memory_mib),
        }
    }
}

/// What the broker knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fragment {
    Open {
        free: Free,
        epoch: Epoch,
        /// When it was opened or confirmed last.
        told_at: Time,
    },
    /// And why, at present.
    Closed(String),
}
