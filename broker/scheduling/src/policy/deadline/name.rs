//! The policies of the family by their names.

use gleaner_protocol::Span;

use super::{Gleaner, GleanerConfig};
use crate::Policy;
use crate::baselines::{Eladur, EladurConfig, FcfsBackfill, FcfsBackfillConfig, GridEngine};

/// A policy with deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// First come, first served, whatever the deadlines.
    GridEngine,
    /// Reservations, with backfilling.
    FcfsBackfill,
    /// Elastic shares of cores, as published.
    Eladur,
    /// Least laxity first.
    Gleaner,
}

impl Name {
    /// All of them; ours last.
    pub const ALL: [Self; 4] = [Self::GridEngine, Self::FcfsBackfill, Self::Eladur, Self::Gleaner];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GridEngine => "grid-engine",
            Self::FcfsBackfill => "fcfs-backfill",
            Self::Eladur => "eladur",
            Self::Gleaner => "gleaner",
        }
    }

    /// A fresh one with its usual settings.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        self.build_with(EladurConfig::default().monitor)
    }

    /// The same, the steps of whose monitor are so far apart, where it has one.
    #[must_use]
    pub fn build_with(self, monitor: Span) -> Box<dyn Policy> {
        match self {
            Self::GridEngine => Box::new(GridEngine::default()),
            Self::FcfsBackfill => Box::new(FcfsBackfill::new(FcfsBackfillConfig::default())),
            Self::Eladur => {
                Box::new(Eladur::new(EladurConfig { monitor, ..EladurConfig::default() }))
            }
            Self::Gleaner => Box::new(Gleaner::new(GleanerConfig::default())),
        }
    }
}
