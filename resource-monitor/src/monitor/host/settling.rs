//! From what is known of a host to its fragment.

use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{HostName, Origin, Span, Time};

use super::{Host, Size};
use crate::limits::{BOOKINGS_MAX, MISSED_POLLS_MAX, SILENT_POLL_INTERVALS_MAX};
use crate::monitor::fragment::{Fragment, Free};
use crate::monitor::{Effect, Rules};

impl Host {
    /// Brings the fragment in line with what is known, and tells the broker what changed.
    pub(in crate::monitor) fn settle(
        &mut self,
        now: Time,
        rules: &Rules,
        name: &HostName,
        effects: &mut Vec<Effect>,
    ) {
        for id in self.bookings.overdue(now, rules.booking_limit) {
            self.contradict(now, format!("{id} counts as ended: it is over the booking limit"));
            self.end(now, rules, &id, true);
        }
        let forced = self.must_close.take();
        let is_shut = forced.is_some();
        let confirmed = self.is_confirmed(now, rules);
        if !confirmed && matches!(self.fragment, Fragment::Open { .. }) {
            self.disturb(now, rules);
        }
        let target = self.free(rules).and_then(|free| match confirmed {
            true => Ok(free),
            false => Err("nobody confirmed it in time".to_owned()),
        });
        let target = match (target, &self.fragment) {
            (Ok(_), Fragment::Open { .. }) if forced.is_some() => {
                Err(forced.unwrap_or_default().to_owned())
            }
            (Ok(_), Fragment::Closed(_)) if now < self.quiet_until => {
                Err("the quiet period is not over".to_owned())
            }
            // Growth waits for the quiet period, the rest of the fragment does not.
            (Ok(free), Fragment::Open { free: present, .. }) if now < self.quiet_until => {
                Ok(free.min(*present))
            }
            (target, _) => target,
        };
        match target {
            Ok(free) => self.open(now, rules, name, free, effects),
            Err(reason) => self.close(name, reason, effects),
        }
        self.say_occupation(now, rules, name, is_shut, effects);
    }

    fn open(
        &mut self,
        now: Time,
        rules: &Rules,
        name: &HostName,
        free: Free,
        effects: &mut Vec<Effect>,
    ) {
        let epoch = self.epoch.expect("a host without an epoch has an obstacle");
        if let Fragment::Open { free: present, epoch: told, told_at } = &self.fragment
            && (*present, *told) == (free, epoch)
            && now < *told_at + confirm_after(rules)
        {
            return;
        }
        self.fragment = Fragment::Open { free, epoch, told_at: now };
        effects.push(Effect::Tell(FarmEvent::FragmentOpened {
            host: name.clone(),
            epoch,
            cores: free.cores,
            memory_mib: free.memory_mib,
            valid_ms: rules.fragment_valid.as_millis(),
            ended: self.bookings.overruled().cloned().collect(),
        }));
    }

    fn close(&mut self, name: &HostName, reason: String, effects: &mut Vec<Effect>) {
        if matches!(self.fragment, Fragment::Open { .. }) {
            let (host, reason) = (name.clone(), reason.clone());
            effects.push(Effect::Tell(FarmEvent::FragmentClosed { host, reason }));
        }
        self.fragment = Fragment::Closed(reason);
    }

    /// When something is to be done although nothing was heard.
    pub(in crate::monitor) fn next_deadline(&self, now: Time, rules: &Rules) -> Option<Time> {
        let mut times = vec![self.bookings.next_overdue(rules.booking_limit)];
        if let Fragment::Open { told_at, .. } = &self.fragment {
            times.push(Some(*told_at + confirm_after(rules)));
            times.push(self.confirmed_until(rules));
        }
        times.push(Some(self.quiet_until).filter(|_| self.free(rules).is_ok()));
        times.into_iter().flatten().filter(|time| *time > now).min()
    }

    /// What the farm leaves, or why nothing.
    pub(in crate::monitor) fn free(&self, rules: &Rules) -> Result<Free, String> {
        if self.origin == Some(Origin::Desktop) {
            return Err("a desktop host is not the farm's".into());
        }
        if self.epoch.is_none() {
            return Err("its epoch is not known: no hook and no sample has told it".into());
        }
        if self.epoch_in_doubt {
            return Err("its epoch is in doubt: a sample must tell it".into());
        }
        if self.bookings.overflow {
            return Err(format!("more than {BOOKINGS_MAX} bookings"));
        }
        let size = self.size().ok_or("its size is not known: no sample and no poll has told it")?;
        let mut cores = size.cores;
        let mut memory_mib = size.memory_mib;
        for (id, booking) in self.bookings.iter() {
            let booked =
                booking.cores().ok_or_else(|| format!("{id} has booked the whole host"))?;
            // A render that does not say its memory is taken to use its cores' share.
            let share =
                size.memory_mib.saturating_mul(booked.into()) / u64::from(size.cores.max(1));
            cores = cores.saturating_sub(booked);
            memory_mib = memory_mib.saturating_sub(booking.memory_mib().unwrap_or(share));
        }
        let cores = cores.saturating_sub(rules.reserve_cores);
        let memory_mib = memory_mib.saturating_sub(rules.reserve_memory_mib);
        match (cores, memory_mib) {
            (0, _) => Err("every core is booked or reserved".into()),
            (_, 0) => Err("all memory is booked or reserved".into()),
            _ => Ok(Free { cores, memory_mib }),
        }
    }

    /// The smaller, where agent and farm differ.
    pub(in crate::monitor) fn size(&self) -> Option<Size> {
        match (self.sampled, self.polled) {
            (Some(a), Some(b)) => Some(Size {
                cores: a.cores.min(b.cores),
                memory_mib: a.memory_mib.min(b.memory_mib),
            }),
            (size, None) | (None, size) => size,
        }
    }

    pub(super) fn is_confirmed(&self, now: Time, rules: &Rules) -> bool {
        self.confirmed_until(rules).is_some_and(|until| now < until)
    }

    /// Until when what is known may be acted on. Where only polls tell of renders, only polls
    /// confirm; an agent alone knows nothing of them.
    fn confirmed_until(&self, rules: &Rules) -> Option<Time> {
        let by_poll = self
            .cover
            .as_ref()
            .filter(|cover| cover.missed < MISSED_POLLS_MAX)
            .map(|c| c.answered_at + rules.poll_interval.times(SILENT_POLL_INTERVALS_MAX));
        if self.cover.is_some() && !self.has_hooks {
            return by_poll;
        }
        let heard = self.last_event.max(self.last_sample);
        by_poll.max(heard.map(|heard| heard + rules.fragment_valid))
    }
}

/// A third of the validity: two confirmations may be lost on the way.
const fn confirm_after(rules: &Rules) -> Span {
    Span::from_micros(rules.fragment_valid.as_micros() / 3)
}
