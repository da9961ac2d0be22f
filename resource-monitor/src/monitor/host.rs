//! One host: what is known of it, by whom, and the fragment that this leaves.

mod hearing;
mod occupation;
mod settling;
mod telling;

use std::collections::VecDeque;
use std::sync::Arc;

use gleaner_protocol::{BookingId, Epoch, Origin, Span, Time};

use self::occupation::{Counted, Said};
use super::Rules;
use super::bookings::{Booking, Bookings, Ended, EndedBy, Witness};
use super::fragment::Fragment;
use super::memory::Remembered;
use super::reserves::Spare;
use crate::limits::{CONTRADICTIONS_MAX, MISSED_POLLS_MAX};
use crate::orders::Standing;

pub(crate) use hearing::UNNAMED_RENDERS;
pub(super) use telling::Tellers;

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
    /// What it says is as old as that.
    asked_at: Time,
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
    /// What the administrator's orders mean for it.
    pub(super) standing: Standing,
    /// Why it is not clear what the farm says of it, where that is so.
    pub(super) doubt: Option<Arc<str>>,
    /// Why it is kept free of harvest, where it is.
    pub(super) kept: Option<Arc<str>>,
    /// What was known of it before the monitor started, until that is confirmed or refuted.
    pub(super) memory: Option<Remembered>,
    /// It rendered when it was looked at last.
    was_busy: bool,
    /// Since when it renders nothing, where it did before.
    idle_since: Option<Time>,
    /// What the reserves have of it.
    pub(super) spare: Spare,
    pub(super) origin: Option<Origin>,
    pub(super) sampled: Option<Size>,
    /// Cores and memory in MiB in the farm's words, where it says.
    pub(super) polled: (Option<u32>, Option<u64>),
    /// Threads of a core, where the farm books whole cores.
    core_threads: u32,
    pub(super) gauges: Option<Gauges>,
    pub(super) epoch: Option<Epoch>,
    former_incarnation: Option<u64>,
    /// That of its agent's newest sample.
    sampled_epoch: Option<Epoch>,
    /// A hook could not raise the epoch: an older opening could still be obeyed.
    epoch_in_doubt: bool,
    pub(super) tellers: Tellers,
    pub(super) bookings: Bookings,
    /// When something changed on it last.
    pub(super) quiet_since: Time,
    pub(super) quiet_until: Time,
    /// Set where an open fragment must not live on in a smaller form.
    must_close: Option<&'static str>,
    pub(super) fragment: Fragment,
    /// The stop that the broker was told as the reason why it is closed, if that was the last word.
    told_stop: Option<Arc<str>>,
    pub(super) last_event: Option<Time>,
    pub(super) last_sample: Option<Time>,
    cover: Option<Cover>,
    /// The farm listed it before the monitor started, or has it and could not tell of it.
    pub(super) was_polled: bool,
    pub(super) contradictions: VecDeque<Contradiction>,
    pub(super) contradictions_total: u64,
    /// What the recording has of it.
    said: Option<Said>,
    /// What the comparison has of it.
    counted: Counted,
    /// What the monitor's index has of this host.
    pub(super) indexed_deadline: Option<Time>,
}

impl Host {
    /// First seen now: what happened on it just before is unknown.
    pub(super) fn new(now: Time, rules: &Rules, standing: Standing) -> Self {
        Self {
            standing,
            doubt: None,
            kept: None,
            was_busy: false,
            idle_since: None,
            spare: Spare::No,
            memory: None,
            origin: None,
            sampled: None,
            polled: (None, None),
            core_threads: 1,
            gauges: None,
            epoch: None,
            former_incarnation: None,
            sampled_epoch: None,
            epoch_in_doubt: false,
            tellers: Tellers::default(),
            bookings: Bookings::default(),
            quiet_since: now,
            quiet_until: now + rules.quiet,
            must_close: None,
            fragment: Fragment::Closed("never opened".into()),
            told_stop: None,
            last_event: None,
            last_sample: None,
            cover: None,
            was_polled: false,
            contradictions: VecDeque::new(),
            contradictions_total: 0,
            said: None,
            counted: (None, false),
            indexed_deadline: None,
        }
    }

    pub(super) fn last_poll(&self) -> Option<Time> {
        self.cover.as_ref().map(|cover| cover.asked_at)
    }

    pub(super) fn is_covered_by(&self, source: &str) -> bool {
        self.cover.as_ref().is_some_and(|cover| cover.source == source)
    }

    /// Whether the farm lists it.
    pub(super) fn is_listed(&self) -> bool {
        self.cover.as_ref().is_some_and(|cover| cover.missed < MISSED_POLLS_MAX)
    }

    /// Whether the farm lists it, or a hook has told of something that renders on it.
    pub(super) fn is_spoken_of(&self) -> bool {
        let is_told =
            |booking: &Booking| booking.has(Witness::Hook) || booking.has(Witness::Sample);
        self.is_listed() || self.bookings.iter().any(|(_, booking)| is_told(booking))
    }

    /// What was known of it under another name, before its agent spoke.
    pub(super) fn take_over(&mut self, now: Time, rules: &Rules, former: Self) {
        self.was_polled |= former.was_polled || former.cover.is_some();
        if self.cover.is_none() {
            self.cover = former.cover;
            self.polled = former.polled;
            self.core_threads = former.core_threads;
        }
        if self.epoch.is_none() {
            self.epoch = former.epoch;
            self.former_incarnation = former.former_incarnation;
        }
        self.epoch_in_doubt |= former.epoch_in_doubt;
        self.last_event = self.last_event.max(former.last_event);
        self.tellers.also(former.tellers);
        for (id, booking) in former.bookings.iter() {
            self.bookings.take_over(id, booking);
        }
        self.disturb(now, rules);
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.fragment, Fragment::Open { .. })
    }

    /// Looks whether it renders; how long it did not, where that has just ended. What the farm withholds is no
    /// render.
    pub(super) fn note_gap(&mut self, now: Time) -> Option<Span> {
        let is_busy = self.bookings.have_render();
        let was_busy = std::mem::replace(&mut self.was_busy, is_busy);
        if was_busy && !is_busy {
            self.idle_since = Some(now);
        }
        let gap = self.idle_since.filter(|_| is_busy).map(|since| now.since(since));
        self.idle_since = self.idle_since.filter(|_| !is_busy);
        gap
    }

    /// Whether its run folder shows every render on it, and was seen at the newest epoch.
    pub(super) fn is_accounted_for(&self) -> bool {
        let is_seen = self.epoch.is_some() && self.sampled_epoch == self.epoch;
        let is_polled_only = !self.is_told_of() && (self.was_polled || self.cover.is_some());
        is_seen && !self.epoch_in_doubt && !is_polled_only
    }

    /// Whether nothing unclear was heard of it.
    pub(super) const fn is_undisturbed(&self) -> bool {
        !self.epoch_in_doubt && self.must_close.is_none() && self.contradictions_total == 0
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
                self.tellers = Tellers::default();
                self.unsettle(now, rules, "its run folder began a new life");
            }
            News::Unknown | News::FormerLife | News::Older | News::Same => {}
        }
    }

    /// A booking has ended without its hook saying so.
    fn end(&mut self, now: Time, rules: &Rules, id: &BookingId, by: EndedBy) {
        let is_told = |booking: &Booking| booking.was_told || booking.told_end.is_some();
        let was_told = self.bookings.get(id).is_none_or(is_told);
        let ended = Ended {
            at: now,
            epoch: self.epoch,
            overrules_samples: by == EndedBy::Overruling,
            was_told,
            by_host: by == EndedBy::Host,
        };
        self.bookings.end(id, ended);
        self.disturb(now, rules);
    }

    /// Something changed: nothing grows before a quiet period has passed.
    fn disturb(&mut self, now: Time, rules: &Rules) {
        self.quiet_since = now;
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
            && poll != hook
            && poll != hook.saturating_mul(self.core_threads)
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

    pub(super) fn check(&self, rules: &Rules, standing: &Standing) -> Result<(), &'static str> {
        self.bookings.check()?;
        if self.standing != *standing {
            return Err("a_host_stands_as_ordered");
        }
        if self.kept.is_some() && self.spare != Spare::Closed {
            return Err("a_host_that_is_kept_is_spare_and_closed");
        }
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
