//! The red button: all harvest of the farm is stopped, by somebody, for a reason.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{STOP_BY_CHARS_MAX, STOP_REASON_CHARS_MAX};

/// An order to harvest nothing, until it is lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Who gave it, in their own words.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When, by the monitor's clock.
    pub at: Timestamp,
}

impl Stop {
    /// As somebody gives it.
    ///
    /// # Errors
    /// A text that is empty, too long, or no line of text.
    pub fn new(by: &str, reason: &str, at: Timestamp) -> Result<Self, StopError> {
        let by = line("by", by, STOP_BY_CHARS_MAX)?;
        let reason = line("reason", reason, STOP_REASON_CHARS_MAX)?;
        Ok(Self { by, reason, at })
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, reason, at } = self;
        write!(f, "the farm's harvest was stopped by {by} at {at:.0}: {reason}")
    }
}

fn line(key: &'static str, text: &str, chars_max: usize) -> Result<String, StopError> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(StopError::NoLine(key));
    }
    if text.chars().count() > chars_max {
        return Err(StopError::TooLong { key, chars_max });
    }
    Ok(text.to_owned())
}

/// A stop that says not who gave it, or why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StopError {
    /// Nothing, or more than a line.
    #[error("{0:?} is empty or more than a line: say in one line who stops the farm, and why")]
    NoLine(&'static str),
    /// Too much.
    #[error("{key:?} is longer than {chars_max} characters: say it shorter")]
    TooLong {
        /// Which of the two.
        key: &'static str,
        /// The most that is taken.
        chars_max: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_says_who_why_and_when_in_a_line() {
        let stop = Stop::new(" anna ", "renders are late", Timestamp::UNIX_EPOCH).expect("a stop");
        let expected =
            "the farm's harvest was stopped by anna at 1970-01-01T00:00:00Z: renders are late";
        assert_eq!(stop.to_string(), expected);
        for (by, reason) in [("", "why"), ("anna", " "), ("anna", "two\nlines")] {
            assert!(Stop::new(by, reason, Timestamp::UNIX_EPOCH).is_err(), "{by:?} {reason:?}");
        }
        let long = "x".repeat(STOP_REASON_CHARS_MAX + 1);
        let error = Stop::new("anna", &long, Timestamp::UNIX_EPOCH).expect_err("long").to_string();
        assert!(error.contains("\"reason\" is longer than"), "{error}");
    }
}
