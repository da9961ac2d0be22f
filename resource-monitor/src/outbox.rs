//! What the broker is still to be told.
//!
//! # Invariants
//! - At most one event waits per host, the newest: memory is bounded by the number of hosts,
//!   however long the broker is away.
//! - Events leave in the order in which they came.
//! - An opening's validity runs from when it was decided, not from when it is sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{HostName, Time};
use tokio::sync::Notify;

/// An event, and when it was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    serial: u64,
    at: Time,
    event: FarmEvent,
}

impl Decided {
    /// The event as it is true now: none where its validity is over.
    #[must_use]
    pub fn as_of(&self, now: Time) -> Option<FarmEvent> {
        let mut event = self.event.clone();
        if let FarmEvent::FragmentOpened { valid_ms, .. } = &mut event {
            *valid_ms = valid_ms.checked_sub(now.since(self.at).as_millis())?;
            if *valid_ms == 0 {
                return None;
            }
        }
        Some(event)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    last_serial: u64,
    events: BTreeMap<u64, Decided>,
    by_host: HashMap<HostName, u64>,
}

/// The queue to the broker: at most one event per host, the newest.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl Outbox {
    /// Adds an event; an older one of the same host that still waits is out of date with it.
    pub fn put(&self, at: Time, event: FarmEvent) {
        let mut waiting = self.lock();
        waiting.last_serial += 1;
        let serial = waiting.last_serial;
        if let Some(older) = waiting.by_host.insert(event.host().clone(), serial) {
            waiting.events.remove(&older);
        }
        waiting.events.insert(serial, Decided { serial, at, event });
        drop(waiting);
        self.filled.notify_one();
    }

    /// Waits until there is something, then takes the oldest of it, at most `max`.
    pub async fn take(&self, max: usize) -> Vec<Decided> {
        loop {
            let batch = self.take_now(max);
            if !batch.is_empty() {
                return batch;
            }
            self.filled.notified().await;
        }
    }

    /// Puts back what could not be sent, except what is out of date by now.
    pub fn give_back(&self, batch: Vec<Decided>) {
        let mut waiting = self.lock();
        for decided in batch {
            let host = decided.event.host();
            if !waiting.by_host.contains_key(host) {
                waiting.by_host.insert(host.clone(), decided.serial);
                waiting.events.insert(decided.serial, decided);
            }
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// Takes the oldest of what waits, at most `max`.
    pub fn take_now(&self, max: usize) -> Vec<Decided> {
        let mut waiting = self.lock();
        let mut batch = Vec::new();
        while batch.len() < max {
            let Some((_, decided)) = waiting.events.pop_first() else { break };
            waiting.by_host.remove(decided.event.host());
            batch.push(decided);
        }
        batch
    }

    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::{Epoch, Span};

    fn opened(host: &str, valid_ms: u64) -> FarmEvent {
        let host = HostName::new(host).expect("a name");
        FarmEvent::FragmentOpened {
            host,
            epoch: Epoch::default(),
            cores: 1,
            memory_mib: 1,
            booked_cores: 0,
            gpus: None,
            valid_ms,
            ended: Vec::new(),
            seal: None,
        }
    }

    fn closed(host: &str) -> FarmEvent {
        let host = HostName::new(host).expect("a name");
        FarmEvent::FragmentClosed { host, reason: "booked".into() }
    }

    fn events(batch: &[Decided]) -> Vec<FarmEvent> {
        batch.iter().map(|decided| decided.event.clone()).collect()
    }

    #[test]
    fn only_the_newest_event_of_a_host_waits() {
        let outbox = Outbox::default();
        outbox.put(Time::ZERO, opened("a", 9));
        outbox.put(Time::ZERO, opened("b", 9));
        outbox.put(Time::ZERO, closed("a"));
        assert_eq!(outbox.len(), 2);
        assert_eq!(events(&outbox.take_now(9)), [opened("b", 9), closed("a")]);
        assert_eq!(outbox.take_now(9), []);
    }

    #[test]
    fn what_comes_back_does_not_overtake_or_overrule_what_came_meanwhile() {
        let outbox = Outbox::default();
        outbox.put(Time::ZERO, opened("a", 9));
        outbox.put(Time::ZERO, opened("b", 9));
        let batch = outbox.take_now(9);
        outbox.put(Time::ZERO, closed("a"));
        outbox.give_back(batch);
        assert_eq!(events(&outbox.take_now(1)), [opened("b", 9)]);
        assert_eq!(events(&outbox.take_now(9)), [closed("a")]);
    }

    #[test]
    fn an_opening_ages_while_it_waits() {
        let outbox = Outbox::default();
        outbox.put(Time::ZERO, opened("a", 1_000));
        outbox.put(Time::ZERO, closed("b"));
        let batch = outbox.take_now(9);
        let later = |ms| Time::ZERO + Span::from_millis(ms);
        assert_eq!(batch[0].as_of(later(400)), Some(opened("a", 600)));
        assert_eq!(batch[0].as_of(later(1_000)), None);
        assert_eq!(batch[0].as_of(later(5_000)), None);
        assert_eq!(batch[1].as_of(later(5_000)), Some(closed("b")));
    }
}
