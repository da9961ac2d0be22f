//! The studio in the middle of a run: the core, its hosts, and what is submitted.

mod agents;
mod tasks;

use std::collections::BTreeMap;

use gleaner_protocol::control::Verdict;
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, JobId, LeaseToken, Span, Time};
use gleaner_scheduling::replication::ReplicationConfig;
use gleaner_scheduling::visualization::TestRun;
use gleaner_scheduling::{
    CoreConfig, Effect, HostIx, Input, JobPhase, LanePolicy, Policy, PolicyName, replication,
    visualization,
};

use super::farm::{Gives, StudioFarm};
use super::host::Host;
use super::loads::{BACKGROUND_WORKUNITS, Loads, Source};
use super::tally::Tally;
use crate::calendar::Calendar;
use crate::limits::STUDIO_EVENTS_MAX;
use crate::replication::network::Network;
use crate::stage::Stage;
use crate::visualization::rendering::Rendering;
use crate::visualization::service::job_of;

/// How long things take on all hosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// What the rendering lane's policy is told.
    pub(super) test_run: TestRun,
    pub(super) rendering: Rendering,
    /// Loading a chunk of a volume.
    pub(super) load: Span,
    /// Parking a replica or having it go on: who takes its core, or goes on, waits for that.
    pub(super) park: Span,
    /// How long an owner lets a replica stand still.
    pub(super) keep: Span,
}

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) farm: &'a StudioFarm,
    /// What the hosts give.
    pub(super) steps: &'a [Gives],
    pub(super) loads: &'a Loads,
    /// Whose loads are submitted.
    pub(super) lanes: &'a [Lane],
    pub(super) pace: Pace,
    /// Core-time that lanes hold is told by windows of this length.
    pub(super) window: Span,
    pub(super) seed: u64,
    /// Whether all invariants are checked after every event.
    pub(super) is_checked: bool,
}

/// Something that will happen.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A host gives another number of cores.
    Step(Gives),
    Arrives(Source),
    /// A replica is done, if it still is in this run.
    Ends(usize, LeaseToken, u64),
    /// Its chunk is loaded, likewise.
    Loaded(usize, LeaseToken, u64),
    /// It saves where it is, likewise.
    Saves(usize, LeaseToken, u64),
    /// It has stood still for as long as it may, likewise.
    Overdue(usize, LeaseToken, u64),
}

struct World<'a> {
    plan: Plan<'a>,
    stage: Stage,
    hosts: Vec<Host>,
    network: Network,
    calendar: Calendar<Event>,
    /// What each job is of, in order of their ids.
    sources: Vec<Source>,
    /// The newest job of the background.
    newest: Option<JobId>,
    /// How far replicas had come with what they saved.
    states: BTreeMap<Digest, Span>,
    now: Time,
    /// Jobs that are yet to come, the background aside.
    to_come: usize,
    runs: u64,
    tally: Tally,
    effects: Vec<Effect>,
    /// Hosts on which as many replicas as before may share other cores, or the other way round.
    shared: Vec<usize>,
}

/// Runs a plan until all is done that was submitted, the background aside.
///
/// # Errors
/// An invariant that does not hold, or an end that does not come.
pub(super) fn run(plan: Plan<'_>, progress: &dyn Fn(f64)) -> Result<Tally, String> {
    let mut world = World::new(plan);
    world.begin();
    for event in 0..STUDIO_EVENTS_MAX {
        world.perform();
        world.share_cores();
        if plan.is_checked {
            world.stage.check().map_err(|violation| format!("{:?}: {violation}", world.now))?;
            let mut hosts = world.hosts.iter().enumerate();
            if let Some((at, host)) = hosts.find(|(_, host)| host.running() > host.slots) {
                let (runs, slots) = (host.running(), host.slots);
                return Err(format!("{:?}: host {at} runs {runs} and gives {slots}", world.now));
            }
        }
        if world.is_done() || !world.step() {
            world.stop();
            return Ok(world.tally);
        }
        if event % 65_536 == 0 {
            let until = plan.loads.until.as_micros().max(1);
            progress((world.now.as_micros() as f64 / until as f64).min(1.0));
        }
    }
    Err(format!("it has not come to its end after {STUDIO_EVENTS_MAX} events"))
}

/// The default policies of all lanes.
fn policies(plan: &Plan<'_>) -> BTreeMap<Lane, Box<dyn Policy>> {
    let of = |lane| -> Box<dyn Policy> {
        match lane {
            Lane::Rendering => Box::new(visualization::Gleaner::new(plan.pace.test_run)),
            Lane::Dataset => Box::new(replication::Gleaner::new(ReplicationConfig::default())),
            lane => LanePolicy::default_of(lane).build(plan.seed),
        }
    };
    Lane::ALL.into_iter().map(|lane| (lane, of(lane))).collect()
}

impl<'a> World<'a> {
    fn new(plan: Plan<'a>) -> Self {
        let config = CoreConfig {
            audit_seed: plan.seed,
            ..CoreConfig::background(PolicyName::FragmentAware)
        };
        let hosts: Vec<Host> = plan.farm.hosts.iter().cloned().map(Host::new).collect();
        Self {
            plan,
            stage: Stage::with_lanes(&config, policies(&plan)),
            network: Network::default(),
            calendar: Calendar::new(),
            sources: Vec::new(),
            newest: None,
            states: BTreeMap::new(),
            now: Time::ZERO,
            to_come: 0,
            runs: 0,
            tally: Tally::new(plan.loads, hosts.len(), plan.window),
            hosts,
            effects: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// All hosts are there and give nothing yet; copies of the dataset lie where they lie.
    fn begin(&mut self) {
        for host in &self.hosts {
            self.stage.join(Time::ZERO, host.of.info.clone(), 0);
        }
        if self.plan.lanes.contains(&Lane::Dataset) {
            self.place_copies();
        }
        for step in self.plan.steps {
            self.calendar.enter(step.at, Event::Step(*step));
        }
        for lane in self.plan.lanes {
            for (at, source) in self.plan.loads.arrivals(*lane) {
                self.to_come += usize::from(source != Source::Background);
                self.calendar.enter(at, Event::Arrives(source));
            }
        }
    }

    /// Whether all is done that came, or users may still ask.
    fn is_done(&self) -> bool {
        let is_open = |lane: &Lane| self.tally.open(self.plan.loads, *lane) > 0;
        self.now >= self.plan.loads.until
            && self.to_come == 0
            && !self.plan.lanes.iter().any(is_open)
    }

    /// Takes what happens next; `false` where nothing does before the farm's end.
    fn step(&mut self) -> bool {
        let servers = &self.plan.loads.dataset.servers;
        let own = self.calendar.next_time();
        let moved = self.network.next_event(servers);
        let deadline = self.stage.next_deadline();
        let next = own.into_iter().chain(moved).chain(deadline).min();
        let Some(next) = next.filter(|next| *next <= self.plan.farm.end) else { return false };
        self.now = self.now.max(next);
        if deadline == Some(next) {
            self.stage.tick(self.now);
        } else if moved == Some(next) {
            self.move_on();
        } else if let Some((_, event)) = self.calendar.pop() {
            self.happen(event);
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(step) => self.give(step),
            Event::Arrives(source) => drop(self.arrive(source)),
            Event::Ends(host, token, run) => self.end(host, token, run),
            Event::Loaded(host, token, run) => self.loaded(host, token, run),
            Event::Saves(host, token, run) => self.saves(host, token, run),
            Event::Overdue(host, token, run) => self.overdue(host, token, run),
        }
    }

    /// Submits a job; `false` where it is not accepted.
    fn arrive(&mut self, source: Source) -> bool {
        self.to_come -= usize::from(source != Source::Background);
        match self.stage.submit(self.now, self.plan.loads.spec(source)) {
            Ok(job) => {
                self.sources.push(source);
                debug_assert_eq!(self.sources.len() as u64, job.get(), "ids are in order");
                match source {
                    Source::Background => self.newest = Some(job),
                    Source::Deadline(_) => self.tally.due_accepted += 1,
                    _ => {}
                }
                true
            }
            Err(_) => {
                self.tally.refused += u64::from(source.lane() != Lane::Deadline);
                false
            }
        }
    }

    fn source_of(&self, job: JobId) -> Source {
        self.sources[usize::try_from(job.get() - 1).expect("jobs are counted by a usize")]
    }

    /// Does what the core asks for, until it asks for nothing more.
    fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        loop {
            self.stage.take_effects(&mut effects);
            if effects.is_empty() && !self.keep_background() {
                break;
            }
            for effect in effects.drain(..) {
                self.perform_one(effect);
            }
        }
        self.effects = effects;
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Lease { host, token, replica, goes_on, hands_on, .. } => {
                let done = goes_on.and_then(|of| self.states.get(&of.state).copied());
                self.lease(host.get(), token, replica, (done.unwrap_or_default(), hands_on));
            }
            Effect::Park { host, token } => self.park(host.get(), token),
            Effect::Resume { host, token } => self.resume(host.get(), token),
            Effect::Abort { host, token, reason } => self.abort(host.get(), token, reason),
            Effect::Move { chunk, to, patience, .. } => {
                let from = self.stage.farm().copies(chunk).map(HostIx::get).collect();
                let dataset = &self.plan.loads.dataset;
                let (ends, size_mb) = ((from, to.get()), dataset.task.chunk_mb);
                self.network.start(self.now, &dataset.servers, chunk, ends, size_mb, patience);
            }
            Effect::Verdict { workunit, verdict: Verdict::Counted, .. } => {
                if let Source::Frame(frame) = self.source_of(workunit.job) {
                    self.tally.frames.accepted(self.now, frame, job_of(frame));
                }
            }
            Effect::JobChanged { job } => self.job_changed(job),
            _ => {}
        }
    }

    /// Takes note of a job that has ended, and has it forgotten.
    fn job_changed(&mut self, id: JobId) {
        let Some(job) = self.stage.farm().job(id) else { return };
        if job.phase == JobPhase::Active {
            return;
        }
        let failed = u64::from(job.ended.failed());
        self.tally.failed += failed;
        match self.source_of(id) {
            _ if failed > 0 => {}
            Source::Frame(_) => self.tally.frames_done += 1,
            Source::Deadline(at) => self.tally.due_done[at] = Some(self.now),
            Source::Dataset => self.tally.dataset_done = Some(self.now),
            Source::Batch(_) => {
                self.tally.batch_done += 1;
                self.tally.batch_last = self.now;
            }
            Source::Background => {}
        }
        self.stage.tell(self.now, Input::Forget { job: id });
    }

    /// Keeps more background work submitted than the farm could begin; `true` where more of it came.
    /// After one was refused no more is submitted.
    fn keep_background(&mut self) -> bool {
        let Some(newest) = self.newest.and_then(|job| self.stage.farm().job(job)) else {
            return false;
        };
        let is_low = newest.workunit_count() - newest.next < BACKGROUND_WORKUNITS / 2;
        let is_accepted = is_low && self.arrive(Source::Background);
        if is_low && !is_accepted {
            self.newest = None;
        }
        is_accepted
    }

    /// The run ends: what still takes a core has held it so far, and leases are compared.
    fn stop(&mut self) {
        for host in 0..self.hosts.len() {
            for at in 0..self.hosts[host].replicas.len() {
                self.leave_slot(host, at);
            }
            self.tally.given_us += self.given_since(host);
        }
        let farm = self.stage.farm();
        for (host, entry) in farm.hosts() {
            let held = &self.hosts[host.get()].replicas;
            let is_stray = |token| !held.iter().any(|replica| replica.token == token);
            let strays = entry.all_leases().filter(|lease| is_stray(lease.token)).count();
            self.tally.strays += strays as u64;
        }
    }
}

#[cfg(test)]
mod tests;
