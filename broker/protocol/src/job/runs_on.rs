//! On which hosts a job may run.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Origin;

/// The hosts that a job's replicas, and with them its inputs, may reach.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum RunsOn {
    /// All.
    #[default]
    Any,
    /// Farm hosts: nothing of the job reaches a volunteer's machine.
    Farm,
    /// Desktops.
    Desktop,
}

impl RunsOn {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::Any, Self::Farm, Self::Desktop];

    /// The word for it, as on a command line and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Farm => "farm",
            Self::Desktop => "desktop",
        }
    }

    /// Whether hosts of this origin are among them.
    #[must_use]
    pub const fn admits(self, origin: Origin) -> bool {
        match self {
            Self::Any => true,
            Self::Farm => matches!(origin, Origin::Farm),
            Self::Desktop => matches!(origin, Origin::Desktop),
        }
    }
}

impl fmt::Display for RunsOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a choice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is none of any, farm and desktop")]
pub struct RunsOnError(String);

impl FromStr for RunsOn {
    type Err = RunsOnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || RunsOnError(text.chars().take(80).collect());
        Self::ALL.into_iter().find(|of| of.as_str() == text).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farm_job_reaches_no_desktop_and_the_other_way_round() {
        for (on, farm, desktop) in
            [("any", true, true), ("farm", true, false), ("desktop", false, true)]
        {
            let on: RunsOn = on.parse().expect("a choice");
            assert_eq!((on.admits(Origin::Farm), on.admits(Origin::Desktop)), (farm, desktop));
        }
        assert!("volunteers".parse::<RunsOn>().is_err());
    }
}
