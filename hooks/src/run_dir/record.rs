//! What is written of one booking, and what hooks make of it: the rule alone, without a folder.

use gleaner_protocol::Time;
use gleaner_protocol::farm::Booked;
use serde::{Deserialize, Serialize};

use super::BookingChange;
use crate::limits::LATE_PREFLIGHT;

/// A booking's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum BookingRecord {
    /// A preflight came.
    Running {
        /// What it books.
        resources: Booked,
    },
    /// A postflight came.
    Ended {
        /// When, in microseconds since the machine booted.
        at_us: u64,
        /// Whether its preflight had not come before, and has not yet.
        first: bool,
    },
}

impl BookingRecord {
    /// What a preflight makes of what is there: the record to write, where there is one, and what
    /// that changes.
    #[must_use]
    pub fn preflight(
        present: Option<Self>,
        now: Time,
        booked: &Booked,
    ) -> (Option<Self>, BookingChange) {
        match present {
            Some(Self::Running { .. }) => (None, BookingChange::AlreadyThere),
            Some(Self::Ended { at_us, first: true })
                if now.since(Time::from_micros(at_us)) <= LATE_PREFLIGHT =>
            {
                (Some(Self::Ended { at_us, first: false }), BookingChange::AlreadyEnded)
            }
            Some(Self::Ended { .. }) | None => {
                (Some(Self::Running { resources: *booked }), BookingChange::New)
            }
        }
    }

    /// What a postflight makes of what is there.
    #[must_use]
    pub fn postflight(present: Option<Self>, now: Time) -> (Option<Self>, BookingChange) {
        let at_us = now.as_micros();
        match present {
            Some(Self::Ended { .. }) => (None, BookingChange::AlreadyEnded),
            Some(Self::Running { .. }) => {
                (Some(Self::Ended { at_us, first: false }), BookingChange::New)
            }
            None => (Some(Self::Ended { at_us, first: true }), BookingChange::New),
        }
    }
}
