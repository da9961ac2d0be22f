//! What becomes of a job's replicas that a render drives out.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{KEEP_S_MAX, SAVE_S_MAX};

/// What becomes of a replica whose core a render wants. It is frozen before the render starts in
/// any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum OnRelease {
    /// It is killed, and its workunit goes to another host.
    #[default]
    Kill,
    /// It stays frozen on its host, outside every slot, and goes on where the host has room again
    /// in time; else it is killed. The host's owner may allow less.
    Keep {
        /// For how long at most, in seconds.
        for_s: u64,
    },
    /// It is killed once it has saved where it is: it goes on for that, last of all, on cores that
    /// no render has booked. Where there are none it is killed at once.
    Checkpoint {
        /// How long it may take at most, in seconds.
        within_s: u64,
    },
}

impl OnRelease {
    /// How long a replica is kept where nothing else is said, in seconds.
    pub const KEEP_S: u64 = 600;
    /// How long a replica may take to save where nothing else is said, in seconds.
    pub const SAVE_S: u64 = 5;

    /// The number in it, with its name and the most that it may be.
    pub(super) const fn bound(self) -> Option<(&'static str, u64, u64)> {
        match self {
            Self::Kill => None,
            Self::Keep { for_s } => Some(("on_release.keep.for_s", for_s, KEEP_S_MAX)),
            Self::Checkpoint { within_s } => {
                Some(("on_release.checkpoint.within_s", within_s, SAVE_S_MAX))
            }
        }
    }
}

impl fmt::Display for OnRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("kill"),
            Self::Keep { for_s } => write!(f, "keep:{for_s}"),
            Self::Checkpoint { within_s } => write!(f, "checkpoint:{within_s}"),
        }
    }
}

/// Not a choice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is none of kill, keep, keep:SECONDS, checkpoint and checkpoint:SECONDS, with 1 to {KEEP_S_MAX} seconds to keep and 1 to {SAVE_S_MAX} to save"
)]
pub struct OnReleaseError(String);

impl FromStr for OnRelease {
    type Err = OnReleaseError;

    /// As on a command line: `kill`, `keep:600`, `checkpoint:5`, or without the number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || OnReleaseError(text.chars().take(80).collect());
        let (what, seconds) = match text.split_once(':') {
            Some((what, seconds)) => (what, Some(seconds.parse::<u64>().map_err(|_| refuse())?)),
            None => (text, None),
        };
        let choice = match (what, seconds) {
            ("kill", None) => Self::Kill,
            ("keep", seconds) => Self::Keep { for_s: seconds.unwrap_or(Self::KEEP_S) },
            ("checkpoint", seconds) => {
                Self::Checkpoint { within_s: seconds.unwrap_or(Self::SAVE_S) }
            }
            _ => return Err(refuse()),
        };
        match choice.bound() {
            Some((_, value, most)) if !(1..=most).contains(&value) => Err(refuse()),
            _ => Ok(choice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_said() {
        for (text, choice, said) in [
            ("kill", OnRelease::Kill, "kill"),
            ("keep", OnRelease::Keep { for_s: 600 }, "keep:600"),
            ("keep:7", OnRelease::Keep { for_s: 7 }, "keep:7"),
            ("checkpoint", OnRelease::Checkpoint { within_s: 5 }, "checkpoint:5"),
            ("checkpoint:60", OnRelease::Checkpoint { within_s: 60 }, "checkpoint:60"),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), said);
        }
        for text in
            ["", "freeze", "kill:1", "keep:", "keep:0", "keep:86401", "checkpoint:61", "keep:1m"]
        {
            let error = text.parse::<OnRelease>().expect_err(text).to_string();
            assert!(error.contains("keep:SECONDS"), "{error}");
        }
    }
}
