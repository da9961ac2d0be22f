//! One host: what is known of it, by whom, and the fragment that this leaves.

mod hearing;
mod occupation;
mod settling;

use std::collections::VecDeque;

use gleaner_protocol::{BookingId, Epoch, Origin, Time};

use self::occupation::Said;
use super::Rules;
use super::bookings::{Bookings, Ended, Witness};
use super::fragment::Fragment;
use crate::limits::CONTRADICTIONS_MAX;

/// Cores and memory of a host, in the words of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) cores: u32,
    pub(super) memory_mib: u64,
}

/// What only serves display.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gauges {
    pub(super) cpu_percent: f32,
    pub(super) used_memory_mib: u64,
    pub(super) replicas: u32,
}

/// Two sources that disagree.
#[derive(Debug, Clone)]
pub(super) struct Contradiction {
    pub(super) at: Time,
    pub(super) times: u32,
    pub(super) text: String,
}

/// A source that lists the host.
#[derive(Debug)]
struct Cover {
    source: String,
    answered_at: Time,
    missed: u8,
}

/// An epoch next to the newest one that was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// No epoch: the run folder could not be used.
    Unknown,
    /// Of the life before this one.
    FormerLife,
    Older,
    Same,
    /// One preflight later.
    Next,
    /// More than that: there are preflights that nobody told of.
    Ahead,
    /// The first epoch that is known of the host.
    First,
    OtherLife,
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) origin: Option<Origin>,
    pub(super) sampled: Option<Size>,
    pub(super) polled: Option<Size>,
    pub(super) gauges: Option<Gauges>,
    pub(super) epoch: Option<Epoch>,
    former_incarnation: Option<u64>,
    /// A hook could not raise the epoch: an older opening could still be obeyed.
    epoch_in_doubt: bool,
    has_hooks: bool,
    pub(super) bookings: Bookings,
    pub(super) quiet_until: Time,
    /// Set where an open fragment must not live on in a smaller form.
    must_close: Option<&'static str>,
    pub(super) fragment: Fragment,
    pub(super) last_event: Option<Time>,
    pub(super) last_sample: Option<Time>,
    cover: Option<Cover>,
    pub(super) contradictions: VecDeque<Contradiction>,
    pub(super) contradictions_total: u64,
    /// What the recording has of it.
    said: Option<Said>,
    /// What the monitor's index has of this host.
    pub(super) indexed_deadline: Option<Time>,
}

impl Host {
    /// First seen now: what happened on it just before is unknown.
    pub(super) fn new(now: Time, rules: &Rules) -> Self {
        Self {
            origin: None,
            sampled: None,
            polled: None,
            gauges: None,
            epoch: None,
            former_incarnation: None,
            epoch_in_doubt: false,
            has_hooks: false,
            bookings: Bookings::default(),
            quiet_until: now + rules.quiet,
            must_close: None,
            fragment: Fragment::Closed("never opened".into()),
            last_event: None,
            last_sample: None,
            cover: None,
            contradictions: VecDeque::new(),
            contradictions_total: 0,
            said: None,
            indexed_deadline: None,
        }
    }

    pub(super) fn last_poll(&self) -> Option<Time> {
        self.cover.as_ref().map(|cover| cover.answered_at)
    }

    pub(super) fn is_covered_by(&self, source: &str) -> bool {
        self.cover.as_ref().is_some_and(|cover| cover.source == source)
    }

    fn judge(&self, epoch: Epoch) -> News {
        if epoch.incarnation == 0 {
            return News::Unknown;
        }
        let Some(known) = self.epoch else { return News::First };
        if epoch.incarnation != known.incarnation {
            let former = self.former_incarnation == Some(epoch.incarnation);
            return if former { News::FormerLife } else { News::OtherLife };
        }
        match epoch.count {
            count if count < known.count => News::Older,
            count if count == known.count => News::Same,
            count if count - known.count == 1 => News::Next,
            _ => News::Ahead,
        }
    }

    fn adopt(&mut self, now: Time, rules: &Rules, news: News, epoch: Epoch) {
        match news {
            News::First | News::Next | News::Ahead => self.epoch = Some(epoch),
            News::OtherLife => {
                self.former_incarnation = self.epoch.map(|known| known.incarnation);
                self.epoch = Some(epoch);
                self.epoch_in_doubt = false;
                self.bookings.begin_new_life();
                self.unsettle(now, rules, "its run folder began a new life");
            }
            News::Unknown | News::FormerLife | News::Older | News::Same => {}
        }
    }

    /// A booking has ended without its hook saying so.
    fn end(&mut self, now: Time, rules: &Rules, id: &BookingId, overrules_samples: bool) {
        self.bookings.end(id, Ended { at: now, epoch: self.epoch, overrules_samples });
        self.disturb(now, rules);
    }

    /// Something changed: nothing grows before a quiet period has passed.
    fn disturb(&mut self, now: Time, rules: &Rules) {
        self.quiet_until = self.quiet_until.max(now + rules.quiet);
    }

    /// Something is unclear: the fragment closes as a whole until a quiet period has passed.
    fn unsettle(&mut self, now: Time, rules: &Rules, reason: &'static str) {
        self.disturb(now, rules);
        self.must_close = Some(reason);
    }

    fn compare_claims(&mut self, now: Time, id: &BookingId) {
        let Some(booking) = self.bookings.get(id) else { return };
        let cores = |witness| booking.claim(witness).and_then(|booked| booked.cores);
        if let (Some(hook), Some(poll)) = (cores(Witness::Hook), cores(Witness::Poll))
            && hook != poll
        {
            self.contradict(now, format!("{id}: its hook says {hook} cores, the farm {poll}"));
        }
    }

    fn contradict(&mut self, now: Time, text: String) {
        self.contradictions_total += 1;
        if let Some(same) = self.contradictions.iter_mut().find(|known| known.text == text) {
            same.at = now;
            same.times = same.times.saturating_add(1);
            return;
        }
        if self.contradictions.len() == CONTRADICTIONS_MAX {
            self.contradictions.pop_front();
        }
        self.contradictions.push_back(Contradiction { at: now, times: 1, text });
    }

    pub(super) fn check(&self, rules: &Rules) -> Result<(), &'static str> {
        self.bookings.check()?;
        if self.contradictions.len() > CONTRADICTIONS_MAX {
            return Err("contradictions_are_bounded");
        }
        if let Fragment::Open { free, epoch, .. } = &self.fragment {
            let limit = self.free(rules).map_err(|_| "an_open_fragment_has_no_obstacle")?;
            if free.cores > limit.cores || free.memory_mib > limit.memory_mib {
                return Err("a_fragment_is_what_is_left");
            }
            if Some(*epoch) != self.epoch {
                return Err("a_fragment_has_the_newest_epoch");
            }
        }
        if self.must_close.is_some() {
            return Err("nothing_is_left_unsettled");
        }
        Ok(())
    }
}
