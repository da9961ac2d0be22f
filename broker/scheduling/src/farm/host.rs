//! A host, what it gives and what it holds.

use std::sync::Arc;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::{HostInfo, LeaseToken, Origin, Share, Time};
use smallvec::SmallVec;

use super::{Lease, Standing};
use crate::Refusal;
use crate::ability::AbilitySet;

/// Number of a host in one core; by default that of the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIx(u32);

impl HostIx {
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("HOSTS_MAX fits u32"))
    }

    /// As a table index.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// Who votes: a host, or all hosts of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterIx(u32);

impl VoterIx {
    pub(crate) const FIRST: Self = Self(0);
    const OWNERS: u32 = 1 << 31;

    /// The voter that a host without an owner is.
    pub(crate) const fn of_host(host: HostIx) -> Self {
        Self(host.0)
    }

    /// The voter that the `number`-th owner is.
    pub(crate) fn of_owner(number: usize) -> Self {
        Self(u32::try_from(number).expect("HOSTS_MAX bounds the owners of hosts") | Self::OWNERS)
    }

    /// The number of the owner that this voter is.
    pub(crate) const fn owner_number(self) -> Option<usize> {
        if self.0 & Self::OWNERS == 0 { None } else { Some((self.0 & !Self::OWNERS) as usize) }
    }

    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

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
    pub leases: SmallVec<[Lease; 4]>,
    /// Leases that take no slot: of replicas that ended while its link was down, whose reports
    /// are on the way, and of frozen ones.
    pub finished: SmallVec<[Lease; 4]>,
    /// When its leases end because its link is down.
    pub grace_until: Option<Time>,
    /// Outputs of it that counted.
    pub reported: u64,
    /// Of these, not equal to the canonical output.
    pub disagreed: u64,
    /// Replicas it gave back.
    pub released: u64,
    /// What its votes were worth.
    pub standing: Standing,
    /// What on it needs a person, as its agent says.
    pub alarm: Option<String>,
    /// Why it gives nothing, as its farm's monitor said last; only for people.
    pub closed: Option<Arc<str>>,
    pub(crate) abilities: AbilitySet,
    /// Whether it is among the standing requests.
    pub(crate) listed: bool,
}

impl Host {
    pub(crate) fn new(info: HostInfo, voter: VoterIx, abilities: AbilitySet) -> Self {
        Self {
            info,
            voter,
            connected: false,
            fragment: Fragment::default(),
            asked: 0,
            leases: SmallVec::new(),
            finished: SmallVec::new(),
            grace_until: None,
            reported: 0,
            disagreed: 0,
            released: 0,
            standing: Standing::default(),
            alarm: None,
            closed: None,
            abilities,
            listed: false,
        }
    }

    /// Its side.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.info.origin
    }

    /// Replicas on whole cores that it could be given now.
    #[must_use]
    pub fn free(&self) -> u32 {
        if self.connected { self.asked.min(self.free_share().whole_cores()) } else { 0 }
    }

    /// Whether it was caught and runs something: a policy that trusts by its own checks lets it
    /// run one at a time, until it has proven itself.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        !self.leases.is_empty() && self.standing.is_suspect()
    }

    /// What its fragment has, as a share.
    #[must_use]
    pub fn capacity(&self) -> Share {
        Share::cores(self.fragment.slots)
    }

    /// What its leases that take a slot may use together.
    #[must_use]
    pub fn leased_share(&self) -> Share {
        self.leases.iter().fold(Share::NONE, |sum, lease| sum.plus(lease.share))
    }

    /// What its leases leave of its fragment.
    #[must_use]
    pub fn free_share(&self) -> Share {
        self.capacity().minus(self.leased_share())
    }

    /// Whether a lease of this share may be added.
    pub(crate) fn may_take(&self, share: Share) -> Result<(), Refusal> {
        if !self.connected {
            Err(Refusal::Disconnected)
        } else if self.fragment.slots == 0 {
            Err(Refusal::FragmentClosed)
        } else if share == Share::NONE || self.free_share() < share {
            Err(Refusal::NoFreeSlot)
        } else if self.asked == 0 {
            Err(Refusal::DidNotAsk)
        } else {
            Ok(())
        }
    }

    /// Its lease under this token.
    pub(crate) fn lease(&self, token: LeaseToken) -> Option<Lease> {
        self.leases.iter().chain(&self.finished).find(|lease| lease.token == token).copied()
    }

    /// Changes the share of a lease that takes a slot; `false` where there is no room for it.
    pub(crate) fn set_share(&mut self, token: LeaseToken, share: Share) -> bool {
        let capacity = self.capacity();
        let others = self.leases.iter().filter(|lease| lease.token != token);
        let others = others.fold(Share::NONE, |sum, lease| sum.plus(lease.share));
        let fits = share != Share::NONE && others.plus(share) <= capacity;
        let lease = self.leases.iter_mut().find(|lease| fits && lease.token == token);
        lease.map(|lease| lease.share = share).is_some()
    }

    /// Forgets a lease that has ended.
    pub(crate) fn drop_lease(&mut self, token: LeaseToken) {
        if let Some(at) = self.leases.iter().position(|held| held.token == token) {
            self.leases.remove(at);
        } else {
            self.finished.retain(|held| held.token != token);
        }
        if self.leases.is_empty() && self.finished.is_empty() {
            self.grace_until = None;
        }
    }
}
