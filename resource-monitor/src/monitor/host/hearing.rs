//! What a host's hooks, its agent and its farm say of it.

use std::collections::BTreeSet;

use gleaner_protocol::farm::{HookEvent, HookKind, HostSample};
use gleaner_protocol::{BookingId, Epoch, Origin, Time};

use super::{Cover, Gauges, Host, News, Size};
use crate::limits::{BOOKINGS_MAX, MISSED_POLLS_MAX, SAMPLE_LAG};
use crate::monitor::bookings::{Ended, EndedBy, Witness};
use crate::monitor::{HostAllocation, Poll, Rules};

/// How a booking's name ends that a farm lists where something of it renders and it does not say what:
/// it stands for all that its hooks tell of.
pub(crate) const UNNAMED_RENDERS: &str = ":unnamed-renders";

impl Host {
    pub(in crate::monitor) fn on_hook(&mut self, now: Time, rules: &Rules, event: HookEvent) {
        let news = self.judge(event.epoch);
        if news == News::FormerLife {
            self.contradict(now, format!("a hook of {} spoke of an earlier life", event.booking));
            return;
        }
        self.last_event = Some(now);
        self.adopt(now, rules, news, event.epoch);
        self.tellers.hear_hook(now);
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
            HookKind::Postflight => self.on_postflight(now, rules, &event, news),
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

    fn on_postflight(&mut self, now: Time, rules: &Rules, event: &HookEvent, news: News) {
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
        // Some farms tell of an end twice. Others may have begun in between, which is known then.
        let is_known = matches!(news, News::Same | News::Older);
        let is_listed_still = running.is_some_and(|booking| booking.told_end.is_some());
        if is_repeated || (is_known && is_listed_still) {
            return;
        }
        let told_at = ended.filter(|ended| is_known && running.is_none() && ended.by_host);
        let told_at = told_at.map(|ended| ended.at);
        let at = told_at.unwrap_or(now);
        let ended = Ended { at, epoch, overrules_samples: false, was_told: true, by_host: true };
        self.bookings.end(&event.booking, ended);
        if told_at.is_none() {
            self.disturb(now, rules);
        }
    }

    pub(in crate::monitor) fn on_sample(&mut self, now: Time, rules: &Rules, sample: HostSample) {
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
            News::Next | News::Ahead if !self.accounts_for_its_epoch(&sample) => {
                self.unsettle(now, rules, "a preflight took place that is not known yet");
            }
            News::Next | News::Ahead | News::Same | News::First | News::OtherLife => {}
        }
        self.adopt(now, rules, news, sample.epoch);
        self.epoch_in_doubt = false;
        self.sampled_epoch = self.epoch;
        self.note_tellers(now, &sample);
        self.last_sample = Some(now);
        self.sampled = Some(Size { cores: sample.cores, memory_mib: sample.memory_mib });
        let alive: BTreeSet<&BookingId> = sample.alive.iter().collect();
        for booking in sample.bookings.iter().take(BOOKINGS_MAX + 1) {
            match self.bookings.ended(&booking.booking) {
                Some(ended) if ended.overrules_samples && !alive.contains(&booking.booking) => {
                    continue;
                }
                Some(ended)
                    if !ended.overrules_samples
                        && ended.epoch == Some(sample.epoch)
                        && now < ended.at + SAMPLE_LAG =>
                {
                    continue;
                }
                // A preflight came that no hook has told of yet, and may be its own: a job that was put
                // back runs here again.
                Some(_) if matches!(news, News::Next | News::Ahead) => {}
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
        self.bookings.note_alive(|id| alive.contains(id));
        let folder: BTreeSet<&BookingId> = sample.bookings.iter().map(|b| &b.booking).collect();
        let in_folder = |id: &BookingId| folder.contains(id);
        self.bookings.end_overruling(in_folder);
        for id in self.gone_from_folder(now, sample.epoch, in_folder) {
            if self.bookings.withdraw(&id, &[Witness::Hook, Witness::Sample]) {
                self.end(now, rules, &id, EndedBy::Host);
            } else {
                self.bookings.note_told_end(now, &id);
            }
        }
    }

    /// Whether a sample shows a new booking for each preflight since the epoch that is known. It
    /// often overtakes the hook's own word.
    fn accounts_for_its_epoch(&self, sample: &HostSample) -> bool {
        let preflights = self.epoch.map_or(0, |known| sample.epoch.count - known.count);
        let is_new = |id: &BookingId| {
            self.bookings.get(id).is_none()
                && self.bookings.ended(id).is_none_or(|ended| !ended.overrules_samples)
        };
        let new = sample.bookings.iter().filter(|booking| is_new(&booking.booking)).count();
        new as u64 >= preflights
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

    pub(in crate::monitor) fn on_poll(
        &mut self,
        now: Time,
        rules: &Rules,
        poll: Poll<'_>,
        allocation: HostAllocation,
    ) {
        // Each host's news is as old as its own question, however long the others' answers took.
        let asked_at = allocation.asked_at.unwrap_or(poll.asked_at).min(now);
        let poll = Poll { asked_at, ..poll };
        // What happened on it until now is unknown.
        if !self.is_told_of() && !self.is_confirmed(now, rules) {
            self.disturb(now, rules);
        }
        self.cover = Some(Cover { source: poll.source.to_owned(), asked_at, missed: 0 });
        if let (Some(sampled), Some(farm)) = (self.sampled, allocation.cores)
            && sampled.cores > farm
        {
            let agent = sampled.cores;
            self.contradict(now, format!("its agent says {agent} cores, the farm {farm}"));
        }
        self.polled = (allocation.cores, allocation.memory_mib);
        self.core_threads = allocation.core_threads;
        for booking in allocation.bookings.iter().take(BOOKINGS_MAX + 1) {
            let id = &booking.booking;
            if self.bookings.ended(id).is_some_and(|ended| ended.at >= asked_at) {
                continue;
            }
            if self.bookings.claim(now, id, Witness::Poll, booking.resources) {
                self.disturb(now, rules);
            }
            self.bookings.set_withheld(id, allocation.withheld.contains(id));
            if self.bookings.outlasts_its_end(asked_at, id) {
                self.contradict(now, format!("the farm lists {id}, ended before"));
            }
            self.compare_claims(now, &booking.booking);
        }
        self.look_for_missed(now, &allocation);
        let listed: BTreeSet<&str> =
            allocation.bookings.iter().map(|booking| booking.booking.as_str()).collect();
        let unnamed: BTreeSet<&str> =
            listed.iter().filter_map(|id| id.strip_suffix(UNNAMED_RENDERS)).collect();
        let is_listed = |id: &BookingId| {
            listed.contains(id.as_str())
                || instance_of(id).is_some_and(|instance| listed.contains(instance))
                || unnamed.iter().any(|farm| id.as_str().starts_with(farm))
        };
        for id in self.bookings.absent(poll, is_listed) {
            self.on_absent_in_poll(now, rules, &id, poll.is_extra);
        }
    }

    fn on_absent_in_poll(&mut self, now: Time, rules: &Rules, id: &BookingId, is_extra: bool) {
        if self.bookings.withdraw(id, &[Witness::Poll]) {
            self.end(now, rules, id, EndedBy::Farm);
            return;
        }
        // Farms list what a worker starts under other names, or give up what hangs.
        let lives = self.bookings.get(id).is_some_and(|booking| booking.is_alive);
        if is_extra || (lives && now < self.alive_until(rules)) {
            return;
        }
        if self.bookings.count_absence(id) >= MISSED_POLLS_MAX {
            self.contradict(now, format!("{id} counts as ended: the farm does not list it"));
            self.end(now, rules, id, EndedBy::Overruling);
        }
    }

    /// The farm has it, and could not tell of it: before it has, its agent's word is not enough.
    pub(in crate::monitor) const fn on_silent_poll(&mut self) {
        self.was_polled = true;
    }

    pub(in crate::monitor) fn on_missed_poll(&mut self) {
        if let Some(cover) = &mut self.cover {
            cover.missed = cover.missed.saturating_add(1);
        }
    }
}

/// The instance that renders this frame (`qube:812.3` of `qube:812.3:f17`), where it names one: its
/// hooks may book frame by frame what a farm lists as a whole.
fn instance_of(id: &BookingId) -> Option<&str> {
    id.as_str().rsplit_once(":f").map(|(instance, _)| instance)
}
