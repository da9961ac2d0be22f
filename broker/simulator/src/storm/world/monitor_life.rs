//! The monitor: what it hears, what it tells the broker, its deaths and starts.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_monitor::limits::{BATCH_EVENTS_MAX, BROKER_TIMEOUT};
use gleaner_monitor::{Decided, Effect, HostAllocation, Input, Monitor, Outbox, Remembered};
use gleaner_protocol::farm::{FarmEvent, HostSample, SampledBooking};
use gleaner_protocol::{HostName, Span, Time};

use super::{Event, World};
use crate::storm::Breach;
use crate::storm::broker::Command;
use crate::storm::rules::{self, MEMORY_MIB, POLL_EVERY, POLL_SOURCE, SAMPLE_EVERY};

/// The process of the monitor, which may be down.
#[derive(Default)]
pub(super) struct MonitorLife {
    pub(super) monitor: Option<Monitor>,
    /// What it wrote down of its hosts last.
    memory: Vec<Remembered>,
    outbox: Outbox,
    life: u64,
    ahead: Span,
    wake: Option<Time>,
    /// The post under way, and what is in it.
    posting: Option<(u64, Vec<Decided>)>,
    post_is_due: bool,
    pause_ms: u64,
    /// Nothing gets through: to the broker, and from it.
    pub(super) cut_until: [Time; 2],
    /// Hosts that it was told of by the event in hand.
    pub(super) touched: Option<Touched>,
    effects: Vec<Effect>,
}

/// What of the monitor an event could have touched.
#[derive(Debug, Clone)]
pub(super) enum Touched {
    Host(HostName),
    All,
}

/// The answer to a poll.
pub(super) struct Poll {
    life: u64,
    asked_at: Time,
    allocations: Option<Vec<HostAllocation>>,
}

impl MonitorLife {
    pub(super) fn is_up(&self) -> bool {
        self.monitor.is_some()
    }

    pub(super) fn waits(&self) -> usize {
        self.outbox.len()
    }

    fn clock(&self, now: Time) -> Time {
        now + self.ahead
    }
}

impl World<'_> {
    pub(super) fn monitor_starts(&mut self) {
        if self.monitor.is_up() {
            return;
        }
        let (life, cut_until) = (self.monitor.life + 1, self.monitor.cut_until);
        let ahead = self.monitor.ahead;
        let memory = std::mem::take(&mut self.monitor.memory);
        let mut monitor = Monitor::new(rules::of_monitor());
        monitor.recall(self.now + ahead, memory.clone());
        let monitor = Some(monitor);
        self.monitor = MonitorLife {
            monitor,
            memory,
            life,
            ahead,
            cut_until,
            pause_ms: 100,
            ..Default::default()
        };
    }

    pub(super) fn monitor_dies(&mut self) {
        if self.monitor.monitor.take().is_some() {
            self.report.monitor_deaths += 1;
            self.monitor.life += 1;
            self.monitor.outbox = Outbox::default();
            (self.monitor.posting, self.monitor.wake) = (None, None);
            self.monitor.post_is_due = false;
            let down = self.chances.faults.millis(1_000, 120_000);
            self.after(down, Event::MonitorStarts);
        }
    }

    pub(super) fn monitor_clock_jumps(&mut self, by: Span) -> Result<(), Breach> {
        self.monitor.ahead = self.monitor.ahead + by;
        self.tell_monitor(Input::Tick)
    }

    pub(super) fn tell_monitor(&mut self, input: Input) -> Result<(), Breach> {
        let clock = self.monitor.clock(self.now);
        self.monitor.touched = Some(match &input {
            Input::Hook(event) => Touched::Host(event.host.clone()),
            Input::Sample(sample) => Touched::Host(sample.host.clone()),
            Input::Poll { .. } | Input::Orders(_) | Input::Tick => Touched::All,
        });
        let mut effects = std::mem::take(&mut self.monitor.effects);
        let sabotage = self.config.monitor_saboteur;
        let Some(monitor) = self.monitor() else { return Ok(()) };
        monitor.handle(clock, input, &mut effects).expect("the hosts of a storm are few");
        if let Some(sabotage) = sabotage {
            sabotage(monitor);
        }
        for effect in effects.drain(..) {
            if let Effect::Tell(event) = effect {
                self.monitor.outbox.put(clock, event);
            }
        }
        self.monitor.effects = effects;
        self.monitor_rests();
        Ok(())
    }

    fn monitor_rests(&mut self) {
        let (now, ahead) = (self.now, self.monitor.ahead);
        let due = self.monitor.monitor.as_ref().and_then(Monitor::next_deadline);
        if let Some(due) = due {
            let due = Time::from_micros(due.as_micros().saturating_sub(ahead.as_micros()));
            let at = due.max(now + Span::from_millis(1));
            if self.monitor.wake.is_none_or(|wake| at < wake) {
                self.monitor.wake = Some(at);
                self.calendar.enter(at, Event::MonitorWakes { at });
            }
        }
        self.post_later(Span::from_millis(5));
    }

    pub(super) fn monitor_wakes(&mut self, at: Time) -> Result<(), Breach> {
        if self.monitor.wake != Some(at) {
            return Ok(());
        }
        self.monitor.wake = None;
        let clock = self.monitor.clock(self.now);
        let due = self.monitor.monitor.as_ref().and_then(Monitor::next_deadline);
        if due.is_some_and(|due| due <= clock) {
            return self.tell_monitor(Input::Tick);
        }
        self.monitor_rests();
        Ok(())
    }

    fn post_later(&mut self, wait: Span) {
        let is_idle = self.monitor.posting.is_none() && !self.monitor.post_is_due;
        if is_idle && !self.monitor.outbox.is_empty() {
            self.monitor.post_is_due = true;
            self.after(wait, Event::MonitorPosts { life: self.monitor.life });
        }
    }

    pub(super) fn monitor_posts(&mut self, life: u64) {
        if life != self.monitor.life || !self.monitor.is_up() {
            return;
        }
        self.monitor.post_is_due = false;
        let batch = self.monitor.outbox.take_now(BATCH_EVENTS_MAX);
        let clock = self.monitor.clock(self.now);
        let events: Vec<FarmEvent> =
            batch.iter().filter_map(|decided| decided.as_of(clock)).collect();
        if events.is_empty() {
            return self.post_later(Span::from_millis(5));
        }
        self.posts += 1;
        let post = self.posts;
        self.monitor.posting = Some((post, batch));
        self.after(BROKER_TIMEOUT, Event::PostAnswered { post, is_taken: false });
        if self.monitor.cut_until[0] > self.now || self.is_lost() {
            return;
        }
        if !self.is_calm && self.chances.network.chance(10) {
            self.report.messages_doubled += 1;
            let late = self.chances.network.millis(1, 4_000);
            self.after(late, Event::PostArrives { post, events: events.clone() });
        }
        let takes = self.chances.network.millis(1, 20);
        self.after(takes, Event::PostArrives { post, events });
    }

    fn is_lost(&mut self) -> bool {
        let lost = !self.is_calm && self.chances.network.chance(10);
        self.report.messages_lost += u64::from(lost);
        lost
    }

    pub(super) fn post_arrives(&mut self, post: u64, events: Vec<FarmEvent>) {
        self.ask_broker(Command::Farm(events, post));
    }

    /// The broker has taken a post; its answer may be lost.
    pub(super) fn answer_post(&mut self, post: u64) {
        if self.monitor.cut_until[1] <= self.now && !self.is_lost() {
            let takes = self.chances.network.millis(1, 20);
            self.after(takes, Event::PostAnswered { post, is_taken: true });
        }
    }

    pub(super) fn post_answered(&mut self, post: u64, is_taken: bool) {
        if self.monitor.posting.as_ref().is_none_or(|(posted, _)| *posted != post) {
            return;
        }
        let Some((_, batch)) = self.monitor.posting.take() else { return };
        if is_taken {
            self.monitor.pause_ms = 100;
            return self.post_later(Span::from_millis(1));
        }
        self.monitor.outbox.give_back(batch);
        let pause = self.monitor.pause_ms;
        self.monitor.pause_ms = (pause * 2).min(1_000);
        self.post_later(Span::from_millis(pause));
    }

    pub(super) fn sample_due(&mut self, host: usize, life: u64) {
        let agent = self.machines[host].agent.as_ref();
        if agent.is_some_and(|agent| agent.life == life) {
            self.sample(host);
            self.after(SAMPLE_EVERY, Event::SampleDue { host, life });
        }
    }

    /// An agent looks at its host and tells the monitor.
    pub(super) fn sample(&mut self, host: usize) {
        let machine = &self.machines[host];
        let Some(agent) = machine.agent.as_ref().filter(|agent| agent.listens()) else { return };
        if !machine.is_farm() || machine.cut_until[2] > self.now {
            return;
        }
        let sample = HostSample {
            host: machine.info.name.clone(),
            origin: machine.info.origin,
            cores: machine.info.cores,
            memory_mib: MEMORY_MIB,
            epoch: machine.folder.epoch(),
            bookings: machine.folder.running().collect(),
            watches: false,
            alive: Vec::new(),
            cpu_percent: 0.0,
            used_memory_mib: 0,
            replicas: agent.harvest.running(),
        };
        if self.is_lost() {
            return;
        }
        let most_ms = if self.chances.network.chance(10) { 4_000 } else { 20 };
        if !self.is_calm && self.chances.network.chance(5) {
            self.report.messages_doubled += 1;
            let late = self.chances.network.millis(1, 4_000);
            self.after(late, Event::SampleArrives(Box::new(sample.clone())));
        }
        let takes = self.chances.network.millis(1, most_ms);
        self.after(takes, Event::SampleArrives(Box::new(sample)));
    }

    pub(super) fn sample_arrives(&mut self, sample: HostSample) -> Result<(), Breach> {
        self.tell_monitor(Input::Sample(sample))
    }

    /// The farm is asked what it has booked, and the monitor writes down what it knows: a memory
    /// that is up to a poll old when it dies.
    pub(super) fn poll_due(&mut self) {
        self.after(POLL_EVERY, Event::PollDue);
        let clock = self.monitor.clock(self.now);
        let Some(monitor) = &self.monitor.monitor else { return };
        self.monitor.memory = monitor.remember(clock);
        let fails = !self.is_calm && self.chances.network.chance(30);
        let allocations = (!fails).then(|| self.allocations());
        let most_ms = if self.chances.network.chance(50) { 9_000 } else { 200 };
        let takes = self.chances.network.millis(5, most_ms);
        let (life, asked_at) = (self.monitor.life, self.monitor.clock(self.now));
        self.after(takes, Event::PollAnswers(Box::new(Poll { life, asked_at, allocations })));
    }

    fn allocations(&self) -> Vec<HostAllocation> {
        let farm = self.machines.iter().filter(|machine| machine.is_farm());
        farm.map(|machine| {
            let renders = machine.renders.iter();
            let bookings: BTreeMap<_, _> = renders.map(|(id, r)| (id.clone(), r.booked)).collect();
            HostAllocation {
                host: machine.info.name.clone(),
                asked_at: None,
                cores: Some(machine.info.cores),
                memory_mib: Some(MEMORY_MIB),
                core_threads: 1,
                bookings: bookings
                    .into_iter()
                    .map(|(booking, resources)| SampledBooking { booking, resources })
                    .collect(),
                // Hooks are lost here more often than anywhere.
                announced: BTreeSet::new(),
                withheld: BTreeSet::new(),
            }
        })
        .collect()
    }

    pub(super) fn poll_answers(&mut self, poll: Poll) -> Result<(), Breach> {
        let Poll { life, asked_at, allocations } = poll;
        if life != self.monitor.life {
            return Ok(());
        }
        self.tell_monitor(Input::Poll {
            source: POLL_SOURCE.into(),
            asked_at,
            is_extra: false,
            answer: allocations.map(Into::into),
        })
    }
}
