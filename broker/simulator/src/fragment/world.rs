//! The farm and the desktops under one system.

use std::collections::BTreeSet;

use gleaner_protocol::control::{Fragment, HeldState, ReleaseReason};
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::WORKUNITS_MAX;
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, KernelName, LeaseToken, Origin,
    OwnerName, Profile, Span, Time, Trust, WorkunitId,
};
use gleaner_scheduling::{
    CoreConfig, Effect, Fact, Input, OwnerlessVote, PolicyName, ReportedOutcome, Voice,
};

use super::answers::{self, Character};
use super::availability::Presence;
use super::figures::Tally;
use super::hosts::{Host, Replica};
use super::scenario::Plan;
use super::system::System;
use crate::calendar::Calendar;
use crate::dice::Dice;
use crate::scenario::Progress;
use crate::stage::Stage;

/// Purposes of chance.
const CHARACTERS: u64 = 1;
const SPEEDS: u64 = 2;
const ANSWERS: u64 = 3;
const FREEZING: u64 = 4;
const PRESENCE: u64 = 1_000;

/// Bits of an output's serial number below the number of its host.
const SERIAL_BITS: u32 = 40;
/// Desktops of different speeds are told apart by so many kinds.
const KINDS: usize = 4;
/// Events between two reports of progress.
const EVENTS_PER_REPORT: u64 = 1 << 14;

#[derive(Debug)]
enum Event {
    /// A render ends or begins, a desktop returns or leaves.
    Changes(usize),
    /// A host has been idle for the quiet period.
    Opens(usize),
    /// A replica ends, if it still is in this run.
    Ends(usize, LeaseToken, u64),
}

pub(super) struct World<'a> {
    plan: &'a Plan,
    system: System,
    stage: Stage,
    hosts: Vec<Host>,
    calendar: Calendar<Event>,
    now: Time,
    runs: u64,
    answers: Dice,
    freezing: Dice,
    tally: Tally,
    /// What is submitted; known once the hosts are.
    spec: Option<JobSpec>,
}

/// Runs one system to the end of the plan.
pub(super) fn run(plan: &Plan, seed: u64, system: System, progress: &dyn Fn(f64)) -> Tally {
    let mut world = World::new(plan, seed, system);
    let mut effects = Vec::new();
    let mut events = 0_u64;
    world.perform(&mut effects);
    while let Some((now, event)) = world.calendar.pop() {
        if now >= plan.end() {
            break;
        }
        world.now = now;
        world.takes(event);
        world.perform(&mut effects);
        events += 1;
        if events.is_multiple_of(EVENTS_PER_REPORT) {
            progress(now.as_micros() as f64 / plan.end().as_micros() as f64);
        }
    }
    world.now = plan.end();
    world.closes();
    world.tally
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, seed: u64, system: System) -> Self {
        // Leases outlive a lost link where nobody is to notice it.
        let grace = if system.has(plan.graced) { plan.grace } else { plan.lease };
        // Where anybody has enrolled an owner, those who have not are one voter together.
        let ownerless_hosts_vote =
            if plan.faults.sybils > 0.0 { OwnerlessVote::Together } else { OwnerlessVote::Each };
        let hosts = hosts(plan, seed);
        let honest = hosts.iter().filter(|host| host.character == Character::Honest);
        let owners = honest.filter_map(|host| host.info.owner.clone());
        let config = CoreConfig {
            vouched: owners.take(plan.trusted_owners).collect(),
            reconnect_grace: grace,
            ownerless_hosts_vote,
            audit_seed: seed,
            ..CoreConfig::background(PolicyName::Plain)
        };
        let mut world = Self {
            plan,
            system,
            stage: Stage::with(&config, Lane::Background, system.policy(seed)),
            hosts,
            calendar: Calendar::new(),
            now: Time::ZERO,
            runs: 0,
            answers: Dice::new(seed, ANSWERS),
            freezing: Dice::new(seed, FREEZING),
            tally: Tally::new(plan),
            spec: None,
        };
        world.spec = Some(spec(plan, system, &world.hosts));
        for _ in 0..plan.open_workunits.max(1) {
            world.submits();
        }
        world.begins();
        world
    }

    /// Submits the endless job, or one of a single workunit.
    fn submits(&mut self) {
        let spec = self.spec.clone().expect("it is set before the first event");
        let job = self.stage.submit(self.now, spec);
        job.expect("the jobs of the scenario are good ones");
    }

    /// A number for a workunit, from 0 without large gaps.
    fn index(&self, id: WorkunitId) -> u32 {
        if self.plan.open_workunits == 0 {
            return id.index;
        }
        u32::try_from(id.job.get() - 1).expect("a run has fewer jobs")
    }

    /// All hosts join, so that their numbers are those of the core; those that are not there
    /// leave at once.
    fn begins(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            let is_there = host.presence.is_there();
            let slots = if is_there { host.cores } else { 0 };
            host.is_open = is_there;
            let (info, until) = (host.info.clone(), host.presence.until());
            let (name, is_farm) = (host.name(), host.is_farm);
            self.tally.presence(index, host, is_there, Time::ZERO);
            self.stage.join(Time::ZERO, info, slots);
            if !is_there && !is_farm {
                self.stage.tell(Time::ZERO, Input::HostLeft { host: name });
            }
            self.calendar.enter(until, Event::Changes(index));
        }
    }

    fn takes(&mut self, event: Event) {
        match event {
            Event::Changes(index) => {
                let host = &mut self.hosts[index];
                host.presence.change();
                let (is_there, until) = (host.presence.is_there(), host.presence.until());
                self.tally.presence(index, host, is_there, self.now);
                self.calendar.enter(until, Event::Changes(index));
                match (host.is_farm, is_there) {
                    (true, true) => {
                        let opens = self.now + self.plan.quiet;
                        if opens < until {
                            self.calendar.enter(opens, Event::Opens(index));
                        }
                    }
                    (true, false) => self.render_begins(index),
                    (false, true) => self.returns(index),
                    (false, false) => self.leaves(index),
                }
            }
            Event::Opens(index) => self.opens(index),
            Event::Ends(index, token, run) => self.ends(index, token, run),
        }
    }

    fn fragment(&mut self, index: usize, slots: u32) {
        let host = self.hosts[index].name();
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.stage.tell(self.now, Input::Fragment { host, fragment });
    }

    /// The quiet period is over: what was frozen goes on, the rest of the cores ask.
    fn opens(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.is_open = true;
        let (cores, free, name) = (host.cores, host.free(), host.name());
        let frozen: Vec<_> = host.replicas.iter().map(|replica| replica.token).collect();
        self.fragment(index, cores);
        for token in frozen {
            let host = name.clone();
            self.stage.tell(self.now, Input::Frozen { host, token, frozen: false });
            self.goes_on(index, token);
        }
        if free > 0 {
            self.stage.ask(self.now, name, free);
        }
    }

    fn goes_on(&mut self, index: usize, token: LeaseToken) {
        let host = &mut self.hosts[index];
        let run_time = host.run_time;
        let Some(replica) = host.replicas.iter_mut().find(|of| of.token == token) else { return };
        self.runs += 1;
        (replica.since, replica.run) = (Some(self.now), self.runs);
        let rest = Span::from_micros(run_time.as_micros().saturating_sub(replica.done.as_micros()));
        self.calendar.enter(self.now + rest, Event::Ends(index, token, self.runs));
    }

    /// The host is a render's: what runs is frozen where the system does so and the render
    /// leaves it the memory; otherwise it is lost.
    fn render_begins(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if !std::mem::take(&mut host.is_open) {
            // It rendered or was quiet: what is frozen stays so.
            return;
        }
        let name = host.name();
        let freezes = self.system.has(self.plan.frozen);
        let keeps = freezes && !self.freezing.happens(self.plan.freeze_fails_share);
        // A broker that hears nothing keeps the lease until it runs out.
        let is_told = keeps || self.plan.abort_is_told;
        let mut tokens = Vec::new();
        for replica in &mut host.replicas {
            let measured = self.tally.ran(host.is_farm, replica.since, self.now);
            replica.measured = replica.measured + measured;
            if !keeps {
                self.tally.lost(replica.holds(self.now), self.now);
            }
            replica.stop(self.now, keeps, None);
            tokens.push(replica.token);
        }
        if !keeps {
            host.replicas.clear();
        }
        if keeps || !is_told {
            for token in tokens {
                let host = name.clone();
                self.stage.tell(self.now, Input::Frozen { host, token, frozen: true });
            }
        } else {
            for token in tokens {
                let (host, reason) = (name.clone(), ReleaseReason::Preempted);
                self.stage.tell(self.now, Input::Released { host, token, reason });
            }
        }
        self.fragment(index, 0);
    }

    fn leaves(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.is_open = false;
        for replica in &mut host.replicas {
            let measured = self.tally.ran(host.is_farm, replica.since, self.now);
            replica.measured = replica.measured + measured;
            let held = replica.holds(self.now);
            replica.stop(self.now, false, self.plan.checkpoint);
            let lost = held.as_micros() - replica.done.as_micros();
            self.tally.lost(Span::from_micros(lost), self.now);
        }
        let name = host.name();
        self.stage.tell(self.now, Input::HostLeft { host: name });
    }

    /// A desktop is back: it goes on from its checkpoint with what it may keep.
    fn returns(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.is_open = true;
        let held = host.replicas.iter().map(|replica| gleaner_protocol::control::Held {
            token: replica.token,
            replica: replica.id,
            state: HeldState::Runs,
            goes_on: false,
            share: gleaner_protocol::Share::WHOLE,
        });
        let held = held.collect();
        let (info, slots) = (host.info.clone(), host.cores);
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.stage.tell(self.now, Input::HostJoined { info, fragment, held, incarnation: 1 });
    }

    fn ends(&mut self, index: usize, token: LeaseToken, run: u64) {
        let host = &mut self.hosts[index];
        let is_this = |of: &Replica| of.token == token && of.run == run && of.since.is_some();
        if !host.replicas.iter().any(is_this) {
            return;
        }
        let replica = host.take(token).expect("it was just seen");
        let measured = replica.measured + self.tally.ran(host.is_farm, replica.since, self.now);
        let share = measured.as_secs_f64() / host.run_time.as_secs_f64();
        let (character, name) = (host.character, host.name());
        let trusted = host.number.is_some_and(|number| {
            let farm = self.stage.farm();
            let entry = farm.host(number);
            match character {
                Character::Attacker => entry.standing.is_proven(),
                Character::Sybil => farm.voice_of(entry.voter) != Voice::New,
                _ => false,
            }
        });
        self.runs += 1;
        let serial = (index as u64) << SERIAL_BITS | self.runs;
        let faults = &self.plan.faults;
        let output =
            faults.output(character, trusted, replica.id.workunit, serial, &mut self.answers);
        let (is_farm, unit) = (host.is_farm, self.index(replica.id.workunit));
        self.tally.reported(unit, output, share, (is_farm, character), self.now);
        let outcome = ReportedOutcome::Output(output);
        let cpu_us = replica.spent(self.now).as_micros();
        self.stage.report(self.now, name.clone(), token, replica.id, outcome, cpu_us);
        self.stage.ask(self.now, name, 1);
    }

    fn perform(&mut self, effects: &mut Vec<Effect>) {
        let mut ended = Vec::new();
        loop {
            self.stage.take_effects(effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Lease { host, token, replica: id, .. } => {
                        self.tally.begun(self.index(id.workunit), self.now);
                        self.tally.leased(self.now);
                        let index = host.get();
                        let replica = Replica::new(token, id);
                        self.hosts[index].number = Some(host);
                        self.hosts[index].replicas.push(replica);
                        self.goes_on(index, token);
                    }
                    Effect::Abort { host, token, .. } => self.aborted(host.get(), token),
                    Effect::Welcome { host, adopted } => self.welcomed(host.get(), &adopted),
                    Effect::Persist(Fact::Decided { workunit, digest }) => {
                        let author = author(digest).map(|index| self.hosts[index].character);
                        self.tally.decided(self.index(workunit), digest, author, self.now);
                        if self.plan.open_workunits > 0 {
                            ended.push(workunit.job);
                        }
                    }
                    _ => {}
                }
            }
            // Each result that is final brings the next workunit.
            for job in ended.drain(..) {
                self.stage.tell(self.now, Input::Forget { job });
                self.submits();
            }
        }
    }

    /// The core wants a replica no longer.
    fn aborted(&mut self, index: usize, token: LeaseToken) {
        let host = &mut self.hosts[index];
        let Some(replica) = host.take(token) else { return };
        self.tally.ran(host.is_farm, replica.since, self.now);
        self.tally.lost(replica.holds(self.now), self.now);
        if host.is_open {
            let name = host.name();
            self.stage.ask(self.now, name, 1);
        }
    }

    fn welcomed(&mut self, index: usize, adopted: &[LeaseToken]) {
        let kept: BTreeSet<_> = adopted.iter().copied().collect();
        let host = &mut self.hosts[index];
        let held: Vec<_> = host.replicas.iter().map(|replica| replica.token).collect();
        for token in held {
            if kept.contains(&token) {
                self.goes_on(index, token);
            } else if let Some(replica) = self.hosts[index].take(token) {
                self.tally.lost(replica.holds(self.now), self.now);
            }
        }
        let host = &self.hosts[index];
        if host.is_open && host.free() > 0 {
            self.stage.ask(self.now, host.name(), host.free());
        }
    }

    /// The end of the plan: what runs has run so far.
    fn closes(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            for replica in &host.replicas {
                self.tally.ran(host.is_farm, replica.since, self.now);
            }
            self.tally.presence(index, host, false, self.now);
        }
    }
}

/// The host that gave a wrong output which no accomplice shares.
fn author(output: Digest) -> Option<usize> {
    answers::serial_of(output).map(|serial| (serial >> SERIAL_BITS) as usize)
}

fn hosts(plan: &Plan, seed: u64) -> Vec<Host> {
    let count = plan.farm_hosts + plan.desktops;
    let characters = plan.faults.characters(count, &mut Dice::new(seed, CHARACTERS));
    let speeds = &mut Dice::new(seed, SPEEDS);
    let hosts = characters.into_iter().enumerate().map(|(index, character)| {
        let is_farm = index < plan.farm_hosts;
        let (low, high) = plan.desktop_speed;
        let unit = if is_farm { 0.0 } else { speeds.unit() };
        let speed = if is_farm { 1.0 } else { low + (high - low) * unit };
        let rhythm = if is_farm { plan.renders } else { plan.desktop_rhythm };
        let cores = if is_farm { plan.cores } else { 1 };
        let kind = if is_farm { "farm".into() } else { desktop_kind(unit) };
        let info = HostInfo {
            name: HostName::new(format!("host{index:05}")).expect("a plain name"),
            origin: if is_farm { Origin::Farm } else { Origin::Desktop },
            owner: owner(plan, index, character),
            cores,
            memory_mib: 0,
            kind: Some(HostKind::new(kind).expect("a plain name")),
            chunk_cache_mib: 0,
            capabilities: Capabilities {
                kernels: BTreeSet::from([kernel()]),
                ..Capabilities::default()
            },
        };
        let presence = Presence::begin(rhythm, Dice::new(seed, PRESENCE + index as u64));
        Host {
            info,
            number: None,
            is_farm,
            cores,
            run_time: plan.run_time(speed),
            speed,
            character,
            presence,
            is_open: false,
            replicas: Vec::new(),
        }
    });
    hosts.collect()
}

/// Whose a host is. What sybils say of themselves counts for nothing: they have the owners that their
/// person has enrolled.
fn owner(plan: &Plan, index: usize, character: Character) -> Option<OwnerName> {
    let name = match (character, plan.sybil_owners) {
        _ if plan.faults.sybils <= 0.0 => return None,
        (Character::Sybil, 0) => return None,
        (Character::Sybil, owners) => format!("sybil{}", index % owners),
        _ => format!("owner{index}"),
    };
    Some(OwnerName::new(name).expect("a plain name"))
}

/// Desktops are classed by speed, the slowest as 0.
fn desktop_kind(unit: f64) -> String {
    format!("desktop{}", (unit * KINDS as f64) as usize)
}

fn kernel() -> KernelName {
    KernelName::new("gametree").expect("a plain name")
}

/// An endless bag of workunits of one length.
fn spec(plan: &Plan, system: System, hosts: &[Host]) -> JobSpec {
    let mut profile = Profile::default();
    for host in hosts {
        // The slowest of a kind stands for it.
        let kind = host.info.kind.clone().expect("every host of the model has a kind");
        let micros = profile.run_time_us.entry(kind).or_default();
        *micros = (*micros).max(host.run_time.as_micros());
    }
    profile.checkpoint_ms = plan.checkpoint.map(Span::as_millis);
    let error_ppb = plan.error_ppb;
    let (replication, trust) = match system {
        System::BoincAdaptive => (plan.boinc_replication, Trust::Adaptive { error_ppb }),
        _ if system.names_error() => (plan.replication, Trust::Adaptive { error_ppb }),
        _ => (plan.replication, Trust::Fixed),
    };
    JobSpec {
        name: "fragment".into(),
        owner: OwnerName::new("submitter").expect("a plain name"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(kernel()),
        workunits: Workunits::Count(if plan.open_workunits > 0 { 1 } else { WORKUNITS_MAX }),
        replication,
        quorum: None,
        max_replicas: None,
        lease_s: (plan.lease.as_micros() / 1_000_000).max(1),
        profile,
        trust,
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    }
}

/// What [`Progress`] is told of one system among several.
pub(super) fn part<'p>(
    progress: &'p dyn Progress,
    name: &'p str,
    index: usize,
    count: usize,
) -> impl Fn(f64) + 'p {
    move |share| {
        let parts = (index as f64 + share) / count as f64;
        progress.done((parts * 1e6) as u32, name);
    }
}
