//! The world of a storm: events, and what each does.

mod agents;
mod broker_life;
mod checks;
mod copies;
mod event;
mod faults;
mod frames;
mod hooks;
mod links;
mod monitor_life;
mod submitters;
mod tasks;
mod viewers;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_agent::harvest::{self, Product};
use gleaner_monitor::Monitor;
use gleaner_protocol::{Digest, HostName, Manifest, Origin, OutputFile, Span, Time, WorkunitId};

use super::broker::Broker;
use super::chances::Chances;
use super::machine::Machine;
use super::viewer::Viewer;
use super::watcher::Watcher;
use super::wires::Wires;
use super::{Breach, StormConfig, StormFailure, StormReport};
use crate::calendar::Calendar;
use event::{Event, Label};
use monitor_life::MonitorLife;

/// Workunits that are submitted for each host and hour.
const WORKUNITS_PER_HOST_HOUR: u64 = 20;
/// Workunits of a job on average.
const WORKUNITS_PER_JOB: u64 = 15;
/// How often it is told how far the storm has come.
const TOLD_EVERY_EVENTS: u64 = 1 << 14;

pub(super) struct World<'a> {
    seed: u64,
    config: &'a StormConfig,
    now: Time,
    calendar: Calendar<Event>,
    chances: Chances,
    machines: Vec<Machine>,
    names: BTreeMap<HostName, usize>,
    wires: Wires,
    broker: Broker,
    /// Whether a turn of the broker is coming, and when its timer wakes it.
    turn_is_due: bool,
    broker_timer: Option<Time>,
    broker_ahead: Span,
    turns: u64,
    monitor: MonitorLife,
    watcher: Watcher,
    viewers: Vec<Viewer>,
    report: StormReport,
    /// Jobs still to be submitted, and those whose acknowledgement has not come.
    to_submit: u64,
    unanswered: u64,
    submissions: u64,
    lives: u64,
    bookings: u64,
    posts: u64,
    effects: Vec<harvest::Effect>,
    /// Who has a say in what was saved.
    states: BTreeMap<Digest, BTreeSet<HostName>>,
    /// What the event in hand could have touched.
    touched_host: Option<usize>,
    turned: bool,
    is_calm: bool,
    calm_since: Time,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, config: &'a StormConfig) -> Self {
        let mut chances = Chances::new(seed);
        let machines: Vec<_> = (0..config.hosts as usize)
            .map(|number| {
                let origin = if number % 5 < 3 { Origin::Farm } else { Origin::Desktop };
                let most = if origin == Origin::Farm { 6 } else { 3 };
                let cores = u32::try_from(1 + chances.hosts.below(most)).expect("few cores");
                Machine::new(number, origin, cores, chances.hosts.chance(100))
            })
            .collect();
        let names = machines.iter().map(|machine| machine.info.name.clone()).zip(0..).collect();
        let hours_of_hosts = u64::from(config.hosts) * config.lasts.as_millis() / 3_600_000;
        let workunits = (hours_of_hosts * WORKUNITS_PER_HOST_HOUR).max(WORKUNITS_PER_JOB * 3);
        let mut world = Self {
            seed,
            config,
            now: Time::ZERO,
            calendar: Calendar::new(),
            chances,
            watcher: Watcher::new(machines.len()),
            machines,
            names,
            wires: Wires::default(),
            broker: Broker::new(config),
            turn_is_due: false,
            broker_timer: None,
            broker_ahead: Span::ZERO,
            turns: 0,
            monitor: MonitorLife::default(),
            viewers: Vec::new(),
            report: StormReport::default(),
            to_submit: workunits / WORKUNITS_PER_JOB,
            unanswered: 0,
            submissions: 0,
            lives: 0,
            bookings: 0,
            posts: 0,
            effects: Vec::new(),
            states: BTreeMap::new(),
            touched_host: None,
            turned: false,
            is_calm: false,
            calm_since: Time::ZERO,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.after(Span::ZERO, Event::BrokerStarts);
        self.after(Span::ZERO, Event::MonitorStarts);
        for host in 0..self.machines.len() {
            let on = self.chances.hosts.millis(0, 60_000);
            let boot = self.machines[host].boot;
            self.after(on, Event::AgentStarts { host, boot });
            self.render_later(host);
        }
        let polled = self.chances.hosts.millis(0, 10_000);
        self.after(polled, Event::PollDue);
        for _ in 0..self.to_submit {
            let at = self.chances.work.millis(0, self.config.lasts.as_millis() * 9 / 10);
            self.after(at, Event::Submit);
        }
        self.begin_datasets();
        self.begin_viewers();
        self.begin_faults();
        self.after(self.config.lasts, Event::Calm);
    }

    fn after(&mut self, span: Span, event: Event) {
        self.calendar.enter(self.now + span, event);
    }

    pub(super) fn run(mut self, told: &dyn Fn(u32)) -> Result<StormReport, Box<StormFailure>> {
        while let Some((at, event)) = self.calendar.pop() {
            self.now = at;
            self.report.events += 1;
            if self.report.events.is_multiple_of(TOLD_EVERY_EVENTS) {
                let part = at.as_micros() * 1_000_000 / self.config.lasts.as_micros().max(1);
                told(u32::try_from(part.min(1_000_000)).expect("at most a million"));
            }
            let label = event.label();
            (self.touched_host, self.turned) = (label.host, false);
            if let Err(breach) = self.happens(event).and_then(|()| self.check()) {
                return Err(Box::new(self.failure(label, breach)));
            }
            if self.is_calm && self.all_has_ended() {
                break;
            }
        }
        if let Err(breach) = self.conclude() {
            return Err(Box::new(self.failure(Label { name: "the end", host: None }, breach)));
        }
        Ok(self.report)
    }

    fn failure(&self, Label { name, host }: Label, breach: Breach) -> StormFailure {
        let event = match host {
            Some(host) => format!("{name} on {}", self.machines[host].info.name),
            None => name.to_owned(),
        };
        StormFailure {
            seed: self.seed,
            policy: self.config.policy,
            hosts: self.config.hosts,
            lasts: self.config.lasts,
            fury: self.config.fury,
            at: self.now,
            event,
            events: self.report.events,
            breach,
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), Breach> {
        match event {
            Event::Submit => self.submit(),
            Event::Cancel(job) => self.cancel(job),
            Event::DatasetComes(dataset) => self.dataset_comes(dataset),
            Event::DatasetGoes(dataset) => self.dataset_goes(dataset),
            Event::Fetched { host, life, chunk, works } => {
                return self.fetched(host, life, chunk, works);
            }
            Event::Turn { life } => return self.turn(life),
            Event::BrokerTimer { at } => return self.broker_wakes(at),
            Event::Committed { life } => return self.committed(life),
            Event::BrokerDies { life, step } => return self.broker_dies(life, step),
            Event::BrokerStarts => return self.broker_starts(),
            Event::DiskHasSpace => return self.disk_has_space(),
            Event::WireOpens { host, life } => return self.wire_opens(host, life),
            Event::ToBroker { wire, messages } => self.broker_receives(wire, messages),
            Event::ToAgent { wire, messages } => return self.agent_receives(wire, messages),
            Event::ClosesAtBroker { wire } => self.closes_at_broker(wire),
            Event::ClosesAtAgent { wire } => return self.closes_at_agent(wire),
            Event::SilentForAgent { wire } => return self.silent_for_agent(wire),
            Event::SilentForBroker { wire } => self.silent_for_broker(wire),
            Event::AgentStarts { host, boot } => self.agent_starts(host, boot),
            Event::AgentWakes { host, life } => return self.agent_wakes(host, life),
            Event::AgentGoesOn { host, life } => return self.agent_goes_on(host, life),
            Event::ReleaseHeard { host, life } => return self.release_heard(host, life),
            Event::TaskBegins { host, token } => return self.task_begins(host, token),
            Event::TaskSaves { host, token } => return self.task_saves(host, token),
            Event::TaskEnds { host, token } => return self.task_ends(host, token),
            Event::Stored { host, token, works } => return self.stored(host, token, works),
            Event::ViewerComes { viewer } => self.viewer_comes(viewer),
            Event::ViewerMoves { viewer, visit } => self.viewer_moves(viewer, visit),
            Event::ViewerSays { viewer, visit, wish } => self.viewer_said(viewer, visit, wish),
            Event::SessionLeft { viewer, visit } => self.session_left(viewer, visit),
            Event::SessionWakes { viewer, visit, at } => self.session_wakes(viewer, visit, at),
            Event::FrameArrives { viewer, visit, frame } => {
                return self.frame_arrives(viewer, visit, frame);
            }
            Event::FrameDrawn { viewer, visit, seq } => self.frame_drawn(viewer, visit, seq),
            Event::SampleDue { host, life } => self.sample_due(host, life),
            Event::SampleArrives(sample) => return self.sample_arrives(*sample),
            Event::RenderComes { host } => self.render_comes(host),
            Event::Preflight(hook) => return self.preflight(hook),
            Event::PreflightAsks(hook) => return self.preflight_asks(&hook),
            Event::RenderEnds { host, boot, booking } => {
                return self.render_ends(host, boot, &booking);
            }
            Event::HookTells { event, tries } => return self.hook_tells(event, tries),
            Event::PollDue => self.poll_due(),
            Event::PollAnswers(poll) => return self.poll_answers(*poll),
            Event::MonitorStarts => self.monitor_starts(),
            Event::MonitorWakes { at } => return self.monitor_wakes(at),
            Event::MonitorPosts { life } => self.monitor_posts(life),
            Event::PostArrives { post, events } => self.post_arrives(post, events),
            Event::PostAnswered { post, is_taken } => self.post_answered(post, is_taken),
            Event::HostBoots { host } => self.host_boots(host),
            Event::FolderWorks { host } => self.machines[host].folder.is_full = false,
            Event::Fault(fault) => return self.strikes(fault),
            Event::Calm => return self.calm(),
        }
        Ok(())
    }

    /// Everything of a clock that may have jumped.
    fn host_clock(&self, host: usize) -> Time {
        self.machines[host].clock(self.now)
    }

    fn monitor(&mut self) -> Option<&mut Monitor> {
        self.monitor.monitor.as_mut()
    }
}

/// The digest of the right output.
fn right_output(workunit: WorkunitId, item: Option<&str>) -> Digest {
    let files = tasks::output(workunit, item, None).into_iter();
    let files = files.map(|Product { name, content }| OutputFile { name, content });
    Manifest::new(files.collect()).expect("two files of different names").digest()
}
