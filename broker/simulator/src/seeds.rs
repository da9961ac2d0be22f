//! Which seeds a scenario is run from.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use crate::limits::SEEDS_MAX;

/// A run for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeds {
    /// One: its numbers are told as they are.
    One(u64),
    /// Those from `start` to before `end`: what is told is how their numbers spread.
    Several(Range<u64>),
}

/// Why a text names no seeds.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SeedsError {
    /// It has another form.
    #[error("{0:?} is no range of seeds: expected A..B (B left out) or A..=B, as in 0..30")]
    Form(String),
    /// It has none.
    #[error("there is no seed in {0}: the first has to be less than the second")]
    Empty(String),
    /// It has too many.
    #[error("{0} are more than {SEEDS_MAX} seeds")]
    TooMany(String),
}

impl Seeds {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.count()).map(|place| self.at(place))
    }

    /// The one at a place of the order, of `0..count()`.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        match self {
            Self::One(seed) => *seed,
            Self::Several(range) => range.start + place,
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Several(range) => range.end - range.start,
        }
    }
}

impl FromStr for Seeds {
    type Err = SeedsError;

    fn from_str(text: &str) -> Result<Self, SeedsError> {
        let form = || SeedsError::Form(text.to_owned());
        let (start, end) = text.split_once("..").ok_or_else(form)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| form());
        let start = number(start)?;
        let end = match end.strip_prefix('=') {
            Some(last) => number(last)?.checked_add(1).ok_or_else(form)?,
            None => number(end)?,
        };
        match end.checked_sub(start) {
            None | Some(0) => Err(SeedsError::Empty(text.to_owned())),
            Some(count) if count > SEEDS_MAX => Err(SeedsError::TooMany(text.to_owned())),
            Some(_) => Ok(Self::Several(start..end)),
        }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(seed) => write!(f, "{seed}"),
            Self::Several(range) => write!(f, "{}..{}", range.start, range.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_written() {
        let seeds: Seeds = "3..30".parse().expect("a range");
        assert_eq!((seeds.count(), seeds.to_string().as_str()), (27, "3..30"));
        assert!(seeds.iter().eq(3..30));
        assert!(Seeds::One(u64::MAX).iter().eq([u64::MAX]));
        assert_eq!("3..=29".parse(), Ok(seeds));
    }

    #[test]
    fn what_is_no_range_is_refused_in_words() {
        for text in ["", "7", "a..b", "1..", "..2", "-1..2", "1...3", "1.5..2", "0..=x"] {
            let error = Seeds::from_str(text).expect_err(text);
            assert!(matches!(error, SeedsError::Form(_)), "{text}: {error}");
        }
        for text in ["7..7", "9..3"] {
            let error = Seeds::from_str(text).expect_err(text);
            assert!(matches!(error, SeedsError::Empty(_)), "{text}: {error}");
        }
        let error = Seeds::from_str("0..99999999999").expect_err("years");
        assert!(error.to_string().contains("more than 1000000 seeds"), "{error}");
        let error = Seeds::from_str("0..=18446744073709551615").expect_err("no end");
        assert!(matches!(error, SeedsError::Form(_)), "{error}");
    }
}
