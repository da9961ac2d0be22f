//! The policies of all lanes by their names.

use std::fmt;
use std::str::FromStr;

use gleaner_protocol::job::Lane;
use thiserror::Error;

use super::mixed::{Batch, BatchConfig, Effort, Rule};
use super::{Policy, PolicyName, deadline, replication, visualization};

/// How much the planner of the batch lane searches each time, so that a turn of the broker is not
/// held up by it.
const LIVE_EFFORT: Effort = Effort { entries: 50_000, relaxed_machines: 24 };
/// Most steps of one plan, for the same reason: they take 1.5 ms.
const LIVE_STEPS: usize = 1 << 21;
/// Those of a small farm, of which many plans can be made in a turn.
const LIVE_STEPS_AT_ONCE: usize = 1 << 16;
/// How long it rests after more, for each of them: planning takes a thirtieth of the broker's time.
const LIVE_REST_NS: u64 = 25;

/// A policy that a lane can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LanePolicy {
    /// One of those that serve each host as it asks. For any lane, and the only ones for
    /// [`Lane::Background`].
    Greedy(PolicyName),
    /// One of [`Lane::Deadline`].
    Deadline(deadline::Name),
    /// One of [`Lane::Dataset`].
    Dataset(replication::Name),
    /// One of [`Lane::Batch`].
    Batch(Rule),
    /// One of [`Lane::Rendering`].
    Rendering(visualization::Name),
}

impl LanePolicy {
    /// The one that a lane has where nothing else is said.
    #[must_use]
    pub const fn default_of(lane: Lane) -> Self {
        match lane {
            Lane::Deadline => Self::Deadline(deadline::Name::Gleaner),
            Lane::Batch => Self::Batch(Rule::Gleaner),
            Lane::Background => Self::Greedy(PolicyName::FragmentAware),
            Lane::Dataset => Self::Dataset(replication::Name::Gleaner),
            Lane::Rendering => Self::Rendering(visualization::Name::Gleaner),
        }
    }

    /// All that a lane of a farm can have.
    #[must_use]
    pub fn all_of(lane: Lane) -> Vec<Self> {
        match lane {
            Lane::Deadline => deadline::Name::ALL.into_iter().map(Self::Deadline).collect(),
            Lane::Batch => Rule::ALL.into_iter().map(Self::Batch).collect(),
            Lane::Background => PolicyName::ALL.into_iter().map(Self::Greedy).collect(),
            Lane::Dataset => replication::Name::ALL.into_iter().map(Self::Dataset).collect(),
            Lane::Rendering => visualization::Name::ALL.into_iter().map(Self::Rendering).collect(),
        }
    }

    /// The one of a lane with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(lane: Lane, name: &str) -> Result<Self, UnknownPolicy> {
        let all = Self::all_of(lane);
        let found = all.into_iter().find(|policy| policy.as_str() == name);
        found.ok_or_else(|| UnknownPolicy::of(lane, name))
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greedy(name) => name.as_str(),
            Self::Deadline(name) => name.as_str(),
            Self::Dataset(name) => name.as_str(),
            Self::Batch(rule) => rule.as_str(),
            Self::Rendering(name) => name.as_str(),
        }
    }

    /// A fresh one. What it leaves to chance depends on `seed`.
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Greedy(name) => name.build(seed),
            Self::Deadline(name) => name.build(),
            Self::Dataset(name) => name.build(),
            Self::Rendering(name) => name.build(),
            Self::Batch(rule) => Box::new(Batch::new(BatchConfig {
                rule,
                effort: LIVE_EFFORT,
                steps_max: LIVE_STEPS,
                steps_at_once: LIVE_STEPS_AT_ONCE,
                rest_ns_per_step: LIVE_REST_NS,
            })),
        }
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    /// One of the background lane.
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| UnknownPolicy::of(Lane::Background, text))
    }
}

impl fmt::Display for LanePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A lane has no policy of this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the {lane} lane has no policy {name:?}; nearest: {nearest:?}; there are {}", .known.join(", "))]
pub struct UnknownPolicy {
    lane: Lane,
    name: String,
    nearest: &'static str,
    known: Vec<&'static str>,
}

impl UnknownPolicy {
    fn of(lane: Lane, name: &str) -> Self {
        let known: Vec<_> = LanePolicy::all_of(lane).iter().map(|of| of.as_str()).collect();
        let distance = |of: &&&'static str| (!of.contains(name), strsim::levenshtein(of, name));
        let nearest = known.iter().min_by_key(distance).copied().expect("each lane has some");
        Self { lane, name: name.chars().take(80).collect(), nearest, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_policy_is_refused_with_the_nearest_one() {
        for (lane, name, nearest) in [
            (Lane::Background, "gleener", "gleaner"),
            (Lane::Background, "plane", "plain"),
            (Lane::Background, "boinc", "boinc-adaptive"),
            (Lane::Background, "", "plain"),
            (Lane::Deadline, "gridengine", "grid-engine"),
            (Lane::Batch, "suffer", "sufferage"),
            (Lane::Dataset, "workqueue", "work-queue"),
            (Lane::Rendering, "our", "ours"),
        ] {
            let error = LanePolicy::named(lane, name).expect_err(name).to_string();
            let says =
                format!("the {lane} lane has no policy {name:?}; nearest: {nearest:?}; there are ");
            assert!(error.starts_with(&says), "{error}");
        }
    }

    #[test]
    fn each_policy_is_found_by_its_name_and_has_it() {
        for lane in Lane::ALL {
            for policy in LanePolicy::all_of(lane) {
                assert_eq!(LanePolicy::named(lane, policy.as_str()), Ok(policy));
                assert_eq!(policy.build(1).name(), policy.as_str());
            }
        }
    }
}
