//! From what is known of a host to its fragment.

use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{HostName, Origin, Span, Time};

use super::{Host, Size};
use crate::limits::{BOOKINGS_MAX, MEMORY_MIB_MIN, MISSED_POLLS_MAX, SILENT_POLL_INTERVALS_MAX};
use crate::monitor::bookings::EndedBy;
use crate::monitor::fragment::{Fragment, Free, together};
use crate::monitor::reserves::Spare;
use crate::monitor::{Effect, Polling, Rules};
use crate::orders::Standing;

impl Host {
    /// Ends the bookings that are over the limit.
    pub(in crate::monitor) fn end_overdue(&mut self, now: Time, rules: &Rules) {
        for id in self.bookings.overdue(now, rules.booking_limit, self.alive_until(rules)) {
            self.contradict(now, format!("{id} counts as ended: it is over the booking limit"));
            self.end(now, rules, &id, EndedBy::Overruling);
        }
    }

    /// Whether the host renders nothing, as far as is known for sure, and whether it is harvested.
    pub(in crate::monitor) fn spare_now(&self, now: Time, rules: &Rules) -> Spare {
        let is_idle = self.origin != Some(Origin::Desktop)
            && self.size().is_some()
            && self.bookings.len() == 0
            && !self.bookings.overflow
            && self.is_confirmed(now, rules);
        match &self.fragment {
            _ if !is_idle || self.standing.reserves.is_empty() => Spare::No,
            Fragment::Open { .. } => Spare::Open,
            Fragment::Closed(_) => Spare::Closed,
        }
    }

    /// Brings the fragment in line with what is known, and tells the broker what changed.
    pub(in crate::monitor) fn settle(
        &mut self,
        now: Time,
        rules: &Rules,
        name: &HostName,
        effects: &mut Vec<Effect>,
    ) {
        let forced = self.must_close.take();
        let is_shut = forced.is_some();
        let confirmed = self.is_confirmed(now, rules);
        if !confirmed && self.is_open() {
            self.disturb(now, rules);
        }
        let target = self.free(rules).and_then(|free| match confirmed {
            true => Ok(free),
            false => Err(self.why_unconfirmed(rules).to_owned()),
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
        self.say_rendering(name, effects);
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
        self.told_stop = None;
        effects.push(Effect::Tell(FarmEvent::FragmentOpened {
            host: name.clone(),
            epoch,
            cores: free.cores,
            memory_mib: free.memory_mib,
            booked_cores: free.booked_cores,
            gpus: free.booked_gpus,
            valid_ms: rules.fragment_valid.as_millis(),
            ended: self.bookings.overruled().cloned().collect(),
            seal: None,
        }));
    }

    /// Of a host that is closed already the broker is told when the farm is stopped, and when it is
    /// no more: else it would go on showing what closed the host before.
    fn close(&mut self, name: &HostName, reason: String, effects: &mut Vec<Effect>) {
        let stop = &self.standing.stop;
        let is_farms = self.origin != Some(Origin::Desktop);
        let shows_other = self.told_stop != *stop && (is_farms || stop.is_none());
        if self.is_open() || shows_other {
            self.told_stop.clone_from(stop);
            let (host, reason) = (name.clone(), reason.clone());
            effects.push(Effect::Tell(FarmEvent::FragmentClosed { host, reason }));
        }
        self.fragment = Fragment::Closed(reason);
    }

    /// When something is to be done although nothing was heard.
    pub(in crate::monitor) fn next_deadline(&self, now: Time, rules: &Rules) -> Option<Time> {
        let overdue = self.bookings.next_overdue(rules.booking_limit, self.alive_until(rules));
        let mut times = vec![overdue];
        if let Fragment::Open { told_at, .. } = &self.fragment {
            times.push(Some(*told_at + confirm_after(rules)));
            times.push(self.confirmed_until(rules));
        }
        if self.spare != Spare::No {
            times.push(self.confirmed_until(rules));
        }
        times.push(Some(self.quiet_until).filter(|_| self.free(rules).is_ok()));
        times.into_iter().flatten().filter(|time| *time > now).min()
    }

    /// What the farm leaves, or why nothing.
    pub(in crate::monitor) fn free(&self, rules: &Rules) -> Result<Free, String> {
        if let Some(reason) = self.standing.barred.as_ref().or(self.kept.as_ref()) {
            return Err(reason.to_string());
        }
        if self.origin == Some(Origin::Desktop) {
            return Err("a desktop host is not the farm's".into());
        }
        if let Some(doubt) = &self.doubt {
            return Err(doubt.to_string());
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
        if self.sampled.is_none() {
            return Err("no agent of this name has spoken".into());
        }
        let mut cores = size.cores;
        let mut memory_mib = size.memory_mib;
        for (id, booking) in self.bookings.iter() {
            let lives = if booking.is_alive { ", and its process lives" } else { "" };
            let whole = || format!("{id} has booked the whole host{lives}");
            let booked = booking.cores().ok_or_else(whole)?;
            // A render that does not say its memory is taken to use its cores' share.
            let share =
                size.memory_mib.saturating_mul(booked.into()) / u64::from(size.cores.max(1));
            cores = cores.saturating_sub(booked);
            memory_mib = memory_mib.saturating_sub(booking.memory_mib().unwrap_or(share));
        }
        let booked_cores = size.cores - cores;
        let Standing { reserve_cores, reserve_memory_mib, .. } = self.standing;
        let cores = cores.saturating_sub(rules.reserve_cores.max(reserve_cores));
        let memory_mib =
            memory_mib.saturating_sub(rules.reserve_memory_mib.max(reserve_memory_mib));
        match (cores, memory_mib) {
            (0, _) => Err("every core is booked or reserved".into()),
            (_, ..MEMORY_MIB_MIN) => Err("all memory is booked or reserved".into()),
            _ => {
                let gpus = self.bookings.iter().map(|(_, booking)| booking.gpus());
                let booked_gpus = together(gpus, u32::saturating_add);
                Ok(Free { cores, memory_mib, booked_cores, booked_gpus })
            }
        }
    }

    /// The smaller, where agent and farm differ; none while nobody says one of the two.
    pub(in crate::monitor) fn size(&self) -> Option<Size> {
        let least =
            |sampled: Option<u64>, polled: Option<u64>| sampled.into_iter().chain(polled).min();
        let (cores, memory_mib) = self.polled;
        let sampled = self.sampled;
        let cores = least(sampled.map(|size| size.cores.into()), cores.map(u64::from))?;
        let memory_mib = least(sampled.map(|size| size.memory_mib), memory_mib)?;
        Some(Size { cores: u32::try_from(cores).expect("one of two that fit"), memory_mib })
    }

    pub(super) fn is_confirmed(&self, now: Time, rules: &Rules) -> bool {
        self.confirmed_until(rules).is_some_and(|until| now < until)
    }

    /// Until when renders run whose processes its agent sees to live. Of an agent that speaks no more
    /// nothing is known, and neither does anything open there.
    pub(super) fn alive_until(&self, rules: &Rules) -> Time {
        self.last_sample.map_or(Time::ZERO, |heard| heard + rules.fragment_valid)
    }

    /// Whether only polls could tell of its renders, and none has done so yet.
    fn awaits_poll(&self, rules: &Rules) -> bool {
        let is_silent = self.cover.is_none() && !self.is_told_of();
        is_silent
            && match rules.polling {
                Polling::Off => false,
                Polling::Awaited => true,
                // A manager that was just started may not have found its hosts again, and a host that
                // is asked about its renders may not have answered yet.
                Polling::Answered => self.was_polled,
            }
    }

    fn why_unconfirmed(&self, rules: &Rules) -> &'static str {
        match (self.awaits_poll(rules), rules.polling) {
            (true, Polling::Answered) => "the farm, which is polled, does not tell of it",
            (true, _) => "the farm, which is polled, has not answered yet",
            (false, _) => "nobody confirmed it in time",
        }
    }

    /// Until when what is known may be acted on. Where only polls tell of renders, only polls
    /// confirm; an agent alone knows nothing of them.
    fn confirmed_until(&self, rules: &Rules) -> Option<Time> {
        if self.awaits_poll(rules) {
            return None;
        }
        let by_poll = self
            .cover
            .as_ref()
            .filter(|cover| cover.missed < MISSED_POLLS_MAX)
            .map(|c| c.asked_at + rules.poll_interval.times(SILENT_POLL_INTERVALS_MAX));
        if self.cover.is_some() && !self.is_told_of() {
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
