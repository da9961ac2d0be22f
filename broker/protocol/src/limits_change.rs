//! What a replica that runs may use of its host from now on.

use serde::{Deserialize, Serialize};

use crate::Share;

/// A limit that is set, or taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit<T> {
    /// There is none any more.
    Lifted,
    /// It is this.
    At(T),
}

impl<T> Limit<T> {
    /// What it is, where there is one.
    #[must_use]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Lifted => None,
            Self::At(value) => Some(value),
        }
    }
}

/// Limits of one replica, until it ends; what is not given stays as it is. A host that cannot keep a
/// limit goes on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsChange {
    /// Share of cores.
    #[serde(default)]
    pub share: Option<Limit<Share>>,
    /// Weight beside other replicas, in thousandths of the usual.
    #[serde(default)]
    pub weight_permille: Option<u32>,
    /// Memory with all that it has started, in MiB.
    #[serde(default)]
    pub memory_mib: Option<Limit<u64>>,
}

impl LimitsChange {
    /// Nothing changes.
    pub const NONE: Self = Self { share: None, weight_permille: None, memory_mib: None };

    /// A share, and nothing else.
    #[must_use]
    pub const fn to_share(share: Share) -> Self {
        Self { share: Some(Limit::At(share)), ..Self::NONE }
    }

    /// No share, and nothing else.
    #[must_use]
    pub const fn to_no_share() -> Self {
        Self { share: Some(Limit::Lifted), ..Self::NONE }
    }

    /// This, and what `later` changes of it.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self {
            share: later.share.or(self.share),
            weight_permille: later.weight_permille.or(self.weight_permille),
            memory_mib: later.memory_mib.or(self.memory_mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_later_holds_and_what_is_not_said_stays() {
        let memory_mib = Some(Limit::At(64));
        let first = LimitsChange { memory_mib, ..LimitsChange::to_no_share() };
        let later = LimitsChange::to_share(Share::permille(250));
        let both = LimitsChange { memory_mib, ..later };
        assert_eq!(first.then(later), both);
        assert_eq!(both.then(LimitsChange::NONE), both);
    }

    #[test]
    fn a_limit_reads_as_what_it_is() {
        let share = LimitsChange::to_share(Share::permille(250));
        let json = serde_json::to_string(&share).expect("plain");
        assert_eq!(json, r#"{"share":{"at":250},"weight_permille":null,"memory_mib":null}"#);
        let lifted: LimitsChange =
            serde_json::from_str(r#"{"memory_mib":"lifted"}"#).expect("a limit");
        assert_eq!(lifted.memory_mib.map(Limit::value), Some(None));
    }
}
