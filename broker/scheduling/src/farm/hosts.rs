//! All hosts, and the sets derived from them.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{Capabilities, HostInfo, HostName, OwnerName, Time};
use rustc_hash::FxHashMap;

use super::asking::Asking;
use super::{Host, HostIx, Standing, VoterIx};
use crate::ability::{AbilityIx, AbilitySet};

/// All hosts that connected at least once, or voted before a restart.
///
/// # Invariants
/// - Between inputs, the standing requests are exactly the hosts with [`Host::free`] above 0.
/// - `grace` holds exactly the hosts with [`Host::grace_until`].
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    listed: Vec<Host>,
    by_name: FxHashMap<HostName, HostIx>,
    owners: BTreeMap<OwnerName, VoterIx>,
    /// The owners by the number of their vote.
    owner_names: Vec<OwnerName>,
    pub(super) asking: Asking,
    /// Hosts that came to have room since the last plan, in order; some may have lost it again.
    woken: Vec<HostIx>,
    grace: BTreeSet<(Time, HostIx)>,
}

impl Hosts {
    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    pub(crate) fn get(&self, host: HostIx) -> &Host {
        &self.listed[host.get()]
    }

    pub(crate) fn find(&self, name: &HostName) -> Option<HostIx> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostIx, &Host)> {
        self.listed.iter().enumerate().map(|(index, host)| (HostIx::from_index(index), host))
    }

    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) fn asking_mut(&mut self) -> &mut Asking {
        &mut self.asking
    }

    /// Changes a host behind the back of the sets derived from it.
    #[cfg(feature = "sabotage")]
    pub(crate) fn tamper(&mut self, host: HostIx, change: impl FnOnce(&mut Host)) {
        change(&mut self.listed[host.get()]);
    }

    /// Changes a host and keeps the sets derived from it right.
    pub(crate) fn change<R>(&mut self, host: HostIx, change: impl FnOnce(&mut Host) -> R) -> R {
        let entry = &mut self.listed[host.get()];
        let (was_free, grace_was) = (entry.free() > 0, entry.grace_until);
        let was_held_back = entry.is_held_back();
        let result = change(entry);
        let is_free = entry.free() > 0;
        if is_free && entry.listed && was_held_back && !entry.is_held_back() {
            // What it was not given before it may be given now.
            entry.listed = false;
            self.asking.remove(host, entry);
            self.woken.push(host);
        } else if is_free && !was_free {
            self.woken.push(host);
        } else if !is_free && entry.listed {
            entry.listed = false;
            self.asking.remove(host, entry);
        }
        if grace_was != entry.grace_until {
            if let Some(time) = grace_was {
                self.grace.remove(&(time, host));
            }
            if let Some(time) = entry.grace_until {
                self.grace.insert((time, host));
            }
        }
        result
    }

    /// Changes what a host's votes were worth. Most often that touches nothing else of it: who is
    /// not held back does not come to have room by it.
    pub(crate) fn change_standing(&mut self, host: HostIx, change: impl FnOnce(&mut Standing)) {
        let standing = &mut self.listed[host.get()].standing;
        if standing.is_suspect() {
            self.change(host, |entry| change(&mut entry.standing));
        } else {
            change(standing);
        }
    }

    /// The hosts that came to have room; each is to be planned for, then listed.
    pub(crate) fn take_woken(&mut self) -> Vec<HostIx> {
        std::mem::take(&mut self.woken)
    }

    /// Gives back the buffer of [`Hosts::take_woken`].
    pub(crate) fn keep_buffer(&mut self, mut buffer: Vec<HostIx>) {
        if self.woken.is_empty() {
            buffer.clear();
            self.woken = buffer;
        }
    }

    /// Makes what is left of a host's request a standing one.
    pub(crate) fn list(&mut self, host: HostIx) {
        let entry = &mut self.listed[host.get()];
        if entry.free() > 0 && !entry.listed {
            entry.listed = true;
            self.asking.insert(host, entry);
        }
    }

    /// The host whose grace ends first.
    pub(crate) fn first_grace(&self) -> Option<(Time, HostIx)> {
        self.grace.first().copied()
    }

    pub(crate) fn grace_count(&self) -> usize {
        self.grace.len()
    }

    /// The host of this name, entered as disconnected where it is new. A known one loses its
    /// request.
    pub(crate) fn enter(&mut self, info: HostInfo, abilities: AbilitySet) -> HostIx {
        if let Some(&host) = self.by_name.get(&info.name) {
            self.change(host, |entry| entry.asked = 0);
            let voter = self.voter_of(host, info.owner.as_ref());
            let entry = &mut self.listed[host.get()];
            entry.info = info;
            entry.abilities = abilities;
            entry.voter = voter;
            return host;
        }
        let host = HostIx::from_index(self.listed.len());
        let voter = self.voter_of(host, info.owner.as_ref());
        self.by_name.insert(info.name.clone(), host);
        self.listed.push(Host::new(info, voter, abilities));
        host
    }

    /// Gives every host whose capabilities cover it an ability that was just interned.
    pub(crate) fn extend_abilities(
        &mut self,
        ability: AbilityIx,
        offers: impl Fn(&Capabilities) -> bool,
    ) {
        for (index, host) in self.listed.iter_mut().enumerate() {
            if !offers(&host.info.capabilities) {
                continue;
            }
            let index = HostIx::from_index(index);
            if host.listed {
                self.asking.remove(index, host);
            }
            host.abilities.insert(ability);
            if host.listed {
                self.asking.insert(index, host);
            }
        }
    }

    /// Takes from every host an ability that no job asks for any more: its number may be that of
    /// another one soon.
    pub(crate) fn drop_ability(&mut self, ability: AbilityIx) {
        for (index, host) in self.listed.iter_mut().enumerate() {
            if !host.abilities.contains(ability) {
                continue;
            }
            let index = HostIx::from_index(index);
            if host.listed {
                self.asking.remove(index, host);
            }
            host.abilities.remove(ability);
            if host.listed {
                self.asking.insert(index, host);
            }
        }
    }

    /// Hosts of one owner share a vote; a host without an owner has its own.
    fn voter_of(&mut self, host: HostIx, owner: Option<&OwnerName>) -> VoterIx {
        let Some(owner) = owner else { return VoterIx::of_host(host) };
        if let Some(&voter) = self.owners.get(owner) {
            return voter;
        }
        let voter = VoterIx::of_owner(self.owner_names.len());
        self.owners.insert(owner.clone(), voter);
        self.owner_names.push(owner.clone());
        voter
    }

    /// Whether a host of this owner may be entered, with at most `owners_max` known.
    pub(crate) fn has_room_for(&self, owner: Option<&OwnerName>, owners_max: usize) -> bool {
        self.owner_names.len() < owners_max
            || owner.is_none_or(|owner| self.owners.contains_key(owner))
    }

    /// Whose vote it is, where it is not that of a host without an owner. Not the owner of a host
    /// that voted: that may be another one by now.
    pub(crate) fn owner_of(&self, voter: VoterIx) -> Option<&OwnerName> {
        self.owner_names.get(voter.owner_number()?)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Origin;

    use super::*;

    #[test]
    fn a_host_that_names_another_owner_each_time_is_stopped_some_time() {
        let mut hosts = Hosts::default();
        let owner = |number: usize| OwnerName::new(format!("o{number}")).expect("a plain name");
        for number in 0..10 {
            assert!(hosts.has_room_for(Some(&owner(number)), 10));
            let info = HostInfo {
                name: HostName::new("h1").expect("a plain name"),
                origin: Origin::Desktop,
                owner: Some(owner(number)),
                cores: 1,
                memory_mib: 0,
                capabilities: Capabilities::default(),
                kind: None,
                chunk_cache_mib: 0,
            };
            let host = hosts.enter(info, AbilitySet::default());
            assert_eq!(hosts.owner_of(hosts.get(host).voter), Some(&owner(number)));
        }
        assert!(!hosts.has_room_for(Some(&owner(10)), 10));
        assert!(hosts.has_room_for(Some(&owner(3)), 10) && hosts.has_room_for(None, 10));
    }
}
