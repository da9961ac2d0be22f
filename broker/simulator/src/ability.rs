//! Whose hosts can do something that the published systems do not say.
//!
//! What a host does with a replica when a render comes, or how soon a host that left is missed,
//! is no part of a policy. A scenario gives it to ours alone, to all, or to none, so that a
//! comparison shows what comes of the policy and what of the hosts.

/// Whose hosts have an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ability {
    Nobody,
    Gleaner,
    Everybody,
}

impl Ability {
    /// The words for it, ours alone first.
    pub(crate) const OURS_FIRST: &'static [&'static str] = &["gleaner", "all", "none"];
    /// The words for it, nobody first.
    pub(crate) const NOBODY_FIRST: &'static [&'static str] = &["none", "gleaner", "all"];

    /// What one of these words means.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "gleaner" => Self::Gleaner,
            "all" => Self::Everybody,
            _ => Self::Nobody,
        }
    }

    /// Whether the hosts of a system have it.
    pub(crate) fn is_of(self, policy: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Gleaner => policy == "gleaner",
            Self::Everybody => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_whose_ability_it_is() {
        for (word, plain, ours) in
            [("none", false, false), ("gleaner", false, true), ("all", true, true)]
        {
            let ability = Ability::of(word);
            assert_eq!((ability.is_of("plain"), ability.is_of("gleaner")), (plain, ours), "{word}");
            assert!(Ability::OURS_FIRST.contains(&word) && Ability::NOBODY_FIRST.contains(&word));
        }
    }
}
