//! How likely hosts stay open, by the farm's own record.
//!
//! What hosts close of their fragments is counted over the time that they were open. A host's own
//! record weighs as much as that of all hosts of its side once it has been open for [`KNOWN_US`].

use std::collections::BTreeMap;

use gleaner_protocol::{Origin, Time};

use crate::farm::{Farm, HostIx};

/// After how much open time of a slot its host is known, in microseconds; of a side of which less is
/// known, one slot is thought to close in this time.
const KNOWN_US: f64 = 8.0 * 3_600e6;

/// What became of slots.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// For how long they were open, in microseconds of a slot.
    open_us: f64,
    /// How many closed.
    closed: f64,
}

impl Record {
    /// Slots that close per microsecond of a slot, where `others` do.
    fn rate(self, others: f64) -> f64 {
        (self.closed + KNOWN_US * others) / (self.open_us + KNOWN_US)
    }
}

#[derive(Debug)]
struct Seen {
    record: Record,
    side: Origin,
    slots: u32,
    since: Time,
    /// Since when it gives something.
    open_since: Option<Time>,
}

impl Seen {
    fn record_at(&self, now: Time) -> Record {
        let span_us = now.since(self.since).as_micros() as f64;
        let open_us = self.record.open_us + span_us * f64::from(self.slots);
        Record { open_us, ..self.record }
    }
}

/// The record.
#[derive(Debug, Default)]
pub(super) struct Survival {
    hosts: BTreeMap<HostIx, Seen>,
}

/// What it says of a moment.
#[derive(Debug)]
pub(super) struct Outlook {
    /// By host: how many of its slots close per microsecond of a slot; since when it is open.
    hosts: BTreeMap<HostIx, (f64, Option<Time>)>,
}

impl Survival {
    /// A host connected, left, or gives another fragment.
    pub(super) fn note(&mut self, now: Time, farm: &Farm, host: HostIx) {
        let entry = farm.host(host);
        let slots = if entry.connected { entry.fragment.cores } else { 0 };
        let side = entry.origin();
        let seen = self.hosts.entry(host).or_insert_with(|| Seen {
            record: Record::default(),
            side,
            slots: 0,
            since: now,
            open_since: None,
        });
        seen.record = seen.record_at(now);
        seen.record.closed += f64::from(seen.slots.saturating_sub(slots));
        seen.open_since = (slots > 0).then(|| seen.open_since.unwrap_or(now));
        (seen.side, seen.slots, seen.since) = (side, slots, now);
    }

    /// A host was forgotten.
    pub(super) fn forget(&mut self, host: HostIx) {
        self.hosts.remove(&host);
    }

    pub(super) fn at(&self, now: Time) -> Outlook {
        let side = |side: Origin| {
            let of_side = self.hosts.values().filter(|seen| seen.side == side);
            let sum = of_side.map(|seen| seen.record_at(now)).fold(Record::default(), |sum, of| {
                Record { open_us: sum.open_us + of.open_us, closed: sum.closed + of.closed }
            });
            sum.rate(1.0 / KNOWN_US)
        };
        let (farm, desktop) = (side(Origin::Farm), side(Origin::Desktop));
        let host = |(host, seen): (&HostIx, &Seen)| {
            let of_side = if seen.side == Origin::Farm { farm } else { desktop };
            (*host, (seen.record_at(now).rate(of_side), seen.open_since))
        };
        Outlook { hosts: self.hosts.iter().map(host).collect() }
    }
}

impl Outlook {
    /// How many slots of a host close within a time, per slot: where it is small, the chance that
    /// one closes.
    pub(super) fn closings(&self, host: HostIx, within_us: u64) -> f64 {
        self.hosts.get(&host).map_or(1.0, |(rate, _)| rate * within_us as f64)
    }

    /// Puts hosts in order: those first that close least often, of these those that are open for
    /// longest.
    pub(super) fn order<T>(&self, hosts: &mut [(HostIx, T)]) {
        let last = (f64::INFINITY, None);
        let of = |host: HostIx| self.hosts.get(&host).copied().unwrap_or(last);
        hosts.sort_by(|(one, _), (other, _)| {
            let ((rate, since), (other_rate, other_since)) = (of(*one), of(*other));
            let by_age = || since.cmp(&other_since);
            rate.total_cmp(&other_rate).then_with(by_age).then(one.cmp(other))
        });
    }
}
