//! A host, what it gives and what it holds.

use std::sync::Arc;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{HostInfo, LeaseToken, Origin, Share, Time};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thin_vec::ThinVec;

use super::{Backoff, Lease, Quota, Standing};
use crate::Refusal;
use crate::ability::AbilitySet;
use crate::limits::AWAITED;

/// Number of a host in one core, used again after it was forgotten; by default that of the first.
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

/// How hosts vote that belong to no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerlessVote {
    /// They have one vote together: anybody can invent another name.
    #[default]
    Together,
    /// Each has a vote of its own: all who may connect are trusted not to have two names.
    Each,
}

/// Who votes: all hosts of one owner, all hosts without one, or a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterIx(u32);

impl VoterIx {
    pub(crate) const FIRST: Self = Self(0);
    const OWNERS: u32 = 1 << 31;
    /// All hosts without an owner, where they vote together.
    pub(crate) const OWNERLESS: Self = Self(Self::OWNERS - 1);

    /// The voter that a host without an owner is, where each has a vote.
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

/// What a host asks for, and has left for that; nothing of either without a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Cores.
    asked: u32,
    left: Share,
}

impl Request {
    /// Whether it asks, and has something left.
    pub(crate) fn has_room(self) -> bool {
        self.asked > 0 && self.left > Share::NONE
    }

    /// Replicas on whole cores that there is room for.
    pub(crate) fn whole_cores(self) -> u32 {
        self.asked.min(self.left.whole_cores())
    }

    /// Whether there is room for more cores than before.
    pub(crate) fn is_wider_than(self, before: Self) -> bool {
        self.asked > before.asked || self.left > before.left
    }

    /// Whether less is left than before, and less than the `largest` replica takes.
    pub(crate) fn is_narrower_than(self, before: Self, largest: Share) -> bool {
        self.left < before.left && self.left < largest
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
    /// Cores that it asked for and has not been given.
    pub asked: u32,
    /// Its leases that take a slot, oldest first.
    pub leases: SmallVec<[Lease; 4]>,
    /// Leases that take no slot: of replicas that ended while its link was down, whose reports
    /// are on the way, and of those that a render has frozen.
    pub finished: SmallVec<[Lease; 4]>,
    /// Leases that take no slot because a lane before theirs has it: their replicas stand still,
    /// and go on when they are told to. The first was parked first.
    pub parked: ThinVec<Lease>,
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
    /// When its link broke off; the beginning of time where this life of the broker had none.
    pub(crate) left_at: Time,
    /// How often open workunits, active jobs and copies speak of it, its leases aside.
    pub(crate) mentions: u32,
    /// What it failed or refused in a row, by ability.
    pub backoffs: ThinVec<Backoff>,
    /// When it gave something last, where it gives nothing now.
    pub(crate) last_open: Option<Time>,
    /// Tells two processes of its agent apart.
    pub(crate) incarnation: Option<u64>,
    /// How many replicas it may be given, where it has erred.
    pub quota: Option<Quota>,
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
            parked: ThinVec::new(),
            grace_until: None,
            reported: 0,
            disagreed: 0,
            released: 0,
            standing: Standing::default(),
            left_at: Time::ZERO,
            mentions: 0,
            backoffs: ThinVec::new(),
            last_open: None,
            incarnation: None,
            quota: None,
            alarm: None,
            closed: None,
            abilities,
            listed: false,
        }
    }

    /// It gives another fragment from now on; what it gave before.
    pub(crate) fn set_fragment(&mut self, fragment: Fragment, now: Time) -> Fragment {
        if self.fragment.cores > 0 {
            self.last_open = Some(now);
        }
        std::mem::replace(&mut self.fragment, fragment)
    }

    /// Whether it runs something, or will before long: it is connected, and open or was so within
    /// the last [`AWAITED`].
    pub(crate) fn is_awaited(&self, now: Time) -> bool {
        let was_open = || self.last_open.is_some_and(|last| now.since(last) < AWAITED);
        self.connected && (self.fragment.cores > 0 || was_open())
    }

    /// Its place among the hosts that may be forgotten, the first ones first: it has no link, no lease,
    /// and nothing speaks of it. `None` for the others.
    pub(crate) fn oblivion(&self) -> Option<(bool, Time)> {
        let may = !self.connected && self.mentions == 0 && !self.holds_any();
        may.then_some((self.reported > 0, self.left_at))
    }

    /// Its side.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.info.origin
    }

    /// Replicas on whole cores that it could be given now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.request().whole_cores()
    }

    /// Whether it asks, and has some of its cores left.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.request().has_room()
    }

    /// What it asks for, and has left for that.
    pub(crate) fn request(&self) -> Request {
        // What is parked on it may go on all the same.
        let quota = if self.parked.is_empty() { self.quota_left() } else { u32::MAX };
        let asked = if self.connected { self.asked.min(quota) } else { 0 };
        let left = if asked > 0 { self.free_share() } else { Share::NONE };
        Request { asked, left }
    }

    /// It asks for work for so many more cores; never for more than it has.
    pub(crate) fn ask(&mut self, cores: u32) {
        let most = self.info.cores.max(self.fragment.cores).min(CORES_MAX);
        self.asked = self.asked.saturating_add(cores).min(most);
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
        Share::cores(self.fragment.cores)
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

    /// Whether it gives anything now.
    pub(crate) fn is_open(&self) -> Result<(), Refusal> {
        if !self.connected {
            Err(Refusal::Disconnected)
        } else if self.fragment.cores == 0 {
            Err(Refusal::FragmentClosed)
        } else {
            Ok(())
        }
    }

    /// Its lease under this token.
    pub(crate) fn lease(&self, token: LeaseToken) -> Option<Lease> {
        self.all_leases().find(|lease| lease.token == token).copied()
    }

    /// All its leases: those that take a slot first.
    pub fn all_leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().chain(&self.finished).chain(&self.parked)
    }

    /// Whether it holds a lease of any kind.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        !(self.leases.is_empty() && self.finished.is_empty() && self.parked.is_empty())
    }

    /// Whether one more replica may be parked here: agents keep as many as they have cores, as long as
    /// their owners allow.
    pub(crate) fn can_park(&self) -> bool {
        self.parked.len() < self.info.cores as usize
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

    /// A lease has this share, as its host says; where that is too much, what does not fit is taken
    /// back after that.
    pub(crate) fn note_share(&mut self, token: LeaseToken, share: Share) {
        let taking = self.leases.iter_mut().chain(&mut self.finished).chain(&mut self.parked);
        let lease = taking.into_iter().find(|lease| lease.token == token);
        if let Some(lease) = lease.filter(|_| share != Share::NONE) {
            lease.share = share;
        }
    }

    /// Whether a lease takes no slot for a render's sake: its replica is frozen.
    pub(crate) fn is_frozen(&self, token: LeaseToken) -> bool {
        self.finished.iter().any(|lease| lease.token == token)
    }

    /// Whether a lease takes no slot for another lane's sake.
    pub(crate) fn is_parked(&self, token: LeaseToken) -> bool {
        self.parked.iter().any(|lease| lease.token == token)
    }

    /// Takes a lease out of whichever list it is in, from the end: what was adopted is the last.
    pub(crate) fn take_lease(&mut self, token: LeaseToken) -> Option<Lease> {
        let is_it = |held: &Lease| held.token == token;
        if let Some(at) = self.leases.iter().rposition(is_it) {
            return Some(self.leases.remove(at));
        }
        if let Some(at) = self.finished.iter().rposition(is_it) {
            return Some(self.finished.remove(at));
        }
        let at = self.parked.iter().rposition(is_it)?;
        Some(self.parked.remove(at))
    }

    /// Forgets a lease that has ended; the share that it held, if it took a slot.
    pub(crate) fn drop_lease(&mut self, token: LeaseToken) -> Option<Share> {
        let taking = self.leases.iter().rposition(|held| held.token == token);
        let share = taking.map(|at| self.leases.remove(at).share);
        if share.is_none() {
            self.take_lease(token);
        }
        if !self.holds_any() {
            self.grace_until = None;
        }
        share
    }
}
