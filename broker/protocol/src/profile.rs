//! What is known of a job's workunits before they run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    CONFIDENCE_PERMILLE, FEATURE_NAME_BYTES_MAX, FEATURES_MAX, OutOfRange, PROFILE_S_MAX,
    check_range,
};
use crate::{DatasetId, HostKind};

/// What a submitter, or a predictor, knows beforehand of the workunits of a job. Policies plan
/// with it; no rule trusts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Expected run time of one workunit on a whole core of each kind of host, in microseconds.
    /// A kind that is not named cannot run it, where any is named.
    pub run_time_us: BTreeMap<HostKind, u64>,
    /// Expected CPU time of one workunit on a whole core of a host of whose kind nothing is said, in
    /// microseconds.
    pub cpu_us: Option<u64>,
    /// What its workunits read.
    pub reads: Option<Reads>,
    /// The interactive session that the job is a frame of: frames of one session are shown in
    /// their order.
    pub session: Option<u64>,
    /// When all of it is to be done, in milliseconds after its submission.
    pub due_ms: Option<u64>,
    /// The same as a time, in milliseconds of UTC; the broker makes the other of it when it accepts.
    pub due_at_ms: Option<u64>,
    /// Of [`Self::cpu_us`]: standard deviation of its logarithm, in thousandths, where it was predicted.
    pub cpu_sigma_permille: Option<u16>,
    /// What the broker found when it accepted the job; what a submitter says here counts for nothing.
    pub promised: Option<Promised>,
    /// How sure it is to be done in time for the broker to accept it, in thousandths.
    pub confidence_permille: Option<u16>,
    /// Most workunits of it that run at once; all of them where not given.
    pub parallel: Option<u32>,
    /// A replica keeps what it did up to its last checkpoint; these are so far apart, in
    /// milliseconds of its run time.
    pub checkpoint_ms: Option<u64>,
    /// How far out of order its workunits may run, in workunits from the first that has not ended: the
    /// task window of those that read a dataset. Any order where not given.
    pub window: Option<u32>,
    /// How large its work is, by names of the submitter's: run times are predicted from them.
    pub features: BTreeMap<String, Feature>,
}

impl Profile {
    /// Checks what a submitter sent.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), ProfileError> {
        let range = |field, value: Option<u64>, min, max| {
            value.map_or(Ok(()), |value| check_range(field, value, min, max))
        };
        let longest = self.run_time_us.values().max().copied();
        range("run_time_us", longest, 0, PROFILE_S_MAX * 1_000_000)?;
        range("cpu_us", self.cpu_us, 0, PROFILE_S_MAX * 1_000_000)?;
        range("checkpoint_ms", self.checkpoint_ms, 0, PROFILE_S_MAX * 1_000)?;
        let confidence = self.confidence_permille.map(u64::from);
        let (least, most) = CONFIDENCE_PERMILLE.into_inner();
        range("confidence_permille", confidence, least.into(), most.into())?;
        range("window", self.window.map(u64::from), 1, u64::from(u32::MAX))?;
        if self.window.is_some() && self.reads.is_none() {
            return Err(ProfileError::WindowOfNothing);
        }
        if self.features.len() > FEATURES_MAX {
            return Err(FeatureError::TooMany(self.features.len()).into());
        }
        Ok(self.features.keys().try_for_each(|name| check_feature_name(name))?)
    }
}

/// Why a profile is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// A number outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// A window without an order.
    #[error("a window is for jobs that read the chunks of a dataset: this one reads none")]
    WindowOfNothing,
    /// A feature.
    #[error("features: {0}")]
    Feature(#[from] FeatureError),
}

/// Checks the name of a feature: letters, digits, `_`, `-` and `.`.
///
/// # Errors
/// It is none.
pub fn check_feature_name(name: &str) -> Result<(), FeatureError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_name = (1..=FEATURE_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain);
    let shown = || name.chars().take(FEATURE_NAME_BYTES_MAX).collect();
    if is_name { Ok(()) } else { Err(FeatureError::Name(shown())) }
}

/// A number that says how large work is: any that is finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct Feature(f64);

// A finite number is equal to itself.
impl Eq for Feature {}

impl Feature {
    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<Feature> for f64 {
    fn from(Feature(number): Feature) -> Self {
        number
    }
}

impl TryFrom<f64> for Feature {
    type Error = FeatureError;

    fn try_from(number: f64) -> Result<Self, FeatureError> {
        if number.is_finite() {
            Ok(Self(number))
        } else {
            Err(FeatureError::NotFinite(number.to_string()))
        }
    }
}

impl std::str::FromStr for Feature {
    type Err = FeatureError;

    fn from_str(text: &str) -> Result<Self, FeatureError> {
        let number = text.parse::<f64>();
        let not_finite = || FeatureError::NotFinite(text.chars().take(40).collect());
        number.map_err(|_| not_finite())?.try_into().map_err(|_| not_finite())
    }
}

/// Why a feature is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FeatureError {
    /// Not a name.
    #[error(
        "{0:?} is no name of a feature: up to {FEATURE_NAME_BYTES_MAX} letters, digits, _, - and ."
    )]
    Name(String),
    /// No number, or an infinite one.
    #[error("{0:?} is no finite number, which the value of a feature must be")]
    NotFinite(String),
    /// More than are used.
    #[error("{0} features, at most {FEATURES_MAX} can be given")]
    TooMany(usize),
}

/// How sure a job was to be in time when it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promised {
    /// The chance, in thousandths.
    pub chance_permille: u16,
    /// When it was expected to be done, in milliseconds after its submission.
    pub expected_end_ms: Option<u64>,
}

/// A dataset of which each workunit of a job reads a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Which.
    pub dataset: DatasetId,
    /// Size of one chunk, in bytes.
    pub chunk_bytes: u64,
    /// The chunk of the first workunit: workunit `i` reads chunk `first + i`.
    #[serde(default)]
    pub first: u32,
}

/// A part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId {
    /// Of which dataset.
    pub dataset: DatasetId,
    /// Its place in it, from 0.
    pub index: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_a_finite_number_with_a_plain_name() {
        for number in ["0", "-1.5", "2e300"] {
            assert!(number.parse::<Feature>().is_ok(), "{number}");
        }
        for text in ["nan", "inf", "-inf", "1e999", "", "x", "1,5"] {
            let error = text.parse::<Feature>().expect_err(text).to_string();
            assert!(error.contains("is no finite number"), "{error}");
        }
        for json in [r#"{"features":{"a":1e999}}"#, r#"{"features":{"a":null}}"#] {
            assert!(serde_json::from_str::<Profile>(json).is_err(), "{json}");
        }
        let with = |names: &[&str]| {
            let feature = Feature::try_from(1.0).expect("finite");
            let features = names.iter().map(|name| ((*name).to_owned(), feature)).collect();
            Profile { features, ..Profile::default() }.check().map_err(|error| error.to_string())
        };
        assert_eq!(with(&["samples", "dim_x", "a-b.c"]), Ok(()));
        for name in ["", "a b", "ü", &"x".repeat(65)] {
            assert!(with(&[name]).expect_err(name).contains("is no name of a feature"));
        }
        let many: Vec<String> = (0..17).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let says = "features: 17 features, at most 16 can be given";
        assert_eq!(with(&many), Err(says.to_owned()));
    }

    #[test]
    fn numbers_are_bounded() {
        let check = |field: &str, value: &str| {
            let json = format!(r#"{{"{field}":{value}}}"#);
            let profile: Profile = serde_json::from_str(&json).expect("a profile");
            profile.check().map_err(|error| error.to_string())
        };
        for (field, least, most) in [
            ("cpu_us", 0_u64, 100_000_000_000_000_u64),
            ("checkpoint_ms", 0, 100_000_000_000),
            ("confidence_permille", 500, 999),
        ] {
            assert_eq!(check(field, &least.to_string()), Ok(()));
            assert_eq!(check(field, &most.to_string()), Ok(()));
            for outside in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
                let says = format!("{field} is {outside}, must be from {least} to {most}");
                assert_eq!(check(field, &outside.to_string()), Err(says));
            }
        }
        let times = |fat: u64| check("run_time_us", &format!(r#"{{"fat":{fat},"light":5}}"#));
        assert_eq!(times(100_000_000_000_000), Ok(()));
        let says = "run_time_us is 100000000000001, must be from 0 to 100000000000000";
        assert_eq!(times(100_000_000_000_001), Err(says.to_owned()));
    }
}
