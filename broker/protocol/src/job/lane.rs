//! Classes of jobs that share a farm.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A class of jobs with a policy of its own. A fragment is offered to the lanes in this order, and
/// a lane may take what lanes behind it hold.
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
pub enum Lane {
    /// Frames that a person waits for, and animations behind them.
    Rendering,
    /// Due at a time.
    Deadline,
    /// Workunit `i` reads chunk `i` of a dataset.
    Dataset,
    /// A batch that is to be done as soon as possible as a whole, on hosts that differ.
    Batch,
    /// Malleable work that takes what is left.
    #[default]
    Background,
}

impl Lane {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Rendering, Self::Deadline, Self::Dataset, Self::Batch, Self::Background];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rendering => "rendering",
            Self::Deadline => "deadline",
            Self::Dataset => "dataset",
            Self::Batch => "batch",
            Self::Background => "background",
        }
    }

    /// Its place in [`Lane::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The lanes behind it, in order.
    pub fn behind(self) -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(move |other| *other > self)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// There is no lane of this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no lane {0:?}; there are rendering, deadline, dataset, batch and background")]
pub struct UnknownLane(String);

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(text: &str) -> Result<Self, UnknownLane> {
        let known = Self::ALL.into_iter().find(|lane| lane.as_str() == text);
        known.ok_or_else(|| UnknownLane(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_their_places_and_names() {
        for (place, lane) in Lane::ALL.into_iter().enumerate() {
            assert_eq!((lane.index(), lane.as_str().parse()), (place, Ok(lane)));
            assert_eq!(serde_json::to_string(&lane).expect("a word"), format!("\"{lane}\""));
            assert_eq!(lane.behind().count(), Lane::COUNT - 1 - place);
        }
        let error = "interactive".parse::<Lane>().expect_err("it is not called so").to_string();
        assert!(error.contains("no lane \"interactive\"; there are rendering,"), "{error}");
    }
}
