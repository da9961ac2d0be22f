//! Places for connections: how many there are, and who has to go where they are all taken.
//!
//! A connection is *unproven* until a request on it has passed the guard. Unproven ones cost an
//! attacker nothing, so they have few places, and the oldest of them goes for a new one: first one
//! of the address that has the most.
//!
//! # Invariants
//! - No more connections are open than there are places.
//! - Unproven ones never take more than their part of the places, those of one address no more than
//!   the address's part of these.
//! - However many agents, hooks and submitters connect, places are left for others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::{Span, Time, boottime};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::access::Role;
use crate::limits::{
    ADDRESS_PART, KEPT_PART, SILENCE_MIN, UNPROVEN_MIN, UNPROVEN_PART, UNPROVEN_TIME_MIN,
};

/// All places of a listener.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    places_max: usize,
    unproven_max: usize,
    address_max: usize,
    common_max: usize,
    taken: Mutex<Taken>,
    /// Somebody is not unproven any more.
    proven: Notify,
}

/// Who has a place.
#[derive(Default)]
struct Taken {
    next: u64,
    /// By address, the oldest first.
    unproven: BTreeMap<IpAddr, BTreeMap<u64, Arc<Seat>>>,
    /// How many these are.
    unproven_count: usize,
    /// Connections of roles that many have.
    common: usize,
}

/// One place that is taken, as the request handler sees it.
pub(crate) struct Seat {
    number: u64,
    address: IpAddr,
    since: Time,
    has_spoken: AtomicBool,
    may_send: AtomicBool,
    standing: Mutex<Standing>,
    evicted: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproven,
    Proven,
    /// Proven, as somebody of a role that many have.
    Common,
}

/// A place, given back when it is dropped.
pub(crate) struct Place {
    pub(crate) seat: Arc<Seat>,
    places: Arc<Places>,
    _permit: OwnedSemaphorePermit,
}

/// Whether somebody can come in.
enum Room {
    Free,
    /// If this one goes.
    For(Arc<Seat>),
    /// Not before so long.
    In(Span),
}

impl Places {
    pub(crate) fn new(connections_max: usize) -> Arc<Self> {
        let places_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        let least = UNPROVEN_MIN.min(places_max);
        let unproven_max = (places_max / UNPROVEN_PART).max(least);
        let address_max = (unproven_max / ADDRESS_PART).max(least.div_ceil(ADDRESS_PART));
        let kept = unproven_max + places_max / KEPT_PART;
        Arc::new(Self {
            free: Arc::new(Semaphore::new(places_max)),
            places_max,
            unproven_max,
            address_max,
            common_max: places_max.saturating_sub(kept).max(1),
            taken: Mutex::default(),
            proven: Notify::new(),
        })
    }

    /// Waits for a place for a new connection from an address. Must not be called twice at a time.
    pub(crate) async fn take(self: &Arc<Self>, peer: IpAddr) -> Place {
        let address = network_of(peer);
        loop {
            match self.room_for(address, boottime()) {
                Room::Free => break,
                Room::For(oldest) => {
                    self.forget(&oldest);
                    oldest.evicted.notify_one();
                    break;
                }
                Room::In(span) => {
                    // Whichever comes first.
                    let _ = tokio::time::timeout(span.into(), self.proven.notified()).await;
                }
            }
        }
        let permit = Arc::clone(&self.free).acquire_owned().await.expect("it is never closed");
        let mut taken = self.taken();
        taken.next += 1;
        let seat = Arc::new(Seat {
            number: taken.next,
            address,
            since: boottime(),
            has_spoken: AtomicBool::new(false),
            may_send: AtomicBool::new(true),
            standing: Mutex::new(Standing::Unproven),
            evicted: Notify::new(),
        });
        taken.unproven.entry(address).or_default().insert(seat.number, Arc::clone(&seat));
        taken.unproven_count += 1;
        drop(taken);
        Place { seat, places: Arc::clone(self), _permit: permit }
    }

    fn room_for(&self, address: IpAddr, now: Time) -> Room {
        let taken = self.taken();
        let of_address = taken.unproven.get(&address).filter(|of| of.len() >= self.address_max);
        let is_full = self.free.available_permits() == 0;
        // Where several addresses have as many, the one that has been there for longest.
        let oldest = |of: &BTreeMap<u64, Arc<Seat>>| Reverse(of.keys().next().copied());
        let most = || taken.unproven.values().max_by_key(|of| (of.len(), oldest(of)));
        let rivals = match of_address {
            Some(rivals) => rivals,
            None if is_full || taken.unproven_count >= self.unproven_max => match most() {
                Some(rivals) => rivals,
                // All are proven: it waits until one of them ends.
                None => return Room::Free,
            },
            None => return Room::Free,
        };
        let is_silent = |seat: &&Arc<Seat>| !seat.has_spoken.load(Ordering::Relaxed);
        let silent = rivals.values().find(is_silent).map(|seat| (seat, SILENCE_MIN));
        let first = || rivals.values().next().map(|seat| (seat, UNPROVEN_TIME_MIN));
        let Some((goes, time_min)) = silent.or_else(first) else { return Room::Free };
        match (goes.since + time_min.into()).since(now) {
            Span::ZERO => Room::For(Arc::clone(goes)),
            // Whoever comes in a crowd has that long to be proven.
            rest => Room::In(rest),
        }
    }

    /// A request of somebody of this role has passed the guard on a connection; `false` where there
    /// is no place for one more of them.
    pub(crate) fn prove(&self, seat: &Seat, role: Role) -> bool {
        let mut standing = seat.standing();
        let due = match (*standing, role.is_common()) {
            (Standing::Proven, _) | (Standing::Common, true) => return true,
            (_, false) => Standing::Proven,
            (Standing::Unproven, true) => Standing::Common,
        };
        let mut taken = self.taken();
        match due {
            Standing::Common if taken.common >= self.common_max => return false,
            Standing::Common => taken.common += 1,
            _ => taken.common -= usize::from(*standing == Standing::Common),
        }
        drop(taken);
        *standing = due;
        drop(standing);
        self.forget(seat);
        self.proven.notify_one();
        true
    }

    /// Whether all places were given back within `time`.
    pub(crate) async fn are_all_free_within(&self, time: std::time::Duration) -> bool {
        let all = u32::try_from(self.places_max).unwrap_or(u32::MAX);
        matches!(tokio::time::timeout(time, self.free.acquire_many(all)).await, Ok(Ok(_)))
    }

    /// Takes a seat off the unproven ones, where it is one.
    fn forget(&self, seat: &Seat) {
        let mut taken = self.taken();
        let Some(of_address) = taken.unproven.get_mut(&seat.address) else { return };
        let was_there = of_address.remove(&seat.number).is_some();
        if of_address.is_empty() {
            taken.unproven.remove(&seat.address);
        }
        taken.unproven_count -= usize::from(was_there);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Each change is whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.forget(&self.seat);
        if *self.seat.standing() == Standing::Common {
            self.places.taken().common -= 1;
        }
        self.places.proven.notify_one();
    }
}

impl Seat {
    /// Something came over the connection: it may be the begin of a request.
    pub(crate) fn has_spoken(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
        self.may_send.store(true, Ordering::Relaxed);
    }

    /// A request begins, with a body or without one.
    pub(crate) fn asks(&self, has_body: bool) {
        self.may_send.store(has_body, Ordering::Relaxed);
    }

    /// Whether some of a request may still come: of the last one's body, or of one that nobody understands.
    pub(crate) fn may_send(&self) -> bool {
        self.may_send.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unproven(&self) -> bool {
        *self.standing() == Standing::Unproven
    }

    /// Ends when the connection has to go.
    pub(crate) async fn evicted(self: Arc<Self>) {
        self.evicted.notified().await;
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has one address of version 6 has the 2^64 beside it.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    /// A place that has been unproven for so long.
    async fn taken(places: &Arc<Places>, last: u8, age: Span, has_spoken: bool) -> Place {
        let mut place = places.take(address(last)).await;
        let old = Arc::get_mut(&mut place.seat);
        assert!(old.is_none(), "the seat is listed");
        let seat = Arc::new(Seat {
            number: place.seat.number,
            address: place.seat.address,
            since: Time::from_micros(boottime().as_micros().saturating_sub(age.as_micros())),
            has_spoken: AtomicBool::new(has_spoken),
            may_send: AtomicBool::new(true),
            standing: Mutex::new(Standing::Unproven),
            evicted: Notify::new(),
        });
        let mut all = places.taken();
        let of_address = all.unproven.get_mut(&seat.address).expect("listed");
        of_address.insert(seat.number, Arc::clone(&seat));
        drop(all);
        place.seat = seat;
        place
    }

    fn prove(place: &Place, role: Role) -> bool {
        place.places.prove(&place.seat, role)
    }

    /// 64 places: 16 unproven, 8 of an address.
    fn places() -> Arc<Places> {
        let places = Places::new(64);
        assert_eq!((places.unproven_max, places.address_max), (16, 8));
        places
    }

    const OLD: Span = Span::from_secs(60);

    async fn is_evicted(place: &Place) -> bool {
        let evicted = Arc::clone(&place.seat).evicted();
        tokio::time::timeout(std::time::Duration::ZERO, evicted).await.is_ok()
    }

    #[tokio::test]
    async fn the_oldest_silent_one_of_an_address_goes_for_a_new_one_of_it() {
        let places = places();
        let mut all = vec![taken(&places, 1, OLD, true).await];
        for _ in 0..7 {
            all.push(taken(&places, 1, OLD, false).await);
        }
        let other = taken(&places, 2, OLD, false).await;
        let new = places.take(address(1)).await;
        assert!(is_evicted(&all[1]).await);
        for stays in [&all[0], &all[2], &all[7], &other, &new] {
            assert!(!is_evicted(stays).await);
        }
        // Those who have been proven are out of reach.
        assert!(all.iter().all(|place| prove(place, Role::Admin)));
        assert_eq!(places.taken().unproven_count, 2);
    }

    #[tokio::test]
    async fn where_all_are_taken_one_of_the_address_with_most_goes() {
        let places = places();
        let mut many = Vec::new();
        for _ in 0..4 {
            many.push(taken(&places, 9, OLD, false).await);
        }
        let mut single = Vec::new();
        for last in 10..22 {
            single.push(taken(&places, last, OLD, false).await);
        }
        assert_eq!(places.taken().unproven_count, places.unproven_max);
        let new = places.take(address(1)).await;
        assert!(is_evicted(&many[0]).await);
        assert!(!is_evicted(&many[1]).await && !is_evicted(&single[0]).await);
        assert!(new.seat.is_unproven());
        // Of those that have as many, the one that came first.
        many.drain(1..);
        let _more = [
            taken(&places, 2, OLD, false).await,
            taken(&places, 3, OLD, false).await,
            taken(&places, 4, OLD, false).await,
        ];
        let _new = places.take(address(5)).await;
        assert!(is_evicted(&single[0]).await && !is_evicted(&single[11]).await);
    }

    #[tokio::test]
    async fn those_who_are_being_served_do_not_go_for_new_ones_at_once() {
        let places = places();
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(taken(&places, 1, Span::ZERO, true).await);
        }
        let room = |last| places.room_for(address(last), boottime());
        assert!(matches!(room(1), Room::In(rest) if rest <= UNPROVEN_TIME_MIN.into()));
        assert!(matches!(room(2), Room::Free));
        // One more comes in as soon as one of them is proven, or gone.
        assert!(prove(&all[3], Role::Admin));
        assert!(matches!(room(1), Room::Free));
        all.push(taken(&places, 1, OLD, true).await);
        assert!(matches!(room(1), Room::In(_)), "the first of them goes first");
        drop(all.remove(0));
        assert!(matches!(room(1), Room::Free));
    }

    #[tokio::test]
    async fn however_many_agents_there_are_others_find_a_place() {
        let places = places();
        let mut agents = Vec::new();
        loop {
            let place = places.take(address(1)).await;
            if !prove(&place, Role::Agent) {
                break;
            }
            agents.push(place);
        }
        assert_eq!(agents.len(), 64 - 16 - 2);
        let client = places.take(address(1)).await;
        assert!(prove(&client, Role::Admin));
        // A place that an agent gives back is another one's.
        drop(agents.pop());
        let agent = places.take(address(1)).await;
        assert!(prove(&agent, Role::Agent) && prove(&agent, Role::Agent));
        assert!(prove(&agent, Role::Admin), "the same connection shows a better token");
        assert_eq!(places.taken().common, agents.len());
        drop((agents, agent, client));
        let taken = places.taken();
        assert_eq!((taken.common, taken.unproven_count), (0, 0));
    }

    #[test]
    fn neighbours_of_version_6_are_one_address() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3::1"), of("2001:db8:1:2:ffff::2"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
