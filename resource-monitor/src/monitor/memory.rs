//! What of a host outlives the monitor.
//!
//! A monitor that starts knows nothing of its hosts, and would wait a quiet period for each. What
//! it knew before shortens that wait, and nothing else: a host is opened by what is heard of it
//! now. And bookings of which only a hook told are not forgotten, for nobody would tell again.
//!
//! # Invariants
//! - A wait is shortened only when its agent, and the farm where it was polled, have spoken since
//!   the start and say what was known before: the same epoch and the same bookings.
//! - Bookings of which only polls told are not remembered, but that the farm listed the host is: a
//!   host without hooks is not confirmed before the farm, where it is polled, has listed it again.
//! - What is known of who tells of its renders holds on, good and bad.
//! - What does not agree, or comes from another boot, is worth nothing: the host waits anew.

use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, Epoch, HostName, Origin, Span, Time};
use serde::{Deserialize, Serialize};

use super::Rules;
use super::bookings::{Booking, Witness};
use super::host::{Host, Tellers};

/// A host, as the monitor knew it before it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Its name.
    pub(super) host: HostName,
    /// The newest epoch that was known.
    epoch: Option<Epoch>,
    /// Since when nothing had changed on it; none where that is not to be relied upon.
    quiet_since: Option<Time>,
    /// Whether the farm listed it.
    is_polled: bool,
    /// Who told of its renders.
    #[serde(default, skip_serializing_if = "Tellers::are_unknown")]
    tellers: Tellers,
    /// Renders that ran.
    bookings: Vec<RememberedBooking>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedBooking {
    booking: BookingId,
    resources: Booked,
    /// What its hook said, where one told of it.
    by_hook: Option<Booked>,
    /// Of its preflight.
    epoch: Option<Epoch>,
    /// Which source has listed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed_by: Option<String>,
    began: Time,
}

impl Remembered {
    /// Without what only the boot in which it was written can measure.
    #[must_use]
    pub fn of_another_boot(mut self) -> Self {
        self.quiet_since = None;
        for booking in &mut self.bookings {
            booking.began = Time::ZERO;
        }
        self
    }

    fn lists(&self, id: &BookingId, booking: &Booking) -> bool {
        self.bookings.iter().any(|known| {
            let Booked { cores, memory_mib, .. } = known.resources;
            known.booking == *id && (cores, memory_mib) == (booking.cores(), booking.memory_mib())
        })
    }
}

impl Host {
    /// What is worth remembering of it.
    pub(super) fn remember(&self, name: &HostName) -> Option<Remembered> {
        let is_known = self.epoch.is_some() || self.bookings.len() > 0;
        if self.origin == Some(Origin::Desktop) || !is_known {
            return None;
        }
        let is_reliable = self.is_accounted_for() && !self.bookings.overflow;
        let bookings = self.bookings.iter().map(|(id, booking)| RememberedBooking {
            booking: id.clone(),
            resources: Booked {
                cores: booking.cores(),
                memory_mib: booking.memory_mib(),
                gpus: booking.gpus(),
            },
            by_hook: booking.claim(Witness::Hook),
            epoch: booking.epoch,
            listed_by: booking.listed_by.clone(),
            began: booking.began,
        });
        Some(Remembered {
            host: name.clone(),
            epoch: self.epoch,
            quiet_since: Some(self.quiet_since).filter(|_| is_reliable),
            is_polled: self.was_polled || self.last_poll().is_some(),
            tellers: self.tellers,
            bookings: bookings.collect(),
        })
    }

    /// Goes on from what was known before the monitor started.
    pub(super) fn restore(&mut self, now: Time, memory: Remembered) {
        self.epoch = memory.epoch;
        self.was_polled = memory.is_polled;
        self.tellers = memory.tellers;
        for known in &memory.bookings {
            let Some(by_hook) = known.by_hook else { continue };
            let began = if known.began == Time::ZERO { now } else { known.began.min(now) };
            self.bookings.claim(began, &known.booking, Witness::Hook, by_hook);
            if let Some(epoch) = known.epoch {
                self.bookings.set_epoch(&known.booking, epoch);
            }
            if let Some(source) = &known.listed_by {
                self.bookings.set_listed_by(&known.booking, source);
            }
        }
        self.memory = Some(memory).filter(|memory| memory.quiet_since.is_some());
    }

    /// Shortens the wait where all who spoke before have spoken again and nothing has changed.
    pub(super) fn recall(&mut self, now: Time, rules: &Rules) {
        let Some(memory) = self.memory.take() else { return };
        // After that there is nothing left to shorten.
        let is_over = now >= self.quiet_until;
        let is_same = self.epoch == memory.epoch && self.is_undisturbed();
        if is_over || !is_same {
            return;
        }
        if self.last_sample.is_none() || (memory.is_polled && self.last_poll().is_none()) {
            self.memory = Some(memory);
            return;
        }
        let mut bookings = self.bookings.iter();
        let all_known = bookings.all(|(id, booking)| memory.lists(id, booking));
        let same_bookings = all_known && self.bookings.len() == memory.bookings.len();
        if let Some(since) = memory.quiet_since.filter(|since| same_bookings && *since <= now) {
            self.quiet_since = since;
            self.quiet_until = self.quiet_until.min(since + rules.quiet);
        }
    }
}

/// For how long after a start what is remembered of hosts that nobody has spoken of is passed on.
pub(super) const MEMORY_KEPT: Span = Span::from_secs(86_400);
