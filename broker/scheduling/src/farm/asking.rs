//! The hosts with a standing request: those that asked, have room, and found nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gleaner_protocol::Origin;

use super::{Host, HostIx, VoterIx, Workunit};
use crate::ability::{AbilityIx, AbilitySet};

type Class = (Origin, AbilitySet);

/// Standing requests, grouped so that neither those who cannot run a job nor the many hosts of
/// one owner are looked at one by one: by side and abilities, then by voter.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    classes: BTreeMap<Class, BTreeSet<(VoterIx, HostIx)>>,
}

impl Asking {
    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    pub(crate) fn insert(&mut self, index: HostIx, host: &Host) {
        let member = (host.voter, index);
        let class = (host.origin(), host.abilities.clone());
        self.classes.entry(class).or_default().insert(member);
    }

    pub(crate) fn remove(&mut self, index: HostIx, host: &Host) {
        let class = (host.origin(), host.abilities.clone());
        if let Some(members) = self.classes.get_mut(&class) {
            members.remove(&(host.voter, index));
            if members.is_empty() {
                self.classes.remove(&class);
            }
        }
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) fn clear(&mut self) {
        self.classes.clear();
    }

    pub(crate) fn contains(&self, index: HostIx, host: &Host) -> bool {
        let class = (host.origin(), host.abilities.clone());
        self.classes.get(&class).is_some_and(|members| members.contains(&(host.voter, index)))
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.values().map(BTreeSet::len).sum()
    }

    /// All of them, in a fixed order that keeps classes together.
    pub(crate) fn iter(&self) -> impl Iterator<Item = HostIx> {
        self.classes.values().flatten().map(|(_, host)| *host)
    }

    /// The first that `may`, in a fixed order that keeps classes together.
    pub(crate) fn first(&self, may: impl Fn(HostIx) -> bool) -> Option<HostIx> {
        self.classes.values().find_map(|members| Self::first_of(members, &may))
    }

    /// The first that `may` of the same class as `host`, which need not be asking.
    pub(crate) fn first_like(&self, host: &Host, may: impl Fn(HostIx) -> bool) -> Option<HostIx> {
        let class = (host.origin(), host.abilities.clone());
        self.classes.get(&class).and_then(|members| Self::first_of(members, &may))
    }

    /// The first that `may` of the classes behind that of `host`.
    pub(crate) fn first_behind(&self, host: &Host, may: impl Fn(HostIx) -> bool) -> Option<HostIx> {
        let class = (host.origin(), host.abilities.clone());
        let behind = (Bound::Excluded(class), Bound::Unbounded);
        self.classes.range(behind).find_map(|(_, members)| Self::first_of(members, &may))
    }

    /// The first that `may` behind `host` itself.
    pub(crate) fn first_after(
        &self,
        index: HostIx,
        host: &Host,
        may: impl Fn(HostIx) -> bool,
    ) -> Option<HostIx> {
        let class = (host.origin(), host.abilities.clone());
        let behind = (Bound::Excluded((host.voter, index)), Bound::Unbounded);
        let members = self.classes.get(&class).into_iter();
        let mut alike = members.flat_map(|members| members.range(behind)).map(|(_, host)| *host);
        alike.find(|host| may(*host)).or_else(|| self.first_behind(host, may))
    }

    /// The first that `may` with this ability.
    pub(crate) fn first_able(
        &self,
        ability: AbilityIx,
        may: impl Fn(HostIx) -> bool,
    ) -> Option<HostIx> {
        let mut able = self.classes.iter().filter(|((_, set), _)| set.contains(ability));
        able.find_map(|(_, members)| Self::first_of(members, &may))
    }

    /// The first that `may`, on `side` where one is given, that has no replica or vote of `unit`
    /// and is able to run it. Skips the few voters who have.
    pub(crate) fn first_for(
        &self,
        unit: &Workunit,
        side: Option<Origin>,
        may: impl Fn(HostIx) -> bool,
    ) -> Option<HostIx> {
        let able = self.classes.iter().filter(|((origin, abilities), _)| {
            side.is_none_or(|side| side == *origin) && abilities.contains(unit.ability)
        });
        able.map(|(_, members)| members).find_map(|members| {
            let mut from = (VoterIx::FIRST, HostIx::FIRST);
            while let Some(&(voter, host)) = members.range(from..).next() {
                if unit.is_touched_by_voter(voter) {
                    from = (voter.next()?, HostIx::FIRST);
                } else if unit.is_touched_by(host, voter) || !may(host) {
                    from = (voter, host.next()?);
                } else {
                    return Some(host);
                }
            }
            None
        })
    }

    fn first_of(
        members: &BTreeSet<(VoterIx, HostIx)>,
        may: impl Fn(HostIx) -> bool,
    ) -> Option<HostIx> {
        members.iter().map(|(_, host)| *host).find(|host| may(*host))
    }
}
