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
            // A retry whose postflight was lost may book more or less than what it follows.
            Some(Self::Running { resources }) => {
                let most = larger(resources, *booked);
                let record = (most != resources).then_some(Self::Running { resources: most });
                (record, BookingChange::AlreadyThere)
            }
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

/// The more of both, each for itself. No number of cores stands for the whole host.
fn larger(one: Booked, other: Booked) -> Booked {
    Booked {
        cores: one.cores.zip(other.cores).map(|(one, other)| one.max(other)),
        memory_mib: one.memory_mib.max(other.memory_mib),
        gpus: one.gpus.max(other.gpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_preflight_books_the_more_of_both() {
        let booked = |cores, memory_mib| Booked { cores, memory_mib, gpus: None };
        for (first, second, most) in [
            (booked(Some(1), None), booked(Some(12), None), booked(Some(12), None)),
            (booked(Some(12), None), booked(Some(1), None), booked(Some(12), None)),
            (booked(Some(1), None), booked(None, None), booked(None, None)),
            (booked(None, Some(3)), booked(Some(12), Some(2)), booked(None, Some(3))),
            (booked(Some(2), Some(5)), booked(Some(3), Some(4)), booked(Some(3), Some(5))),
        ] {
            let present = Some(BookingRecord::Running { resources: first });
            let (record, change) = BookingRecord::preflight(present, Time::ZERO, &second);
            assert_eq!(change, BookingChange::AlreadyThere);
            let stands = record.or(present);
            assert_eq!(stands, Some(BookingRecord::Running { resources: most }));
            assert_eq!(record.is_none(), first == most, "nothing is written for nothing");
        }
    }
}
