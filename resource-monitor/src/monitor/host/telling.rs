//! Whether a host's renders are told of as they begin: the one rule for it.
//!
//! Where they are, its agent's word confirms the host, whatever the farm's polls do. Where they are
//! not, only polls know of renders, and only they confirm it.
//!
//! - They are told of while its agent says that it watches the farm's workers.
//! - They are from the first word of a hook on, to the monitor or in the run folder. That the epoch was
//!   raised is none: one that watched, and watches no more, has raised it too, and so has an agent in
//!   a hook's stead.
//! - They are by neither from when the farm has listed a render for long that is to be told of and that
//!   none has told of, which began after they had, and where the agent has looked since: whatever
//!   hooks there are, others may begin without them, and a worker may start renders where nobody
//!   sees it.
//! - All of that holds until the host begins a new life.

use gleaner_protocol::farm::HostSample;
use gleaner_protocol::{BookingId, Time};
use serde::{Deserialize, Serialize};

use super::Host;
use crate::limits::HOOK_LAG;
use crate::monitor::HostAllocation;

/// Who tells of a host's renders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::monitor) struct Tellers {
    /// When a hook spoke first.
    hooks_since: Option<Time>,
    /// Since when its agent says that it is told of all that the farm's workers start; the next
    /// sample says it again.
    #[serde(skip)]
    watch_since: Option<Time>,
    /// A render began of which none of them has told.
    has_missed: bool,
}

impl Tellers {
    pub(in crate::monitor) const fn are_unknown(&self) -> bool {
        self.hooks_since.is_none() && !self.has_missed
    }

    fn since(&self) -> Option<Time> {
        self.hooks_since.into_iter().chain(self.watch_since).min()
    }

    /// Who told of its renders under another name.
    pub(in crate::monitor) fn also(&mut self, other: Self) {
        self.hooks_since = self.hooks_since.into_iter().chain(other.hooks_since).min();
        self.has_missed |= other.has_missed;
    }

    /// A hook has spoken.
    pub(super) fn hear_hook(&mut self, now: Time) {
        self.hooks_since.get_or_insert(now);
    }
}

impl Host {
    /// Whether renders are told of as they begin.
    pub(in crate::monitor) fn is_told_of(&self) -> bool {
        !self.tellers.has_missed && self.tellers.since().is_some()
    }

    /// What a sample shows of it.
    pub(super) fn note_tellers(&mut self, now: Time, sample: &HostSample) {
        let tellers = &mut self.tellers;
        tellers.watch_since = sample.watches.then(|| tellers.watch_since.unwrap_or(now));
        // What an agent watches, or a former one did, is no hook's word.
        let mut bookings = sample.bookings.iter();
        if !sample.watches && bookings.any(|booking| !sample.alive.contains(&booking.booking)) {
            tellers.hear_hook(now);
        }
    }

    /// Looks whether all was told of that the farm lists.
    pub(super) fn look_for_missed(&mut self, now: Time, allocation: &HostAllocation) {
        let (Some(sampled), Some(since)) = (self.last_sample, self.tellers.since()) else { return };
        if self.tellers.has_missed {
            return;
        }
        let is_missed = |id: &&BookingId| {
            self.bookings.get(id).is_some_and(|booking| {
                !booking.was_told && since < booking.began && booking.began + HOOK_LAG <= sampled
            })
        };
        let Some(missed) = allocation.announced.iter().find(is_missed).cloned() else { return };
        let text =
            format!("{missed} began and nobody on the host has told of it: polls confirm it");
        self.contradict(now, text);
        self.tellers.has_missed = true;
    }
}
