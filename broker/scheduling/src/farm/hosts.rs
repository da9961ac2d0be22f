//! All hosts, and the sets derived from them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gleaner_protocol::{HostInfo, HostName, OwnerName, Share, Time};
use rustc_hash::FxHashMap;

use super::asking::Asking;
use super::voice::Voices;
use super::{Host, HostIx, OwnerlessVote, Standing, VoterIx};
use crate::ability::{AbilityIx, AbilitySet};

/// All hosts that connected at least once, or voted before a restart, but for those that are forgotten.
///
/// # Invariants
/// - Between inputs, the standing requests are exactly the hosts that [have room](Host::has_room).
/// - `grace` holds exactly the hosts with [`Host::grace_until`].
/// - `oblivion` holds exactly the hosts with a [`Host::oblivion`].
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    listed: Vec<Option<Host>>,
    /// Numbers of hosts that are forgotten.
    vacant: Vec<HostIx>,
    by_name: FxHashMap<HostName, HostIx>,
    /// The same in order.
    names: BTreeMap<HostName, HostIx>,
    owners: BTreeMap<OwnerName, VoterIx>,
    /// The owners by the number of their vote.
    pub(super) owner_names: Vec<OwnerName>,
    pub(super) voices: Voices,
    pub(super) asking: Asking,
    /// Hosts that came to have room since the last plan, in order; some may have lost it again.
    woken: Vec<HostIx>,
    /// Standing requests of which more may be had than before, though less of the host is left: what
    /// does not fit into that any more may take the place of smaller replicas, which nothing does
    /// where as much is idle, and needs no more of it to be asked for than is left.
    narrowed: Vec<HostIx>,
    grace: BTreeSet<(Time, HostIx)>,
    /// The hosts that may be forgotten.
    oblivion: BTreeSet<((bool, Time), HostIx)>,
    pub(super) backoff_ends: BTreeSet<(Time, HostIx, AbilityIx)>,
    pub(super) quota_ends: BTreeSet<(Time, HostIx)>,
    pub(crate) ownerless: OwnerlessVote,
    /// Whether some job that goes on takes anything but one core: then a host that has more left than
    /// before is asked about anew.
    pub(crate) has_uneven: bool,
    /// Whether some job that goes on takes memory or a GPU.
    pub(crate) has_keeping: bool,
    /// Whether a host that does not ask has more left beside cores than before: a lane may take it in the
    /// place of what runs there.
    pub(crate) has_more_kept: bool,
    /// The most that a replica of a job that goes on takes.
    pub(crate) largest: Share,
}

impl Hosts {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn get(&self, host: HostIx) -> &Host {
        self.listed[host.get()].as_ref().expect(KNOWN)
    }

    pub(super) fn entry(&mut self, host: HostIx) -> &mut Host {
        known(&mut self.listed, host)
    }

    pub(crate) fn find(&self, name: &HostName) -> Option<HostIx> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostIx, &Host)> {
        self.iter_from(HostIx::FIRST)
    }

    /// Those of this number and greater ones.
    pub(crate) fn iter_from(&self, first: HostIx) -> impl Iterator<Item = (HostIx, &Host)> {
        let listed = self.listed[first.get().min(self.listed.len())..].iter().zip(first.get()..);
        listed.filter_map(|(host, index)| Some((HostIx::from_index(index), host.as_ref()?)))
    }

    /// Those behind this name, or all, in the order of names.
    pub(crate) fn iter_behind(&self, name: Option<&HostName>) -> impl Iterator<Item = &Host> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<HostName, _>((from, Bound::Unbounded));
        names.map(|(_, host)| self.get(*host))
    }

    /// All numbers are below this one.
    pub(crate) fn end(&self) -> usize {
        self.listed.len()
    }

    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) fn asking_mut(&mut self) -> &mut Asking {
        &mut self.asking
    }

    /// Changes a host behind the back of the sets derived from it.
    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) fn tamper(&mut self, host: HostIx, change: impl FnOnce(&mut Host)) {
        change(self.entry(host));
    }

    /// Changes a host and keeps the sets derived from it right.
    pub(crate) fn change<R>(&mut self, host: HostIx, change: impl FnOnce(&mut Host) -> R) -> R {
        let entry = known(&mut self.listed, host);
        let (before, grace_was) = (entry.request(), entry.grace_until);
        let quota_was = entry.quota.map(|quota| quota.until);
        let oblivion_was = entry.oblivion();
        let was_held_back = entry.is_held_back();
        let kept_was = self.has_keeping.then(|| entry.kept_left());
        let result = change(entry);
        let now = entry.request();
        let (was_free, is_free) = (before.has_room(), now.has_room());
        let has_more_kept = kept_was.is_some_and(|before| !entry.kept_left().fits(before));
        let is_wider = (self.has_uneven && (now.is_wider_than(before) || has_more_kept))
            || (now.whole_cores() > 0 && before.whole_cores() == 0);
        self.has_more_kept |= has_more_kept && !is_free;
        let is_let_go = was_held_back && !entry.is_held_back();
        if is_free && entry.listed && (is_let_go || is_wider) {
            // What it was not given before it may be given now.
            entry.listed = false;
            self.asking.remove(host, entry);
            self.woken.push(host);
        } else if is_free && !was_free {
            self.woken.push(host);
        } else if !is_free && entry.listed {
            entry.listed = false;
            self.asking.remove(host, entry);
        } else if self.has_uneven && entry.listed && now.is_narrower_than(before, self.largest) {
            self.narrowed.push(host);
        }
        if grace_was != entry.grace_until {
            if let Some(time) = grace_was {
                self.grace.remove(&(time, host));
            }
            if let Some(time) = entry.grace_until {
                self.grace.insert((time, host));
            }
        }
        let quota = entry.quota.map(|quota| quota.until);
        if quota_was != quota {
            quota_was.map(|until| self.quota_ends.remove(&(until, host)));
            quota.map(|until| self.quota_ends.insert((until, host)));
        }
        let oblivion = entry.oblivion();
        self.move_in_oblivion(host, oblivion_was, oblivion);
        result
    }

    /// Something open speaks of a host from now on.
    pub(crate) fn mention(&mut self, host: HostIx) {
        let entry = known(&mut self.listed, host);
        let before = entry.oblivion();
        entry.mentions += 1;
        self.move_in_oblivion(host, before, None);
    }

    /// What spoke of a host does not any more.
    pub(crate) fn drop_mention(&mut self, host: HostIx) {
        let entry = known(&mut self.listed, host);
        entry.mentions -= 1;
        let now = entry.oblivion();
        self.move_in_oblivion(host, None, now);
    }

    fn move_in_oblivion(
        &mut self,
        host: HostIx,
        before: Option<(bool, Time)>,
        now: Option<(bool, Time)>,
    ) {
        if before != now {
            before.map(|before| self.oblivion.remove(&(before, host)));
            now.map(|now| self.oblivion.insert((now, host)));
        }
    }

    /// The host that is to be forgotten first, and how many may be forgotten.
    pub(crate) fn first_in_oblivion(&self) -> Option<(HostIx, usize)> {
        Some((self.oblivion.first()?.1, self.oblivion.len()))
    }

    /// Whether exactly the hosts that may be forgotten are listed as such.
    pub(crate) fn is_oblivion_right(&self) -> bool {
        let may = self.iter().filter_map(|(index, host)| Some((host.oblivion()?, index)));
        may.collect::<BTreeSet<_>>() == self.oblivion
    }

    /// Forgets a host that may be forgotten. Its number will be that of another one.
    pub(crate) fn forget(&mut self, host: HostIx) {
        let entry = self.listed[host.get()].take().expect(KNOWN);
        let place = entry.oblivion().expect("a host is forgotten that nothing speaks of");
        debug_assert!(entry.standing.due.is_empty(), "its votes are on open workunits");
        debug_assert!(!self.woken.contains(&host), "it has no room");
        self.oblivion.remove(&(place, host));
        self.narrowed.retain(|of| *of != host);
        for of in entry.backoffs.iter().filter(|of| of.is_on) {
            self.backoff_ends.remove(&(of.until, host, of.ability));
        }
        if let Some(quota) = entry.quota {
            self.quota_ends.remove(&(quota.until, host));
        }
        self.by_name.remove(&entry.info.name);
        self.names.remove(&entry.info.name);
        self.vacant.push(host);
    }

    /// What hosts of this voter were not given before they may be given now; of all, where none is given.
    pub(crate) fn wake_all_of(&mut self, voter: Option<VoterIx>) {
        for (index, host) in known_ones(&mut self.listed) {
            if host.listed && voter.is_none_or(|voter| host.voter == voter) {
                host.listed = false;
                self.asking.remove(index, host);
                self.woken.push(index);
            }
        }
    }

    /// What hosts with one of these abilities were not given before they may be given now: so many of
    /// them, from a number on. Where more are left, the number from which on.
    pub(crate) fn wake_able(
        &mut self,
        able: &[AbilityIx],
        from: usize,
        most: usize,
    ) -> Option<usize> {
        let mut left = most;
        for (index, host) in known_ones(&mut self.listed).skip_while(|(of, _)| of.get() < from) {
            if host.listed && able.iter().any(|ability| host.abilities.contains(*ability)) {
                if left == 0 {
                    return Some(index.get());
                }
                left -= 1;
                host.listed = false;
                self.asking.remove(index, host);
                self.woken.push(index);
            }
        }
        None
    }

    /// Changes what a host's votes were worth. Most often that touches nothing else of it: who is
    /// not held back does not come to have room by it.
    pub(crate) fn change_standing(&mut self, host: HostIx, change: impl FnOnce(&mut Standing)) {
        let standing = &mut self.entry(host).standing;
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

    /// The standing requests that are to be offered to all lanes again, each once.
    pub(crate) fn take_narrowed(&mut self) -> Vec<HostIx> {
        let mut narrowed = std::mem::take(&mut self.narrowed);
        narrowed.sort_unstable();
        narrowed.dedup();
        narrowed
    }

    /// Whether there are any of these.
    pub(crate) fn has_narrowed(&self) -> bool {
        !self.narrowed.is_empty()
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
        let entry = known(&mut self.listed, host);
        if entry.has_room() && !entry.listed {
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
            let entry = known(&mut self.listed, host);
            entry.info = info;
            entry.abilities = abilities;
            for of in &mut entry.backoffs {
                of.is_offered = entry.abilities.contains(of.ability);
                if of.is_on {
                    entry.abilities.remove(of.ability);
                }
            }
            entry.voter = voter;
            return host;
        }
        let host = self.vacant.pop().unwrap_or_else(|| {
            self.listed.push(None);
            HostIx::from_index(self.listed.len() - 1)
        });
        let voter = self.voter_of(host, info.owner.as_ref());
        self.by_name.insert(info.name.clone(), host);
        self.names.insert(info.name.clone(), host);
        let entry = self.listed[host.get()].insert(Host::new(info, voter, abilities));
        let oblivion = entry.oblivion();
        self.move_in_oblivion(host, None, oblivion);
        host
    }

    /// Gives every host whose capabilities cover it an ability that was just interned.
    pub(crate) fn extend_abilities(
        &mut self,
        ability: AbilityIx,
        offers: impl Fn(&HostInfo) -> bool,
    ) {
        for (index, host) in known_ones(&mut self.listed) {
            if !offers(&host.info) {
                continue;
            }
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
        for index in 0..self.listed.len() {
            if self.listed[index].is_some() {
                self.clear_backoff(HostIx::from_index(index), ability);
            }
        }
        for (index, host) in known_ones(&mut self.listed) {
            if !host.abilities.contains(ability) {
                continue;
            }
            if host.listed {
                self.asking.remove(index, host);
            }
            host.abilities.remove(ability);
            if host.listed {
                self.asking.insert(index, host);
            }
        }
    }

    /// Gives a host an ability, or takes it from the host. One that gets it may have what it was not
    /// given before.
    pub(super) fn set_ability(&mut self, host: HostIx, ability: AbilityIx, has: bool) {
        let entry = known(&mut self.listed, host);
        if entry.listed {
            self.asking.remove(host, entry);
        }
        if has {
            entry.abilities.insert(ability);
        } else {
            entry.abilities.remove(ability);
        }
        if entry.listed && has {
            entry.listed = false;
            self.woken.push(host);
        } else if entry.listed {
            self.asking.insert(host, entry);
        }
    }

    /// Hosts of one owner share a vote, and so do those without an owner, or each has its own.
    pub(crate) fn voter_of(&mut self, host: HostIx, owner: Option<&OwnerName>) -> VoterIx {
        let Some(owner) = owner else {
            return match self.ownerless {
                OwnerlessVote::Together => VoterIx::OWNERLESS,
                OwnerlessVote::Each => VoterIx::of_host(host),
            };
        };
        self.voter_of_owner(owner)
    }

    /// Whose vote that of an owner's hosts is.
    pub(crate) fn voter_of_owner(&mut self, owner: &OwnerName) -> VoterIx {
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

    /// Whose vote it is, where it is that of an owner. Not the owner of a host
    /// that voted: that may be another one by now.
    pub(crate) fn owner_of(&self, voter: VoterIx) -> Option<&OwnerName> {
        self.owner_names.get(voter.owner_number()?)
    }
}

const KNOWN: &str = "a number is dropped when its host is forgotten";

fn known(listed: &mut [Option<Host>], host: HostIx) -> &mut Host {
    listed[host.get()].as_mut().expect(KNOWN)
}

fn known_ones(listed: &mut [Option<Host>]) -> impl Iterator<Item = (HostIx, &mut Host)> {
    let listed = listed.iter_mut().enumerate();
    listed.filter_map(|(index, host)| Some((HostIx::from_index(index), host.as_mut()?)))
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Capabilities, Origin};

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
