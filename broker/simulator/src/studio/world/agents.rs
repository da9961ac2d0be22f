//! What agents do when their hosts give more or less, and when the core speaks.

use gleaner_protocol::control::{AbortReason, Fragment, ReleaseReason};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{ChunkId, Epoch, LeaseToken, Span};
use gleaner_scheduling::Input;

use super::super::farm::{Gives, Kind};
use super::super::host::Course;
use super::super::loads::{Source, volume};
use super::{Event, World};

impl World<'_> {
    /// A host gives another number of cores: what has to go goes first, what stood still goes on.
    pub(super) fn give(&mut self, gives: Gives) {
        let (host, left, slots) = (gives.host as usize, gives.left, gives.slots());
        self.tally.given_us += self.given_since(host);
        for token in self.hosts[host].surplus(self.now, left) {
            self.drive_out(host, token, left);
        }
        // What another lane is taken to hold is no render: whoever runs there stands still for it.
        for token in self.hosts[host].surplus(self.now, slots) {
            self.freeze(host, token, self.plan.pace.keep);
        }
        if left == 0 && self.hosts[host].of.kind != Kind::Desktop {
            self.empty_cache(host);
        }
        let entry = &mut self.hosts[host];
        let had_part = entry.has_part_of_core();
        (entry.slots, entry.given_at) = (slots, self.now);
        entry.own_permille = gives.own_permille;
        if had_part || entry.has_part_of_core() {
            self.shared.push(host);
        }
        let entry = &self.hosts[host];
        let name = entry.of.info.name.clone();
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.stage.tell(self.now, Input::Fragment { host: name, fragment });
        // What the core takes back because of it is done with before anything goes on.
        self.perform();
        for token in self.hosts[host].thawing() {
            self.go_on(host, token);
            self.say_frozen(host, token, false);
        }
        let entry = &mut self.hosts[host];
        entry.requested = entry.requested.min(entry.slots.saturating_sub(entry.running()));
        self.ask(host);
    }

    /// Core-time that a host has given since it gave another number of cores.
    pub(super) fn given_since(&self, host: usize) -> u64 {
        let entry = &self.hosts[host];
        self.now.since(entry.given_at).as_micros() * u64::from(entry.slots)
    }

    /// A render wants the core of a replica, and leaves so many cores.
    fn drive_out(&mut self, host: usize, token: LeaseToken, slots_left: u32) {
        let Some(replica) = self.hosts[host].find(token) else { return };
        match replica.on_release {
            OnRelease::Keep { for_s } => {
                return self.freeze(host, token, Span::from_secs(for_s));
            }
            // It saves on cores that no render has booked.
            OnRelease::Checkpoint { .. } if slots_left > 0 => self.save(host, token),
            _ => {}
        }
        self.lose(host, token);
        self.say_released(host, token);
    }

    fn freeze(&mut self, host: usize, token: LeaseToken, keep: Span) {
        self.stand_still(host, token, Course::Frozen, keep);
        self.say_frozen(host, token, true);
    }

    /// A replica stands still for no longer than this, and than its host's owner allows.
    fn stand_still(&mut self, host: usize, token: LeaseToken, course: Course, keep: Span) {
        let place = self.hosts[host].replicas.iter().position(|of| of.token == token);
        self.leave_slot(host, place.expect("it is there"));
        self.runs += 1;
        let (now, run) = (self.now, self.runs);
        let entry = &mut self.hosts[host];
        entry.to_load.retain(|other| *other != token);
        let replica = entry.find(token).expect("it is there");
        replica.done = replica.done_at(now);
        (replica.course, replica.run) = (course, run);
        let until = now + keep.min(self.plan.pace.keep);
        self.calendar.enter(until, Event::Overdue(host, token, run));
    }

    /// What has stood still for too long is given back.
    pub(super) fn overdue(&mut self, host: usize, token: LeaseToken, run: u64) {
        let replica = self.hosts[host].of_run(token, run);
        if replica.is_some_and(|replica| replica.stands_still()) {
            self.lose(host, token);
            self.say_released(host, token);
        }
    }

    /// A replica is gone, and with it what it did and did not save.
    fn lose(&mut self, host: usize, token: LeaseToken) {
        let place = self.hosts[host].replicas.iter().position(|of| of.token == token);
        let Some(place) = place else { return };
        self.leave_slot(host, place);
        let replica = self.hosts[host].take(token).expect("it is there");
        if replica.source == Source::Background {
            self.tally.wasted_us += replica.spent.as_micros();
        }
        if replica.course == Course::Loads {
            self.load_next(host);
        }
    }

    /// The core takes a replica's core for a lane before its own.
    pub(super) fn park(&mut self, host: usize, token: LeaseToken) {
        let keep = self.plan.pace.keep;
        let entry = &mut self.hosts[host];
        entry.requested += 1;
        entry.parking += 1;
        let was_loading = entry.find(token).is_some_and(|of| of.course == Course::Loads);
        self.stand_still(host, token, Course::Parked, keep);
        if was_loading {
            self.load_next(host);
        }
    }

    /// The core lets a parked replica go on.
    pub(super) fn resume(&mut self, host: usize, token: LeaseToken) {
        let park = self.plan.pace.park;
        let entry = &mut self.hosts[host];
        entry.requested = entry.requested.saturating_sub(1);
        let Some(replica) = entry.find(token) else { return };
        replica.work = replica.work + park;
        self.go_on(host, token);
    }

    /// The core takes a replica back.
    pub(super) fn abort(&mut self, host: usize, token: LeaseToken, reason: AbortReason) {
        let Some(replica) = self.hosts[host].find(token) else { return };
        let is_replaced = reason == AbortReason::Preempted && replica.takes_slot();
        self.lose(host, token);
        self.hosts[host].requested += u32::from(is_replaced);
        self.ask(host);
    }

    /// Asks for as many replicas as there are cores that nothing is coming for.
    pub(super) fn ask(&mut self, host: usize) {
        let entry = &mut self.hosts[host];
        let lacks = entry.lacks();
        if lacks > 0 {
            entry.requested += lacks;
            let name = entry.of.info.name.clone();
            self.stage.ask(self.now, name, lacks);
        }
    }

    /// The render takes the memory of the chunks that lay in it.
    fn empty_cache(&mut self, host: usize) {
        let entry = &mut self.hosts[host];
        let kept: Vec<u32> = entry.cache.items().collect();
        entry.cache.clear();
        if !kept.is_empty() {
            let name = entry.of.info.name.clone();
            let lost = kept.into_iter().map(|chunk| self.chunk_id(chunk)).collect();
            self.stage.tell(self.now, Input::Copies { host: name, gained: Vec::new(), lost });
        }
    }

    /// The chunk of a volume that has this number on all hosts.
    pub(super) fn chunk_id(&self, chunk: u32) -> ChunkId {
        let tasks = self.plan.loads.tasks;
        ChunkId { dataset: volume(chunk / tasks), index: chunk % tasks }
    }

    fn say_frozen(&mut self, host: usize, token: LeaseToken, frozen: bool) {
        let host = self.hosts[host].of.info.name.clone();
        self.stage.tell(self.now, Input::Frozen { host, token, frozen });
    }

    fn say_released(&mut self, host: usize, token: LeaseToken) {
        let host = self.hosts[host].of.info.name.clone();
        let reason = ReleaseReason::Preempted;
        self.stage.tell(self.now, Input::Released { host, token, reason });
    }
}
