//! Whose word decides: the voices of owners.
//!
//! Whoever runs the farm vouches for some owners: those of its own hosts. From then on equal outputs
//! decide a workunit of a quorum of two or more only where one owner who is vouched for is among those
//! who gave them, or two owners who have earned a voice. An owner earns one by agreeing
//! [ten times in a row](crate::trust::is_proven) with what such voices decided without it, and loses
//! it with the first output that they decide against; then it takes four times as many. Votes of
//! others count towards a quorum beside these voices, never in their place.
//!
//! Where whoever runs the farm vouches for nobody, all have as much to say.
//!
//! # Invariants
//! - Hosts without an owner earn nothing: anybody can invent another name. Where each of them has a
//!   vote, all who may connect are trusted.

use std::collections::BTreeSet;

use gleaner_protocol::OwnerName;

use super::hosts::Hosts;
use super::{OwnerlessVote, VoterIx, Workunit};
use crate::trust;

/// Voices that it takes to decide: that of one owner who is vouched for counts twice.
pub(crate) const VOICES_WANTED: usize = 2;

/// What an owner's outputs were worth so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reputation {
    /// Outputs in a row that were what trusted owners decided without it.
    pub agreed: u32,
    /// Outputs that were not.
    pub disagreed: u16,
}

impl Reputation {
    /// Whether it has earned a voice.
    #[must_use]
    pub fn has_earned(self) -> bool {
        trust::is_proven(self.agreed, self.disagreed)
    }

    fn agree(&mut self) {
        self.agreed = self.agreed.saturating_add(1);
    }

    fn disagree(&mut self) {
        *self = Self { agreed: 0, disagreed: self.disagreed.saturating_add(1) };
    }
}

/// How much an owner has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Voice {
    /// It decides nothing.
    New,
    /// It decides together with another one.
    Earned,
    /// It decides.
    Vouched,
}

impl Voice {
    /// For how many voices it counts.
    #[must_use]
    pub const fn weight(self) -> usize {
        match self {
            Self::New => 0,
            Self::Earned => 1,
            Self::Vouched => VOICES_WANTED,
        }
    }
}

/// The owners with a reputation, by the number of their vote.
#[derive(Debug, Default)]
pub(super) struct Voices {
    of_owners: Vec<Reputation>,
    vouched: BTreeSet<VoterIx>,
}

impl Hosts {
    /// How much a voter has to say.
    pub(crate) fn voice(&self, voter: VoterIx) -> Voice {
        let is_open = self.voices.vouched.is_empty();
        match voter.owner_number() {
            _ if is_open || self.voices.vouched.contains(&voter) => Voice::Vouched,
            Some(_) if self.reputation(voter).has_earned() => Voice::Earned,
            Some(_) => Voice::New,
            None if self.ownerless == OwnerlessVote::Each => Voice::Vouched,
            None => Voice::New,
        }
    }

    /// Whether somebody is vouched for.
    pub(crate) fn has_vouched(&self) -> bool {
        !self.voices.vouched.is_empty()
    }

    /// Whoever runs the farm vouches for these owners from now on, and for nobody else; `false` where
    /// that is no news.
    pub(crate) fn vouch_for(&mut self, owners: &BTreeSet<OwnerName>) -> bool {
        let vouched = owners.iter().map(|owner| self.voter_of_owner(owner)).collect();
        if self.voices.vouched == vouched {
            return false;
        }
        self.voices.vouched = vouched;
        true
    }

    /// What the outputs of an owner were worth.
    pub(crate) fn reputation(&self, voter: VoterIx) -> Reputation {
        let number = voter.owner_number();
        number.and_then(|number| self.voices.of_owners.get(number)).copied().unwrap_or_default()
    }

    /// Sets what the outputs of an owner were worth. Whether its voice is another one now.
    pub(crate) fn set_reputation(&mut self, voter: VoterIx, reputation: Reputation) -> bool {
        let Some(number) = voter.owner_number() else { return false };
        let before = self.voice(voter);
        let owners = &mut self.voices.of_owners;
        if owners.len() <= number {
            owners.resize(number + 1, Reputation::default());
        }
        owners[number] = reputation;
        self.voice(voter) != before
    }

    /// An owner's output was what trusted owners decided without it, or was not: its reputation now,
    /// where that says anything new.
    pub(crate) fn reputation_after(&self, voter: VoterIx, agrees: bool) -> Option<Reputation> {
        voter.owner_number()?;
        let mut reputation = self.reputation(voter);
        match (self.voice(voter), agrees) {
            (Voice::Vouched, _) | (Voice::Earned, true) => return None,
            (Voice::New, true) => reputation.agree(),
            (Voice::New | Voice::Earned, false) => reputation.disagree(),
        }
        Some(reputation)
    }

    /// The owners with a reputation, in the order of their numbers.
    pub(crate) fn reputations(&self) -> impl Iterator<Item = (&OwnerName, Reputation)> {
        let known = self.voices.of_owners.iter().zip(&self.owner_names);
        known.map(|(of, owner)| (owner, *of)).filter(|(_, of)| *of != Reputation::default())
    }
}

impl super::Farm {
    /// How much an owner of hosts has to say.
    #[must_use]
    pub fn voice_of(&self, voter: VoterIx) -> Voice {
        self.hosts.voice(voter)
    }

    /// What the outputs of an owner of hosts were worth.
    #[must_use]
    pub fn reputation_of(&self, voter: VoterIx) -> Reputation {
        self.hosts.reputation(voter)
    }

    /// Whether whoever runs the farm vouches for somebody.
    #[must_use]
    pub fn has_vouched(&self) -> bool {
        self.hosts.has_vouched()
    }

    /// Whether there is room on a workunit for another replica of this voter, as far as voices go: who
    /// has none leaves a place to who has, until somebody has voted who decides.
    pub(crate) fn has_place_for(&self, unit: &Workunit, voter: VoterIx) -> bool {
        if !self.hosts.has_vouched()
            || unit.is_decided_by_one()
            || self.hosts.voice(voter) != Voice::New
        {
            return true;
        }
        let outputs = unit.votes.iter().filter(|vote| vote.digest.is_some());
        let is_new = |voter| usize::from(self.hosts.voice(voter) == Voice::New);
        let (mut voices, mut new) = (0, 0);
        for vote in outputs {
            voices += self.hosts.voice(vote.voter).weight();
            new += is_new(vote.voter);
        }
        new += unit.pending.iter().map(|pending| is_new(pending.voter)).sum::<usize>();
        voices >= VOICES_WANTED || new < usize::from(unit.replication).saturating_sub(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerName {
        OwnerName::new(name).expect("a plain name")
    }

    #[test]
    fn a_voice_is_earned_by_ten_agreements_and_lost_by_one_output() {
        let mut hosts = Hosts::default();
        let (farm, ann) = (hosts.voter_of_owner(&owner("farm")), hosts.voter_of_owner(&owner("a")));
        assert_eq!([farm, ann].map(|of| hosts.voice(of)), [Voice::Vouched; 2], "nobody is");
        assert!(hosts.vouch_for(&BTreeSet::from([owner("farm")])));
        assert!(!hosts.vouch_for(&BTreeSet::from([owner("farm")])));
        assert_eq!([farm, ann].map(|of| hosts.voice(of)), [Voice::Vouched, Voice::New]);
        assert_eq!(hosts.voice(VoterIx::OWNERLESS), Voice::New);
        for agreed in 1..=10 {
            let after = hosts.reputation_after(ann, true).expect("it is new");
            assert_eq!(hosts.set_reputation(ann, after), agreed == 10);
        }
        assert_eq!(hosts.voice(ann), Voice::Earned);
        assert_eq!(hosts.reputation_after(ann, true), None, "that is known");
        assert_eq!(hosts.reputation_after(farm, false), None);
        let after = hosts.reputation_after(ann, false).expect("it was wrong");
        assert_eq!(after, Reputation { agreed: 0, disagreed: 1 });
        assert!(hosts.set_reputation(ann, after));
        assert!(!Reputation { agreed: 39, ..after }.has_earned());
        assert!(Reputation { agreed: 40, ..after }.has_earned());
        assert_eq!(hosts.reputations().collect::<Vec<_>>(), [(&owner("a"), after)]);
    }
}
