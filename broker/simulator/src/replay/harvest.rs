//! What the core harvests of a trace under one policy.

use std::collections::VecDeque;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, KernelName, LeaseToken, Origin,
    OwnerName, Profile, ReplicaId, Span, Time, Trust,
};
use gleaner_scheduling::{Effect, Input, JobPhase, Policy, ReportedOutcome, Violation};

use super::openings::Step;
use super::sample::Sample;
use crate::limits::REPLAY_JOB_WORKUNITS;
use crate::scenario::Progress;
use crate::stage::Stage;

/// The background work that fills the fragments: without end, all workunits alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// How long a workunit takes on one core.
    pub(crate) workunit: Span,
    /// How often each is replicated.
    pub(crate) replication: u8,
    /// Share of the accepted results that may be wrong, in parts per billion, for policies that
    /// replicate as far as they trust.
    pub(crate) error_ppb: u32,
}

/// What came of it; times in core-microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Harvest {
    /// Time of replicas that were completed.
    pub(crate) completed_us: u128,
    /// Time of replicas that ended because the farm wanted its cores.
    pub(crate) preempted_us: u128,
    /// Time of replicas that were aborted because nobody needed them any longer.
    pub(crate) aborted_us: u128,
    /// Time of replicas that still ran as the log ended.
    pub(crate) unfinished_us: u128,
    /// Replicas that ended because the farm wanted its cores.
    pub(crate) preemptions: u64,
    /// Workunits with an accepted result.
    pub(crate) workunits: u64,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    token: LeaseToken,
    replica: ReplicaId,
    since: Time,
}

struct Host {
    name: HostName,
    running: Vec<Running>,
    slots: u32,
}

struct Model {
    stage: Stage,
    hosts: Vec<Host>,
    /// When replicas are done. All take the same time, so they end in the order of their
    /// beginnings; those that were ended before are left in it.
    ends: VecDeque<(Time, u32, LeaseToken)>,
    work: Work,
    cores: u64,
    /// Workunits of which no replica has begun yet.
    untouched: u64,
    jobs: u64,
    effects: Vec<Effect>,
    harvest: Harvest,
}

impl Harvest {
    /// What was given and ran nothing.
    pub(crate) fn unused_us(&self, given: u128) -> u128 {
        let used = self.completed_us + self.preempted_us + self.aborted_us + self.unfinished_us;
        given.saturating_sub(used)
    }
}

/// Runs `work` through the core on what a part of the farm gives.
///
/// # Errors
/// An invariant that does not hold at the end: a bug.
pub(crate) fn harvest(
    sample: &Sample,
    work: Work,
    policy: Box<dyn Policy>,
    progress: &dyn Progress,
    parts: (u32, u32),
) -> Result<Harvest, Violation> {
    let label = policy.name();
    let mut model = Model::new(sample, work, policy);
    let steps = sample.steps();
    for (index, step) in steps.iter().enumerate() {
        if index % 4096 == 0 {
            let (from, span) = (u64::from(parts.0), u64::from(parts.1));
            let done = from + span * index as u64 / steps.len() as u64;
            progress.done(u32::try_from(done).unwrap_or(1_000_000), label);
        }
        model.run_until(step.at);
        model.step(*step);
    }
    model.run_until(sample.end());
    model.stop(sample.end());
    model.stage.check()?;
    Ok(model.harvest)
}

impl Model {
    fn new(sample: &Sample, work: Work, policy: Box<dyn Policy>) -> Self {
        let mut stage = Stage::new(Lane::Background, policy);
        let kernels = [kernel()].into();
        let capabilities = Capabilities { kernels, ..Capabilities::default() };
        let mut hosts = Vec::with_capacity(sample.cores_of_hosts().len());
        for (index, &cores) in sample.cores_of_hosts().iter().enumerate() {
            // Names of logs may have any characters; here they need only differ.
            let name = HostName::new(format!("host{index}")).expect("a plain name");
            let info = HostInfo {
                name: name.clone(),
                origin: Origin::Farm,
                owner: None,
                cores,
                memory_mib: 0,
                kind: Some(kind()),
                chunk_cache_mib: 0,
                capabilities: capabilities.clone(),
            };
            stage.join(Time::ZERO, info, 0);
            hosts.push(Host { name, running: Vec::new(), slots: 0 });
        }
        let mut model = Self {
            stage,
            hosts,
            ends: VecDeque::new(),
            work,
            cores: sample.cores_of_hosts().iter().copied().map(u64::from).sum(),
            untouched: 0,
            jobs: 0,
            effects: Vec::new(),
            harvest: Harvest::default(),
        };
        model.keep_work(Time::ZERO);
        model
    }

    /// Lets time pass: replicas are done, and the core is ticked when it asks to be.
    fn run_until(&mut self, until: Time) {
        loop {
            let end = self.ends.front().map(|(at, ..)| *at);
            let deadline = self.stage.next_deadline();
            let Some(at) = end.into_iter().chain(deadline).min().filter(|at| *at <= until) else {
                return;
            };
            if end == Some(at) {
                let (at, host, token) = self.ends.pop_front().expect("there is a first");
                self.complete(at, host, token);
            } else {
                self.stage.tick(at);
                self.perform(at);
            }
        }
    }

    fn complete(&mut self, now: Time, host: u32, token: LeaseToken) {
        let entry = &mut self.hosts[host as usize];
        let Some(place) = entry.running.iter().position(|running| running.token == token) else {
            return;
        };
        let Running { replica, since, .. } = entry.running.remove(place);
        let name = entry.name.clone();
        let took = now.since(since).as_micros();
        self.harvest.completed_us += u128::from(took);
        let outcome = ReportedOutcome::Output(Digest::from_bytes([1; 32]));
        self.stage.report(now, name.clone(), token, replica, outcome, took);
        self.stage.ask(now, name, 1);
        self.perform(now);
    }

    /// The farm takes or leaves cores.
    fn step(&mut self, Step { at, host, slots }: Step) {
        let entry = &mut self.hosts[host as usize];
        let more = slots.saturating_sub(entry.slots);
        entry.slots = slots;
        let name = entry.name.clone();
        let fragment = Fragment { epoch: Epoch::default(), slots };
        self.stage.tell(at, Input::Fragment { host: name.clone(), fragment });
        // What has to go is said at once: it is lost to the farm, and to nothing else.
        self.perform(at);
        if more > 0 {
            self.stage.ask(at, name, more);
            self.perform(at);
        }
    }

    /// Does what the core asked for.
    fn perform(&mut self, now: Time) {
        loop {
            let mut effects = std::mem::take(&mut self.effects);
            self.stage.take_effects(&mut effects);
            if effects.is_empty() {
                self.effects = effects;
                return;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Lease { host, token, replica, .. } => {
                        if replica.attempt == 1 {
                            self.untouched -= 1;
                        }
                        let number = u32::try_from(host.get()).expect("hosts are counted in u32");
                        let running = Running { token, replica, since: now };
                        self.hosts[host.get()].running.push(running);
                        self.ends.push_back((now + self.work.workunit, number, token));
                    }
                    Effect::Abort { host, token, .. } => self.abort(now, host.get(), token),
                    Effect::JobChanged { job } => {
                        let ended = self.stage.farm().job(job);
                        if let Some(job) = ended.filter(|job| job.phase != JobPhase::Active) {
                            self.harvest.workunits += u64::from(job.ended.decided());
                            let job = job.id;
                            self.stage.tell(now, Input::Forget { job });
                        }
                    }
                    _ => {}
                }
            }
            self.effects = effects;
            self.keep_work(now);
        }
    }

    fn abort(&mut self, now: Time, host: usize, token: LeaseToken) {
        let entry = &mut self.hosts[host];
        let Some(place) = entry.running.iter().position(|running| running.token == token) else {
            return;
        };
        let took = u128::from(now.since(entry.running.remove(place).since).as_micros());
        if entry.running.len() >= entry.slots as usize {
            self.harvest.preempted_us += took;
            self.harvest.preemptions += 1;
        } else {
            self.harvest.aborted_us += took;
            let name = entry.name.clone();
            self.stage.ask(now, name, 1);
        }
    }

    /// Keeps more work submitted than the farm could begin.
    fn keep_work(&mut self, now: Time) {
        while self.untouched < self.cores {
            self.jobs += 1;
            let spec = JobSpec {
                name: format!("work{}", self.jobs),
                owner: OwnerName::new("anyone").expect("a plain name"),
                lane: Lane::Background,
                task: Task::Kernel(kernel()),
                workunits: Workunits::Count(REPLAY_JOB_WORKUNITS),
                replication: self.work.replication,
                quorum: None,
                max_replicas: None,
                lease_s: (12 * self.work.workunit.as_micros()).div_ceil(1_000_000),
                profile: Profile {
                    run_time_us: [(kind(), self.work.workunit.as_micros())].into(),
                    ..Profile::default()
                },
                trust: Trust::Adaptive { error_ppb: self.work.error_ppb },
            };
            self.stage.submit(now, spec).expect("few jobs, within their bounds");
            self.untouched += u64::from(REPLAY_JOB_WORKUNITS);
        }
    }

    /// The log has ended.
    fn stop(&mut self, now: Time) {
        for running in self.hosts.iter().flat_map(|host| &host.running) {
            self.harvest.unfinished_us += u128::from(now.since(running.since).as_micros());
        }
        let jobs = self.stage.farm().jobs();
        self.harvest.workunits += jobs.map(|job| u64::from(job.ended.decided())).sum::<u64>();
    }
}

fn kernel() -> KernelName {
    KernelName::new("replayed").expect("a plain name")
}

fn kind() -> HostKind {
    HostKind::new("recorded").expect("a plain name")
}
