//! How much of a core a lease may use.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A share of cores in thousandths of one core; a slot is a whole core.
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
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// One core.
    pub const WHOLE: Self = Self(1000);

    /// So many thousandths of a core.
    #[must_use]
    pub const fn permille(permille: u32) -> Self {
        Self(permille)
    }

    /// So many hundredths of a core.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self(percent.saturating_mul(10))
    }

    /// So many whole cores.
    #[must_use]
    pub const fn cores(cores: u32) -> Self {
        Self(cores.saturating_mul(1000))
    }

    /// In thousandths of a core.
    #[must_use]
    pub const fn as_permille(self) -> u32 {
        self.0
    }

    /// As a fraction of a core.
    #[must_use]
    pub fn as_cores(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// Whole cores in it.
    #[must_use]
    pub const fn whole_cores(self) -> u32 {
        self.0 / 1000
    }

    /// Cores that it is on, the last of them maybe in part.
    #[must_use]
    pub const fn cores_touched(self) -> u32 {
        self.0.div_ceil(1000)
    }

    /// The sum, at the type's end where it is more.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, nothing where it is less.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", f64::from(self.0) / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_cores() {
        let half = Share::permille(500);
        assert_eq!(half.plus(half), Share::WHOLE);
        assert_eq!(Share::cores(2).minus(half).whole_cores(), 1);
        assert_eq!(half.minus(Share::WHOLE), Share::NONE);
        assert_eq!([half, Share::NONE, Share::WHOLE].map(Share::cores_touched), [1, 0, 1]);
        assert_eq!(Share::WHOLE.plus(half).cores_touched(), 2);
        assert_eq!(half.to_string(), "50.0 %");
    }
}
