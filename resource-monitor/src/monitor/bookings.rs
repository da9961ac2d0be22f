//! The bookings of one host: a set keyed by render attempt, with who claims each.
//!
//! # Invariants
//! - A booking runs as long as at least one witness claims it.
//! - Sets are bounded: what is too much is said, not dropped in silence.

use std::collections::BTreeMap;

use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, Epoch, Span, Time};

use super::Poll;
use crate::limits::{BOOKINGS_MAX, END_LAG, ENDED_BOOKINGS_MAX};

/// Who says that a render runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Witness {
    Hook,
    Sample,
    Poll,
}

impl Witness {
    pub(super) const ALL: [Self; 3] = [Self::Hook, Self::Sample, Self::Poll];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Sample => "sample",
            Self::Poll => "poll",
        }
    }
}

/// A render that runs.
#[derive(Debug, Clone)]
pub(super) struct Booking {
    /// What each witness says that it books, by [`Witness`].
    claims: [Option<Booked>; 3],
    /// The epoch that its preflight raised, where a hook told it.
    pub(super) epoch: Option<Epoch>,
    pub(super) began: Time,
    /// Which source has listed it last, be it that it does no more.
    pub(super) listed_by: Option<String>,
    /// The farm withholds what it books, and nothing renders there as far as the farm says.
    is_withheld: bool,
    /// Polls in a row that did not list it.
    pub(super) absent_polls: u8,
    /// Its process lives, as the host's newest sample says.
    pub(super) is_alive: bool,
    /// A hook or a sample has claimed it, be it that neither does any more.
    pub(super) was_told: bool,
    /// When its host told of its end, where the farm alone has listed it since.
    pub(super) told_end: Option<Time>,
    /// It was said that the farm lists it beyond its end.
    pub(super) outlasts_end: bool,
}

impl Booking {
    pub(super) const fn claim(&self, witness: Witness) -> Option<Booked> {
        self.claims[witness as usize]
    }

    pub(super) const fn has(&self, witness: Witness) -> bool {
        self.claim(witness).is_some()
    }

    const fn is_claimed(&self) -> bool {
        self.has(Witness::Hook) || self.has(Witness::Sample) || self.has(Witness::Poll)
    }

    /// Whether something renders; what a hook or a sample tells of does.
    const fn is_render(&self) -> bool {
        self.was_told || !self.is_withheld
    }

    fn overdue_at(&self, limit: Span, alive_until: Time) -> Option<Time> {
        let at = self.began + limit;
        let at = if self.is_alive { at.max(alive_until) } else { at };
        Some(at).filter(|_| !self.has(Witness::Poll))
    }

    /// The most that any witness says, where one says a number; none stands for the whole host.
    pub(super) fn cores(&self) -> Option<u32> {
        self.claims.iter().flatten().filter_map(|booked| booked.cores).max()
    }

    pub(super) fn memory_mib(&self) -> Option<u64> {
        self.claims.iter().flatten().filter_map(|booked| booked.memory_mib).max()
    }

    pub(super) fn gpus(&self) -> Option<u32> {
        self.claims.iter().flatten().filter_map(|booked| booked.gpus).max()
    }
}

/// A render that has ended, as long as late news of it must not bring it back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) at: Time,
    /// Where the host stood then: a preflight up to this epoch is older than the end.
    pub(super) epoch: Option<Epoch>,
    /// It was found to have ended although the host's run folder may still have it: samples do
    /// not bring it back until the folder has let it go.
    pub(super) overrules_samples: bool,
    /// A hook or a sample knew of it. What the farm alone has named, and named no longer, may come
    /// again: a slot that is drained a second time.
    pub(super) was_told: bool,
    /// Its host said so, and not the farm or the clock.
    pub(super) by_host: bool,
}

/// By whose word a render has ended that no hook told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// Its host's run folder, which has it no longer.
    Host,
    /// The farm's, which lists it no longer.
    Farm,
    /// The farm's or the clock's, whatever the run folder has.
    Overruling,
}

/// All bookings of one host.
#[derive(Debug, Default)]
pub(super) struct Bookings {
    running: BTreeMap<BookingId, Booking>,
    ended: BTreeMap<BookingId, Ended>,
    /// More than [`BOOKINGS_MAX`] were claimed.
    pub(super) overflow: bool,
    /// How many renders have ended that nobody has counted yet.
    pub(super) uncounted: u32,
}

impl Bookings {
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether any of them is a render, and not withheld.
    pub(super) fn have_render(&self) -> bool {
        self.running.values().any(Booking::is_render)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&BookingId, &Booking)> {
        self.running.iter()
    }

    pub(super) fn get(&self, id: &BookingId) -> Option<&Booking> {
        self.running.get(id)
    }

    pub(super) fn ended(&self, id: &BookingId) -> Option<&Ended> {
        self.ended.get(id)
    }

    /// Takes note that `witness` says it runs. True where nobody said so before, or where what it
    /// books has become more or less.
    pub(super) fn claim(
        &mut self,
        now: Time,
        id: &BookingId,
        witness: Witness,
        booked: Booked,
    ) -> bool {
        if !self.running.contains_key(id) && self.running.len() >= BOOKINGS_MAX {
            self.overflow = true;
            return true;
        }
        let told_end = self.ended.remove(id).filter(|ended| ended.was_told).map(|ended| ended.at);
        let mut is_new = false;
        let booking = self.running.entry(id.clone()).or_insert_with(|| {
            is_new = true;
            Booking {
                claims: [None; 3],
                epoch: None,
                began: now,
                listed_by: None,
                is_withheld: false,
                absent_polls: 0,
                is_alive: false,
                was_told: false,
                told_end,
                outlasts_end: false,
            }
        });
        let before = (booking.cores(), booking.memory_mib());
        booking.claims[witness as usize] = Some(booked);
        if witness != Witness::Poll {
            booking.was_told = true;
            booking.told_end = None;
        }
        is_new || before != (booking.cores(), booking.memory_mib())
    }

    /// What was claimed of it under another name of its host.
    pub(super) fn take_over(&mut self, id: &BookingId, other: &Booking) {
        if !self.running.contains_key(id) && self.running.len() >= BOOKINGS_MAX {
            self.overflow = true;
            return;
        }
        self.ended.remove(id);
        let known = self.running.entry(id.clone()).or_insert_with(|| other.clone());
        for (claim, others) in known.claims.iter_mut().zip(other.claims) {
            *claim = claim.or(others);
        }
        known.began = known.began.min(other.began);
        known.epoch = known.epoch.or(other.epoch);
        known.was_told |= other.was_told;
        if known.listed_by.is_none() {
            known.listed_by.clone_from(&other.listed_by);
        }
    }

    /// The epoch of its preflight, the highest where several are told of.
    pub(super) fn set_epoch(&mut self, id: &BookingId, epoch: Epoch) {
        if let Some(booking) = self.running.get_mut(id) {
            let newer = booking.epoch.is_none_or(|known| {
                known.incarnation != epoch.incarnation || known.count < epoch.count
            });
            if newer {
                booking.epoch = Some(epoch);
            }
        }
    }

    /// Those that a poll should have listed and did not: its source speaks of them, by their names or as it
    /// has listed them before. The others were not absent.
    pub(super) fn absent(
        &mut self,
        poll: Poll<'_>,
        is_listed: impl Fn(&BookingId) -> bool,
    ) -> Vec<BookingId> {
        let mut absent = Vec::new();
        for (id, booking) in &mut self.running {
            let was_listed = booking.listed_by.as_deref() == Some(poll.source);
            if is_listed(id) {
                booking.absent_polls = 0;
                if !was_listed {
                    booking.listed_by = Some(poll.source.to_owned());
                }
            } else if booking.began < poll.asked_at && (was_listed || poll.names.include(id)) {
                absent.push(id.clone());
            }
        }
        absent
    }

    /// Takes note of whether the farm withholds what it books.
    pub(super) fn set_withheld(&mut self, id: &BookingId, is_withheld: bool) {
        if let Some(booking) = self.running.get_mut(id) {
            booking.is_withheld = is_withheld;
        }
    }

    /// A source has listed it in a former life of the monitor.
    pub(super) fn set_listed_by(&mut self, id: &BookingId, source: &str) {
        if let Some(booking) = self.running.get_mut(id) {
            booking.listed_by = Some(source.to_owned());
        }
    }

    /// One more poll that did not list it; how many in a row.
    pub(super) fn count_absence(&mut self, id: &BookingId) -> u8 {
        self.running.get_mut(id).map_or(0, |booking| {
            booking.absent_polls = booking.absent_polls.saturating_add(1);
            booking.absent_polls
        })
    }

    /// Takes note of whose processes live, as the host's agent sees.
    pub(super) fn note_alive(&mut self, is_alive: impl Fn(&BookingId) -> bool) {
        for (id, booking) in &mut self.running {
            booking.is_alive = is_alive(id);
        }
    }

    /// Takes `witnesses` away from a booking. True where nobody claims it any more: the caller
    /// then ends it.
    pub(super) fn withdraw(&mut self, id: &BookingId, witnesses: &[Witness]) -> bool {
        self.running.get_mut(id).is_some_and(|booking| {
            for witness in witnesses {
                booking.claims[*witness as usize] = None;
            }
            !booking.is_claimed()
        })
    }

    /// Its host says that it has ended, and the farm lists it still.
    pub(super) fn note_told_end(&mut self, now: Time, id: &BookingId) {
        if let Some(booking) = self.running.get_mut(id) {
            booking.told_end = Some(now);
            booking.outlasts_end = false;
        }
    }

    /// True once for a booking that the farm lists for longer after its host told of its end than
    /// news of that may take.
    pub(super) fn outlasts_its_end(&mut self, asked_at: Time, id: &BookingId) -> bool {
        self.running.get_mut(id).is_some_and(|booking| {
            let is_over = |end: Time| end + END_LAG <= asked_at;
            let does = !booking.outlasts_end && booking.told_end.is_some_and(is_over);
            booking.outlasts_end |= does;
            does
        })
    }

    /// It has ended. True where it was running.
    pub(super) fn end(&mut self, id: &BookingId, ended: Ended) -> bool {
        let booking = self.running.remove(id);
        let was_running = booking.is_some();
        self.overflow = self.overflow && !was_running;
        let was_render = booking.is_some_and(|booking| booking.is_render());
        self.uncounted = self.uncounted.saturating_add(was_render.into());
        self.ended.insert(id.clone(), ended);
        if self.ended.len() > ENDED_BOOKINGS_MAX {
            let oldest = self.ended.iter().min_by_key(|(_, ended)| ended.at);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.ended.remove(&oldest);
            }
        }
        was_running
    }

    /// Those that have ended and that the host's run folder may still have.
    pub(super) fn overruled(&self) -> impl Iterator<Item = &BookingId> {
        self.ended.iter().filter(|(_, ended)| ended.overrules_samples).map(|(id, _)| id)
    }

    /// Samples may bring back what the run folder had let go in between.
    pub(super) fn end_overruling(&mut self, still_in_folder: impl Fn(&BookingId) -> bool) {
        for (id, ended) in &mut self.ended {
            ended.overrules_samples &= still_in_folder(id);
        }
    }

    /// Bookings that nobody but a hook or a sample claims and that are older than the limit. Those
    /// whose processes live are not before `alive_until`.
    pub(super) fn overdue(&self, now: Time, limit: Span, alive_until: Time) -> Vec<BookingId> {
        let overdue = |(_, booking): &(&BookingId, &Booking)| {
            booking.overdue_at(limit, alive_until).is_some_and(|at| at <= now)
        };
        self.running.iter().filter(overdue).map(|(id, _)| id.clone()).collect()
    }

    /// When the next one becomes overdue.
    pub(super) fn next_overdue(&self, limit: Span, alive_until: Time) -> Option<Time> {
        self.running.values().filter_map(|booking| booking.overdue_at(limit, alive_until)).min()
    }

    /// A new life of the host's run folder: what hooks and samples of the old one claimed is gone
    /// with it.
    pub(super) fn begin_new_life(&mut self) {
        self.overflow = false;
        self.ended.clear();
        self.running.retain(|_, booking| {
            booking.claims[Witness::Hook as usize] = None;
            booking.claims[Witness::Sample as usize] = None;
            booking.epoch = None;
            booking.is_alive = false;
            booking.is_claimed()
        });
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.running.len() > BOOKINGS_MAX || self.ended.len() > ENDED_BOOKINGS_MAX {
            return Err("bookings_are_bounded");
        }
        if !self.running.values().all(Booking::is_claimed) {
            return Err("every_booking_has_a_witness");
        }
        if self.running.keys().any(|id| self.ended.contains_key(id)) {
            return Err("a_booking_runs_or_has_ended");
        }
        Ok(())
    }
}
