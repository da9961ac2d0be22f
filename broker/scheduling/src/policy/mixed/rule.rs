//! The heuristics by their names.

use super::gleaner::{Effort, gleaner};
use super::mapping::Mapping;
use super::times::Times;
use super::whole_batch;
use crate::baselines::one_by_one;

/// How a batch is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// First come, first served, on the fastest free machine.
    Fcfs,
    /// On the fastest kind of machine only.
    Torque,
    /// On the machine that is ready first.
    Olb,
    /// On the machine that is fastest for it.
    Met,
    /// On the machine that has done it first.
    Mct,
    /// Shortest job first.
    Sjf,
    /// Longest job first.
    Ljf,
    /// Earliest of the earliest completion times first.
    MinMin,
    /// Latest of the earliest completion times first.
    MaxMin,
    /// Who suffers most first, one job for each machine per pass.
    Sufferage,
    /// Who suffers most first, one job per step.
    SufferageStep,
    /// The linear relaxation, made whole and searched from.
    Gleaner,
}

impl Rule {
    /// All of them; ours last.
    pub const ALL: [Self; 12] = [
        Self::Fcfs,
        Self::Torque,
        Self::Olb,
        Self::Met,
        Self::Mct,
        Self::Sjf,
        Self::Ljf,
        Self::MinMin,
        Self::MaxMin,
        Self::Sufferage,
        Self::SufferageStep,
        Self::Gleaner,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Torque => "torque",
            Self::Olb => "olb",
            Self::Met => "met",
            Self::Mct => "mct",
            Self::Sjf => "sjf",
            Self::Ljf => "ljf",
            Self::MinMin => "min-min",
            Self::MaxMin => "max-min",
            Self::Sufferage => "sufferage",
            Self::SufferageStep => "sufferage-step",
            Self::Gleaner => "gleaner",
        }
    }

    /// Whether it looks at times at all.
    #[must_use]
    pub const fn looks_at_times(self) -> bool {
        !matches!(self, Self::Olb)
    }

    /// Maps a batch; jobs that no machine can run are left out.
    #[must_use]
    pub fn map(self, times: &Times, effort: Effort) -> Mapping {
        match self {
            Self::Fcfs => one_by_one::fcfs(times),
            Self::Torque => one_by_one::torque(times),
            Self::Olb => one_by_one::olb(times),
            Self::Met => one_by_one::met(times),
            Self::Mct => one_by_one::mct(times),
            Self::Sjf => one_by_one::sjf(times),
            Self::Ljf => one_by_one::ljf(times),
            Self::MinMin => whole_batch::min_min(times),
            Self::MaxMin => whole_batch::max_min(times),
            Self::Sufferage => whole_batch::sufferage(times),
            Self::SufferageStep => whole_batch::sufferage_step(times),
            Self::Gleaner => gleaner(times, effort),
        }
    }
}
