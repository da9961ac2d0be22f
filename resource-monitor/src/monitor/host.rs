//! One host: what is known of it, by whom, and the fragment that this leaves.

use std::collections::{BTreeSet, VecDeque};

use gleaner_protocol::farm::{FarmEvent, HookEvent, HookKind, HostSample};
use gleaner_protocol::{BookingId, Epoch, HostName, Origin, Span, Time};

use super::bookings::{Bookings, Ended, Witness};
use super::fragment::{Fragment, Free};
use super::{Effect, HostAllocation, Rules};
use crate::limits::{
    BOOKINGS_MAX, CONTRADICTIONS_MAX, MISSED_POLLS_MAX, SAMPLE_LAG, SILENT_POLL_INTERVALS_MAX,
};

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
            indexed_deadline: None,
        }
    }

    pub(super) fn last_poll(&self) -> Option<Time> {
        self.cover.as_ref().map(|cover| cover.answered_at)
    }

    pub(super) fn is_covered_by(&self, source: &str) -> bool {
        self.cover.as_ref().is_some_and(|cover| cover.source == source)
    }

    pub(super) fn on_hook(&mut self, now: Time, rules: &Rules, event: HookEvent) {
        let news = self.judge(event.epoch);
        if news == News::FormerLife {
            self.contradict(now, format!("a hook of {} spoke of an earlier life", event.booking));
            return;
        }
        self.has_hooks = true;
        self.last_event = Some(now);
        self.adopt(now, rules, news, event.epoch);
        match (event.kind, news) {
            (_, News::Unknown) => {
                self.epoch_in_doubt = true;
                self.unsettle(now, rules, "a hook could not raise the epoch");
            }
            (_, News::Ahead) | (HookKind::Postflight, News::Next) => {
                self.unsettle(now, rules, "a preflight took place that is not known yet");
            }
            _ => {}
        }
        match event.kind {
            HookKind::Preflight => self.on_preflight(now, rules, &event),
            HookKind::Postflight => self.on_postflight(now, rules, &event),
        }
    }

    fn on_preflight(&mut self, now: Time, rules: &Rules, event: &HookEvent) {
        let epoch = Some(event.epoch).filter(|epoch| epoch.incarnation != 0);
        // Its end is known already, and it did not begin anew since.
        if let (Some(ended), Some(epoch)) = (self.bookings.ended(&event.booking), epoch)
            && ended
                .epoch
                .is_some_and(|end| end.incarnation == epoch.incarnation && epoch.count <= end.count)
        {
            return;
        }
        if self.bookings.claim(now, &event.booking, Witness::Hook, event.resources) {
            self.disturb(now, rules);
        }
        if let Some(epoch) = epoch {
            self.bookings.set_epoch(&event.booking, epoch);
        }
        self.compare_claims(now, &event.booking);
    }

    fn on_postflight(&mut self, now: Time, rules: &Rules, event: &HookEvent) {
        let epoch = Some(event.epoch).filter(|epoch| epoch.incarnation != 0);
        let (running, ended) =
            (self.bookings.get(&event.booking), self.bookings.ended(&event.booking));
        let is_repeated = match (running, ended, epoch) {
            (Some(booking), _, Some(end)) => booking.epoch.is_some_and(|begin| {
                begin.incarnation == end.incarnation && end.count < begin.count
            }),
            (None, Some(ended), Some(end)) => ended.epoch.is_some_and(|known| {
                known.incarnation == end.incarnation && end.count <= known.count
            }),
            (None, Some(_), None) => true,
            _ => false,
        };
        if is_repeated {
            return;
        }
        let ended = Ended { at: now, epoch, overrules_samples: false };
        self.bookings.end(&event.booking, ended);
        self.disturb(now, rules);
    }

    pub(super) fn on_sample(&mut self, now: Time, rules: &Rules, sample: HostSample) {
        self.gauges = Some(Gauges {
            cpu_percent: sample.cpu_percent,
            used_memory_mib: sample.used_memory_mib,
            replicas: sample.replicas,
        });
        if self.origin.is_some_and(|origin| origin != sample.origin) {
            self.contradict(now, format!("it calls itself a {} host now", sample.origin));
            self.unsettle(now, rules, "it changed sides");
        }
        self.origin = Some(sample.origin);
        if sample.origin == Origin::Desktop {
            self.last_sample = Some(now);
            self.sampled = Some(Size { cores: sample.cores, memory_mib: sample.memory_mib });
            return;
        }
        let news = self.judge(sample.epoch);
        match news {
            // On its way since before something that is known already: it confirms nothing.
            News::Older | News::FormerLife => return,
            News::Unknown => {
                self.epoch_in_doubt = true;
                self.unsettle(now, rules, "its agent cannot read the epoch");
                return;
            }
            News::Next | News::Ahead => {
                self.unsettle(now, rules, "a preflight took place that is not known yet");
            }
            News::Same | News::First | News::OtherLife => {}
        }
        self.adopt(now, rules, news, sample.epoch);
        self.epoch_in_doubt = false;
        self.has_hooks |= sample.epoch.count > 0;
        self.last_sample = Some(now);
        self.sampled = Some(Size { cores: sample.cores, memory_mib: sample.memory_mib });
        for booking in sample.bookings.iter().take(BOOKINGS_MAX + 1) {
            match self.bookings.ended(&booking.booking) {
                Some(ended) if ended.overrules_samples => continue,
                Some(ended) if ended.epoch == Some(sample.epoch) && now < ended.at + SAMPLE_LAG => {
                    continue;
                }
                Some(_) => self.contradict(
                    now,
                    format!("{} has ended, but its run folder has it", booking.booking),
                ),
                None => {}
            }
            let claim =
                self.bookings.claim(now, &booking.booking, Witness::Sample, booking.resources);
            if claim {
                self.disturb(now, rules);
            }
        }
        let folder: BTreeSet<&BookingId> = sample.bookings.iter().map(|b| &b.booking).collect();
        let in_folder = |id: &BookingId| folder.contains(id);
        self.bookings.end_overruling(in_folder);
        for id in self.gone_from_folder(now, sample.epoch, in_folder) {
            if self.bookings.withdraw(&id, &[Witness::Hook, Witness::Sample]) {
                self.end(now, rules, &id, false);
            } else {
                self.contradict(now, format!("the farm lists {id}, its run folder does not"));
            }
        }
    }

    /// Bookings that a hook or the folder itself told of and that the folder has no more.
    fn gone_from_folder(
        &self,
        now: Time,
        sampled_at: Epoch,
        in_folder: impl Fn(&BookingId) -> bool,
    ) -> Vec<BookingId> {
        self.bookings
            .iter()
            .filter(|(id, booking)| {
                let older = booking.epoch.is_some_and(|epoch| {
                    epoch.incarnation != sampled_at.incarnation || epoch.count <= sampled_at.count
                });
                // A hook that could not raise the epoch may not have booked it there either.
                let told = booking.has(Witness::Sample) || (booking.has(Witness::Hook) && older);
                told && !in_folder(id) && booking.began + SAMPLE_LAG <= now
            })
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(super) fn on_poll(
        &mut self,
        now: Time,
        rules: &Rules,
        source: &str,
        asked_at: Time,
        allocation: HostAllocation,
    ) {
        self.cover = Some(Cover { source: source.to_owned(), answered_at: now, missed: 0 });
        let size = Size { cores: allocation.cores, memory_mib: allocation.memory_mib };
        if let Some(sampled) = self.sampled
            && sampled.cores > size.cores
        {
            let (agent, farm) = (sampled.cores, size.cores);
            self.contradict(now, format!("its agent says {agent} cores, the farm {farm}"));
        }
        self.polled = Some(size);
        for booking in allocation.bookings.iter().take(BOOKINGS_MAX + 1) {
            if let Some(ended) = self.bookings.ended(&booking.booking) {
                if ended.at >= asked_at {
                    continue;
                }
                self.contradict(now, format!("the farm lists {}, ended before", booking.booking));
            }
            if self.bookings.claim(now, &booking.booking, Witness::Poll, booking.resources) {
                self.disturb(now, rules);
            }
            self.compare_claims(now, &booking.booking);
        }
        let listed: BTreeSet<&BookingId> =
            allocation.bookings.iter().map(|booking| &booking.booking).collect();
        let absent: Vec<BookingId> = self
            .bookings
            .iter()
            .filter(|(id, booking)| booking.began < asked_at && !listed.contains(id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in absent {
            self.on_absent_in_poll(now, rules, &id);
        }
    }

    fn on_absent_in_poll(&mut self, now: Time, rules: &Rules, id: &BookingId) {
        if self.bookings.withdraw(id, &[Witness::Poll]) {
            self.end(now, rules, id, false);
        } else if self.bookings.count_absence(id) >= MISSED_POLLS_MAX {
            self.contradict(now, format!("{id} counts as ended: the farm does not list it"));
            self.end(now, rules, id, true);
        }
    }

    pub(super) fn on_missed_poll(&mut self) {
        if let Some(cover) = &mut self.cover {
            cover.missed = cover.missed.saturating_add(1);
        }
    }

    /// Brings the fragment in line with what is known, and tells the broker what changed.
    pub(super) fn settle(
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
    pub(super) fn next_deadline(&self, now: Time, rules: &Rules) -> Option<Time> {
        let mut times = vec![self.bookings.next_overdue(rules.booking_limit)];
        if let Fragment::Open { told_at, .. } = &self.fragment {
            times.push(Some(*told_at + confirm_after(rules)));
            times.push(self.confirmed_until(rules));
        }
        times.push(Some(self.quiet_until).filter(|_| self.free(rules).is_ok()));
        times.into_iter().flatten().filter(|time| *time > now).min()
    }

    /// What the farm leaves, or why nothing.
    pub(super) fn free(&self, rules: &Rules) -> Result<Free, String> {
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
    pub(super) fn size(&self) -> Option<Size> {
        match (self.sampled, self.polled) {
            (Some(a), Some(b)) => Some(Size {
                cores: a.cores.min(b.cores),
                memory_mib: a.memory_mib.min(b.memory_mib),
            }),
            (size, None) | (None, size) => size,
        }
    }

    fn is_confirmed(&self, now: Time, rules: &Rules) -> bool {
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

/// A third of the validity: two confirmations may be lost on the way.
const fn confirm_after(rules: &Rules) -> Span {
    Span::from_micros(rules.fragment_valid.as_micros() / 3)
}
