//! The fragment of one host, as the broker was told of it last.

use gleaner_protocol::{Epoch, Time};

/// Cores and memory that the farm leaves, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) cores: u32,
    pub(super) memory_mib: u64,
    /// Cores that renders have booked.
    pub(super) booked_cores: u32,
    /// GPUs that renders have booked; none where one of them does not say.
    pub(super) booked_gpus: Option<u32>,
}

impl Free {
    /// The smaller of both, of each; and the more booked.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            cores: self.cores.min(other.cores),
            memory_mib: self.memory_mib.min(other.memory_mib),
            booked_cores: self.booked_cores.max(other.booked_cores),
            booked_gpus: together([self.booked_gpus, other.booked_gpus].into_iter(), u32::max),
        }
    }
}

/// GPUs that are booked, of which each booking may say a number: none where one of them does not say
/// and no other has any.
pub(super) fn together(
    booked: impl Iterator<Item = Option<u32>>,
    add: fn(u32, u32) -> u32,
) -> Option<u32> {
    let (mut known, mut is_known) = (0, true);
    for gpus in booked {
        is_known &= gpus.is_some();
        known = add(known, gpus.unwrap_or(0));
    }
    (is_known || known > 0).then_some(known)
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
