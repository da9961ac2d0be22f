//! How often a workunit is tried again.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::ATTEMPTS_MAX;

/// Why an attempt at a workunit ended without an output.
///
/// A replica that a render drove out, that was taken back or that its host refused is no attempt.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The task failed, or its output broke the rules.
    Failed,
    /// It was not done when its lease ran out.
    TimedOut,
    /// Its host was not heard of for too long, or started again without it.
    Lost,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Failed, Self::TimedOut, Self::Lost];

    /// The word for it, as in a job's JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Lost => "lost",
        })
    }
}

/// Attempts of one workunit after which it fails, for each cause. How many *outputs* may disagree
/// is another limit: [`JobSpec::max_replicas`](super::JobSpec::max_replicas).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Attempts {
    /// Attempts that may fail.
    pub failed: u16,
    /// Attempts whose lease may run out.
    pub timed_out: u16,
    /// Attempts that may be lost with their host.
    pub lost: u16,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { failed: 5, timed_out: 5, lost: 20 }
    }
}

impl Attempts {
    /// So many attempts may end for this cause.
    #[must_use]
    pub const fn of(self, cause: Cause) -> u16 {
        match cause {
            Cause::Failed => self.failed,
            Cause::TimedOut => self.timed_out,
            Cause::Lost => self.lost,
        }
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failed, timed_out, lost } = self;
        write!(f, "failed={failed},timed-out={timed_out},lost={lost}")
    }
}

/// Not a list of attempts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no list of attempts: write failed=N, timed-out=N and lost=N, with commas between them, each once, N from 1 to {ATTEMPTS_MAX}"
)]
pub struct AttemptsError(String);

impl FromStr for Attempts {
    type Err = AttemptsError;

    /// As on a command line: `failed=5,timed-out=5,lost=20`. A cause that is left out keeps its
    /// default.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || AttemptsError(text.chars().take(80).collect());
        let mut attempts = Self::default();
        let mut named = Vec::new();
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or_else(refuse)?;
            let number: u16 = number.parse().map_err(|_| refuse())?;
            if named.contains(&name) || !(1..=ATTEMPTS_MAX).contains(&number) {
                return Err(refuse());
            }
            match name {
                "failed" => attempts.failed = number,
                "timed-out" => attempts.timed_out = number,
                "lost" => attempts.lost = number,
                _ => return Err(refuse()),
            }
            named.push(name);
        }
        Ok(attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_causes_and_leaves_the_others_as_they_are() {
        let of = |text: &str| text.parse::<Attempts>().expect(text);
        assert_eq!(of("timed-out=1"), Attempts { timed_out: 1, ..Attempts::default() });
        assert_eq!(of("lost=3,failed=2"), Attempts { failed: 2, timed_out: 5, lost: 3 });
        assert_eq!(of(&Attempts::default().to_string()), Attempts::default());
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_form_of_one() {
        for text in ["", "5", "failed", "failed=0", "failed=101", "failed=1,failed=2", "hung=1"] {
            let error = text.parse::<Attempts>().expect_err(text).to_string();
            assert!(error.contains("failed=N, timed-out=N and lost=N"), "{error}");
        }
    }

    #[test]
    fn a_job_may_name_some_causes() {
        let some: Attempts = serde_json::from_str(r#"{"lost":1}"#).expect("a part");
        assert_eq!(some, Attempts { lost: 1, ..Attempts::default() });
        assert!(serde_json::from_str::<Attempts>(r#"{"hung":1}"#).is_err());
    }
}
