//! The systems that are compared: a policy, and what belongs to it outside of the core.

use gleaner_scheduling::baselines::{BoincAdaptive, Plain};
use gleaner_scheduling::{FragmentAware, Gleaner, Policy};

use crate::ability::Ability;

/// A policy with its agents and its submitter's habits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Plain,
    FragmentAware,
    BoincAdaptive,
    Gleaner,
}

impl System {
    pub(super) const NAMES: &'static [&'static str] =
        &["plain", "fragment-aware", "boinc-adaptive", "gleaner"];

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Plain, Self::FragmentAware, Self::BoincAdaptive, Self::Gleaner];
        all.into_iter().zip(Self::NAMES).find(|(_, of)| **of == name).map(|(system, _)| system)
    }

    pub(super) fn policy(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Plain => Box::new(Plain::default()),
            Self::FragmentAware => Box::new(FragmentAware::default()),
            Self::BoincAdaptive => Box::new(BoincAdaptive::new(seed)),
            Self::Gleaner => Box::new(Gleaner::new(seed)),
        }
    }

    /// Whether jobs name the error that they allow; else all are replicated alike.
    pub(super) fn names_error(self) -> bool {
        matches!(self, Self::BoincAdaptive | Self::Gleaner)
    }

    /// Whether its hosts have an ability.
    pub(super) fn has(self, ability: Ability) -> bool {
        ability.is_of(Self::NAMES[self as usize])
    }
}
