//! What the core harvests of a trace under one policy.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use gleaner_protocol::control::{AbortReason, Fragment};
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, JobId, KernelName, LeaseToken,
    Origin, OwnerName, Profile, ReplicaId, Span, Time, Trust,
};
use gleaner_scheduling::{Effect, Input, JobPhase, Policy, ReportedOutcome, Violation};

use super::openings::Step;
use super::sample::Sample;
use crate::dice::Dice;
use crate::limits::REPLAY_JOB_WORKUNITS;
use crate::scenario::Progress;
use crate::stage::Stage;

/// Purpose of the random numbers that say whose memory the farm needs.
const MEMORY: u64 = 1;

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
    /// Share of the farm's jobs that need the memory of what is frozen, which is lost then.
    pub(crate) freeze_fails_share: f64,
}

/// What runs the work: a policy, and what its agents do when the farm wants its cores.
pub(crate) struct System {
    pub(crate) policy: Box<dyn Policy>,
    /// Whether hosts freeze what has to go, and go on with it when their cores are idle again.
    pub(crate) freezes: bool,
    pub(crate) seed: u64,
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
    /// Times that a replica was frozen instead.
    pub(crate) freezes: u64,
    /// Workunits with an accepted result.
    pub(crate) workunits: u64,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    token: LeaseToken,
    replica: ReplicaId,
    /// How long it ran before it was frozen the last time.
    done: Span,
    /// Since when it runs, and when it will be done; none while it is frozen.
    runs: Option<(Time, Time)>,
}

impl Running {
    fn took(&self, now: Time) -> Span {
        self.done + self.runs.map_or(Span::ZERO, |(since, _)| now.since(since))
    }
}

struct Host {
    name: HostName,
    running: Vec<Running>,
    slots: u32,
}

impl Host {
    /// How many replicas run.
    fn active(&self) -> u32 {
        let active = self.running.iter().filter(|running| running.runs.is_some());
        u32::try_from(active.count()).expect("no more than CORES_MAX")
    }
}

type End = (Time, u32, LeaseToken);

struct Model {
    stage: Stage,
    hosts: Vec<Host>,
    /// When replicas are done that were never frozen. All take the same time, so they end in the
    /// order of their beginnings; those that were ended or frozen before are left in it.
    ends: VecDeque<End>,
    /// Likewise those that go on.
    later_ends: BinaryHeap<Reverse<End>>,
    freezes: bool,
    memory: Dice,
    work: Work,
    cores: u64,
    jobs: u64,
    /// The last of them. What nobody has begun of it is all that is left to begin, or more.
    newest: Option<JobId>,
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
    system: System,
    progress: &dyn Progress,
    parts: (u32, u32),
) -> Result<Harvest, Violation> {
    let label = system.policy.name();
    let mut model = Model::new(sample, work, system);
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
    fn new(sample: &Sample, work: Work, system: System) -> Self {
        let mut stage = Stage::new(Lane::Background, system.policy);
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
            later_ends: BinaryHeap::new(),
            freezes: system.freezes,
            memory: Dice::new(system.seed, MEMORY),
            work,
            cores: sample.cores_of_hosts().iter().copied().map(u64::from).sum(),
            jobs: 0,
            newest: None,
            effects: Vec::new(),
            harvest: Harvest::default(),
        };
        model.keep_work(Time::ZERO);
        model
    }

    /// Lets time pass: replicas are done, and the core is ticked when it asks to be.
    fn run_until(&mut self, until: Time) {
        loop {
            let first = self.ends.front().map(|end| end.0);
            let later = self.later_ends.peek().map(|Reverse(end)| end.0);
            let deadline = self.stage.next_deadline();
            let next = first.into_iter().chain(later).chain(deadline).min();
            let Some(at) = next.filter(|at| *at <= until) else { return };
            let end = if first == Some(at) {
                self.ends.pop_front()
            } else if later == Some(at) {
                self.later_ends.pop().map(|Reverse(end)| end)
            } else {
                None
            };
            match end {
                Some(end) => self.complete(end),
                None => {
                    self.stage.tick(at);
                    self.perform(at);
                }
            }
        }
    }

    fn complete(&mut self, (now, host, token): End) {
        let entry = &mut self.hosts[host as usize];
        let is_due = |running: &Running| {
            running.token == token && running.runs.is_some_and(|(_, end)| end == now)
        };
        let Some(place) = entry.running.iter().position(is_due) else { return };
        let running = entry.running.remove(place);
        let name = entry.name.clone();
        let took = running.took(now).as_micros();
        self.harvest.completed_us += u128::from(took);
        let outcome = ReportedOutcome::Output(Digest::from_bytes([1; 32]));
        self.stage.report(now, name.clone(), token, running.replica, outcome, took);
        self.stage.ask(now, name, 1);
        self.perform(now);
    }

    /// The farm takes or leaves cores.
    fn step(&mut self, Step { at, host: index, slots }: Step) {
        let entry = &mut self.hosts[index as usize];
        let more = slots.saturating_sub(entry.slots);
        entry.slots = slots;
        let name = entry.name.clone();
        if self.freezes && more == 0 && !self.memory.happens(self.work.freeze_fails_share) {
            self.freeze(at, index);
        }
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.stage.tell(at, Input::Fragment { host: name.clone(), fragment });
        // What has to go is said at once: it is lost to the farm, and to nothing else.
        self.perform(at);
        let more = more.saturating_sub(self.thaw(at, index));
        if more > 0 {
            self.stage.ask(at, name, more);
            self.perform(at);
        }
    }

    /// Freezes what runs beyond the slots of a host, the youngest first.
    fn freeze(&mut self, now: Time, index: u32) {
        let entry = &mut self.hosts[index as usize];
        let surplus = entry.active().saturating_sub(entry.slots) as usize;
        let active = entry.running.iter_mut().rev().filter(|running| running.runs.is_some());
        for running in active.take(surplus) {
            running.done = running.took(now);
            running.runs = None;
            self.harvest.freezes += 1;
            let (host, token) = (entry.name.clone(), running.token);
            self.stage.tell(now, Input::Frozen { host, token, frozen: true });
        }
    }

    /// Has what is frozen on a host go on as far as it has room, the oldest first; says how many.
    fn thaw(&mut self, now: Time, index: u32) -> u32 {
        let entry = &mut self.hosts[index as usize];
        let room = entry.slots.saturating_sub(entry.active());
        let frozen = entry.running.iter_mut().filter(|running| running.runs.is_none());
        let mut thawed = 0;
        for running in frozen.take(room as usize) {
            let rest = self.work.workunit.as_micros().saturating_sub(running.done.as_micros());
            let end = now + Span::from_micros(rest);
            running.runs = Some((now, end));
            self.later_ends.push(Reverse((end, index, running.token)));
            let (host, token) = (entry.name.clone(), running.token);
            self.stage.tell(now, Input::Frozen { host, token, frozen: false });
            thawed += 1;
        }
        thawed
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
                        let number = u32::try_from(host.get()).expect("hosts are counted in u32");
                        let end = now + self.work.workunit;
                        let (done, runs) = (Span::ZERO, Some((now, end)));
                        let running = Running { token, replica, done, runs };
                        self.hosts[host.get()].running.push(running);
                        self.ends.push_back((end, number, token));
                    }
                    Effect::Abort { host, token, reason } => {
                        self.abort(now, host.get(), token, reason);
                    }
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

    fn abort(&mut self, now: Time, host: usize, token: LeaseToken, reason: AbortReason) {
        let entry = &mut self.hosts[host];
        let Some(place) = entry.running.iter().position(|running| running.token == token) else {
            return;
        };
        let running = entry.running.remove(place);
        let took = u128::from(running.took(now).as_micros());
        let is_frozen = running.runs.is_none();
        // One that stood still until its lease was over is lost to the farm, too.
        let is_preempted = match reason {
            AbortReason::FragmentClosed => true,
            AbortReason::Expired => is_frozen,
            _ => false,
        };
        if is_preempted {
            self.harvest.preempted_us += took;
            self.harvest.preemptions += 1;
        } else {
            self.harvest.aborted_us += took;
        }
        if entry.active() < entry.slots && !is_frozen {
            let name = entry.name.clone();
            self.stage.ask(now, name, 1);
        }
    }

    /// Keeps more work submitted than the farm could begin.
    fn keep_work(&mut self, now: Time) {
        let wanted = u32::try_from(self.cores).unwrap_or(u32::MAX).min(REPLAY_JOB_WORKUNITS);
        while self.untouched() < wanted {
            self.jobs += 1;
            let spec = JobSpec {
                name: format!("work{}", self.jobs),
                owner: OwnerName::new("anyone").expect("a plain name"),
                project: None,
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
                on_release: Default::default(),
                attempts: Default::default(),
                on: None,
                cores_permille: gleaner_protocol::Share::WHOLE,
                gpus: 0,
            };
            let job = self.stage.submit(now, spec).expect("few jobs, within their bounds");
            self.newest = Some(job);
        }
    }

    /// Workunits of the newest job that nobody has begun.
    fn untouched(&self) -> u32 {
        let newest = self.newest.and_then(|job| self.stage.farm().job(job));
        newest.map_or(0, |job| job.workunit_count() - job.next)
    }

    /// The log has ended.
    fn stop(&mut self, now: Time) {
        for running in self.hosts.iter().flat_map(|host| &host.running) {
            self.harvest.unfinished_us += u128::from(running.took(now).as_micros());
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
