//! The policies of the family by their names.

use gleaner_protocol::Span;

use super::{Gleaner, TestRun};
use crate::Policy;
use crate::baselines::{FairSharing, FirstCome, Ours};

/// A policy of the rendering lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// First come, first served, on the node that is free first.
    Fcfs,
    /// The same, with data locality.
    Fcfsl,
    /// The same, with a uniform partition.
    Fcfsu,
    /// The shortest job of each window first.
    Sf,
    /// Fair sharing.
    Fs,
    /// As published.
    Ours,
    /// Ours.
    Gleaner,
}

/// The scheduling cycle ω and the window of `sf` on a farm: less than the time of a frame.
const LIVE_CYCLE: Span = Span::from_millis(10);

impl Name {
    /// All of them; ours last.
    pub const ALL: [Self; 7] =
        [Self::Fcfs, Self::Fcfsl, Self::Fcfsu, Self::Sf, Self::Fs, Self::Ours, Self::Gleaner];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Fcfsl => "fcfsl",
            Self::Fcfsu => "fcfsu",
            Self::Sf => "sf",
            Self::Fs => "fs",
            Self::Ours => "ours",
            Self::Gleaner => "gleaner",
        }
    }

    /// A fresh one with the settings of a farm.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        self.build_on(TestRun::default())
    }

    /// The same, of a farm on which a test run measured this.
    #[must_use]
    pub fn build_on(self, run: TestRun) -> Box<dyn Policy> {
        self.build_with(run, LIVE_CYCLE, LIVE_CYCLE)
    }

    /// A fresh one by what a test run measured, with this cycle ω and this window of `sf`.
    #[must_use]
    pub fn build_with(self, run: TestRun, omega: Span, window: Span) -> Box<dyn Policy> {
        match self {
            Self::Fcfs => Box::new(FirstCome::fcfs(run)),
            Self::Fcfsl => Box::new(FirstCome::fcfsl(run)),
            Self::Fcfsu => Box::new(FirstCome::fcfsu(run)),
            Self::Sf => Box::new(FirstCome::shortest_first(run, window)),
            Self::Fs => Box::new(FairSharing::new(run)),
            Self::Ours => Box::new(Ours::new(run, omega)),
            Self::Gleaner => Box::new(Gleaner::new(run)),
        }
    }
}
