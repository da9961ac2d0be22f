//! The policies of the family by their names.

use super::{Gleaner, ReplicationConfig};
use crate::Policy;
use crate::baselines::{CoScheduling, WorkQueue};

/// A policy of partitioned datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Whoever asks gets the first workunit whose chunk it has.
    WorkQueue,
    /// As published, without moves of copies.
    Adaptive,
    /// As published.
    CoScheduling,
    /// Ours.
    Gleaner,
}

impl Name {
    /// All of them; ours last.
    pub const ALL: [Self; 4] = [Self::WorkQueue, Self::Adaptive, Self::CoScheduling, Self::Gleaner];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkQueue => "work-queue",
            Self::Adaptive => "adaptive",
            Self::CoScheduling => "co-scheduling",
            Self::Gleaner => "gleaner",
        }
    }

    /// A fresh one with its usual settings.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        let config = ReplicationConfig::default();
        match self {
            Self::WorkQueue => Box::new(WorkQueue::new(config.window)),
            Self::Adaptive => Box::new(CoScheduling::adaptive(config)),
            Self::CoScheduling => Box::new(CoScheduling::new(config)),
            Self::Gleaner => Box::new(Gleaner::new(config)),
        }
    }
}
