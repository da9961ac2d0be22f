//! Hosts, what they give and what they hold.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::{HostInfo, HostName, LeaseToken, Origin, OwnerName, Time};

use crate::Refusal;
use crate::ability::AbilitySet;

/// Number of a host in one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIx(u32);

impl HostIx {
    /// As a table index.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// Who votes: a host, or all hosts of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterIx(u32);

/// A host that connected at least once, or voted before a restart.
#[derive(Debug)]
pub struct Host {
    /// What it says of itself.
    pub info: HostInfo,
    /// Its vote.
    pub voter: VoterIx,
    /// Whether its agent is connected.
    pub connected: bool,
    /// What it gives.
    pub fragment: Fragment,
    /// Replicas it asked for and has not been given.
    pub asked: u32,
    /// Its leases that take a slot, oldest first.
    pub leases: Vec<LeaseToken>,
    /// Leases whose replicas ended while its link was down; their reports are on the way.
    pub finished: Vec<LeaseToken>,
    /// When its leases end because its link is down.
    pub grace_until: Option<Time>,
    /// Outputs of it that counted.
    pub reported: u64,
    /// Of these, not equal to the canonical output.
    pub disagreed: u64,
    /// Replicas it gave back.
    pub released: u64,
    pub(crate) abilities: AbilitySet,
}

impl Host {
    /// Its side.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.info.origin
    }

    /// Replicas it could be given now.
    #[must_use]
    pub fn free(&self) -> u32 {
        if !self.connected {
            return 0;
        }
        let held = u32::try_from(self.leases.len()).unwrap_or(u32::MAX);
        self.asked.min(self.fragment.slots.saturating_sub(held))
    }

    pub(crate) fn may_take(&self) -> Result<(), Refusal> {
        if !self.connected {
            Err(Refusal::Disconnected)
        } else if self.fragment.slots == 0 {
            Err(Refusal::FragmentClosed)
        } else if self.leases.len() >= self.fragment.slots as usize {
            Err(Refusal::NoFreeSlot)
        } else if self.asked == 0 {
            Err(Refusal::DidNotAsk)
        } else {
            Ok(())
        }
    }
}

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    listed: Vec<Host>,
    by_name: BTreeMap<HostName, HostIx>,
    voters: BTreeMap<OwnerName, VoterIx>,
    next_voter: u32,
    asking: BTreeSet<HostIx>,
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
        (0..).map(HostIx).zip(&self.listed)
    }

    pub(crate) fn next_asking(&self, after: Option<HostIx>) -> Option<HostIx> {
        let from = after.map_or(0, |host| host.0 + 1);
        self.asking.range(HostIx(from)..).next().copied()
    }

    pub(crate) fn is_asking(&self, host: HostIx) -> bool {
        self.asking.contains(&host)
    }

    /// Changes a host and keeps the sets derived from it right.
    pub(crate) fn change<R>(&mut self, host: HostIx, change: impl FnOnce(&mut Host) -> R) -> R {
        let entry = &mut self.listed[host.get()];
        let (was_free, grace_was) = (entry.free() > 0, entry.grace_until);
        let result = change(entry);
        let is_free = entry.free() > 0;
        if was_free != is_free {
            if is_free {
                self.asking.insert(host);
            } else {
                self.asking.remove(&host);
            }
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

    /// The host whose grace ends first.
    pub(crate) fn first_grace(&self) -> Option<(Time, HostIx)> {
        self.grace.first().copied()
    }

    /// The host of this name, entered as disconnected where it is new.
    pub(crate) fn enter(&mut self, info: HostInfo, abilities: AbilitySet) -> HostIx {
        if let Some(&host) = self.by_name.get(&info.name) {
            let voter = self.voter_of(&info, Some(self.listed[host.get()].voter));
            self.change(host, |entry| {
                entry.info = info;
                entry.abilities = abilities;
                entry.voter = voter;
            });
            return host;
        }
        let host = HostIx(u32::try_from(self.listed.len()).expect("HOSTS_MAX fits u32"));
        let voter = self.voter_of(&info, None);
        self.by_name.insert(info.name.clone(), host);
        self.listed.push(Host {
            info,
            voter,
            connected: false,
            fragment: Fragment::default(),
            asked: 0,
            leases: Vec::new(),
            finished: Vec::new(),
            grace_until: None,
            reported: 0,
            disagreed: 0,
            released: 0,
            abilities,
        });
        host
    }

    /// Gives every host an ability that its capabilities cover and that was just interned.
    pub(crate) fn extend_abilities(&mut self, add: impl Fn(&mut Host)) {
        self.listed.iter_mut().for_each(add);
    }

    fn voter_of(&mut self, info: &HostInfo, known: Option<VoterIx>) -> VoterIx {
        let next = &mut self.next_voter;
        let mut fresh = || {
            let voter = VoterIx(*next);
            *next += 1;
            voter
        };
        match &info.owner {
            Some(owner) => match self.voters.get(owner) {
                Some(&voter) => voter,
                None => {
                    let voter = fresh();
                    self.voters.insert(owner.clone(), voter);
                    voter
                }
            },
            None => known
                .filter(|voter| !self.voters.values().any(|owned| owned == voter))
                .unwrap_or_else(fresh),
        }
    }
}
