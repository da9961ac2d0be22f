//! Hosts with copies of chunks, and jobs that read them.

use std::collections::BTreeMap;

use gleaner_protocol::control::{Fragment, ReleaseReason};
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, ChunkId, DatasetId, Digest, Epoch, HostInfo, HostName, KernelName, LeaseToken,
    Origin, OwnerName, Profile, Reads, ReplicaId, Span, Time, Trust,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, HostIx, Input, JobPhase, Policy, PolicyName, ReportedOutcome,
    RequestId, check_invariants,
};
use proptest::prelude::any;
use proptest::strategy::{Strategy, Union};

const HOSTS: usize = 5;
const CHUNKS: u32 = 12;
const DATASET: DatasetId = DatasetId::new(7);

/// Something that happens; numbers are taken modulo what there is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Submit(u32),
    Join(usize),
    Leave(usize),
    Slots(usize, u32),
    Ask(usize),
    Finish(usize),
    Release(usize),
    Copy(usize, u32, bool),
    EndMove(usize, bool),
    Pass(u64),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let host = 0..HOSTS;
    Union::new_weighted(vec![
        (1, (1..=CHUNKS).prop_map(Step::Submit).boxed()),
        (3, host.clone().prop_map(Step::Join).boxed()),
        (1, host.clone().prop_map(Step::Leave).boxed()),
        (1, (host.clone(), 0_u32..3).prop_map(|(host, slots)| Step::Slots(host, slots)).boxed()),
        (6, host.clone().prop_map(Step::Ask).boxed()),
        (6, (0_usize..8).prop_map(Step::Finish).boxed()),
        (1, (0_usize..8).prop_map(Step::Release).boxed()),
        (
            6,
            (host, 0..CHUNKS, any::<bool>())
                .prop_map(|(h, c, held)| Step::Copy(h, c, held))
                .boxed(),
        ),
        (3, (0_usize..4, any::<bool>()).prop_map(|(at, held)| Step::EndMove(at, held)).boxed()),
        (4, (1_u64..30).prop_map(Step::Pass).boxed()),
    ])
}

/// A replica that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) host: usize,
    pub(crate) index: u32,
    token: LeaseToken,
    replica: ReplicaId,
}

/// A copy on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnItsWay {
    pub(crate) to: usize,
    pub(crate) index: u32,
}

pub(crate) struct World {
    core: Core,
    pub(crate) now: Time,
    window: u32,
    names: Vec<HostName>,
    numbers: BTreeMap<HostIx, usize>,
    pub(crate) running: Vec<Running>,
    pub(crate) moves: Vec<OnItsWay>,
    requests: u64,
}

impl World {
    pub(crate) fn new(policy: Box<dyn Policy>, window: u32) -> Self {
        let config = CoreConfig::background(PolicyName::Plain);
        let lanes = BTreeMap::from([(Lane::Background, policy)]);
        Self {
            core: Core::with_policies(&config, lanes),
            now: Time::ZERO,
            window,
            names: (0..HOSTS)
                .map(|host| HostName::new(format!("h{host}")).expect("a name"))
                .collect(),
            numbers: BTreeMap::new(),
            running: Vec::new(),
            moves: Vec::new(),
            requests: 0,
        }
    }

    /// What runs where, as `host/index`, in order of the hosts.
    pub(crate) fn picture(&self) -> String {
        let mut runs: Vec<_> =
            self.running.iter().map(|run| format!("h{}/{}", run.host, run.index)).collect();
        runs.sort();
        runs.join(" ")
    }

    pub(crate) fn take(&mut self, step: &Step) {
        match *step {
            Step::Submit(count) => self.submit(count),
            Step::Join(host) => self.join(host, 1),
            Step::Leave(host) => {
                self.running.retain(|run| run.host != host);
                self.tell(Input::HostLeft { host: self.names[host].clone() });
            }
            Step::Slots(host, slots) => {
                let fragment =
                    Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
                self.tell(Input::Fragment { host: self.names[host].clone(), fragment });
            }
            Step::Ask(host) => self.ask(host),
            Step::Finish(at) if !self.running.is_empty() => {
                let run = self.running[at % self.running.len()];
                self.finish(run.host, run.index);
            }
            Step::Release(at) if !self.running.is_empty() => {
                let run = self.running.remove(at % self.running.len());
                let (host, reason) = (self.names[run.host].clone(), ReleaseReason::Preempted);
                self.tell(Input::Released { host, token: run.token, reason });
            }
            Step::Copy(host, index, held) => self.copies(host, &[index], held),
            Step::EndMove(at, held) if !self.moves.is_empty() => {
                let OnItsWay { to, index } = self.moves.remove(at % self.moves.len());
                self.copies(to, &[index], held);
            }
            Step::Pass(seconds) => self.pass(seconds),
            Step::Finish(_) | Step::Release(_) | Step::EndMove(..) => {}
        }
    }

    pub(crate) fn submit(&mut self, count: u32) {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        self.tell(Input::Submit { request, spec: Box::new(spec(count)) });
    }

    pub(crate) fn join(&mut self, host: usize, slots: u32) {
        self.running.retain(|run| run.host != host);
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        let info = info(self.names[host].clone());
        self.tell(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
    }

    pub(crate) fn ask(&mut self, host: usize) {
        self.tell(Input::Request { host: self.names[host].clone(), cores: 1 });
    }

    pub(crate) fn copies(&mut self, host: usize, indices: &[u32], held: bool) {
        let chunks: Vec<_> =
            indices.iter().map(|&index| ChunkId { dataset: DATASET, index }).collect();
        let (gained, lost) = if held { (chunks, Vec::new()) } else { (Vec::new(), chunks) };
        self.tell(Input::Copies { host: self.names[host].clone(), gained, lost });
    }

    pub(crate) fn end_move(&mut self, to: usize, index: u32, held: bool) {
        let way = OnItsWay { to, index };
        self.moves.retain(|known| *known != way);
        self.copies(to, &[index], held);
    }

    pub(crate) fn finish(&mut self, host: usize, index: u32) {
        let is_it = |run: &Running| run.host == host && run.index == index;
        let at = self.running.iter().position(is_it).expect("it runs");
        let Running { token, replica, .. } = self.running.remove(at);
        let outcome = ReportedOutcome::Output(Digest::of(&index.to_le_bytes()));
        let host = self.names[host].clone();
        self.tell(Input::Report { host, token, replica, outcome, cpu_us: 1, took_us: 1 });
    }

    /// Time goes by; the core is ticked when it wants to be.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let until = self.now + Span::from_secs(seconds);
        while let Some(due) = self.core.next_deadline().filter(|due| *due < until) {
            self.now = self.now.max(due) + Span::from_micros(1);
            self.tell(Input::Tick);
        }
        self.now = self.now.max(until);
        self.tell(Input::Tick);
    }

    /// All hosts come back, one with all chunks, and everything is done.
    pub(crate) fn drain(&mut self) {
        for host in 0..HOSTS {
            self.join(host, 2);
            self.ask(host);
        }
        self.copies(0, &(0..CHUNKS).collect::<Vec<_>>(), true);
        for _ in 0..2_000 {
            if self.core.farm().jobs().all(|job| job.phase != JobPhase::Active) {
                return;
            }
            if let Some(run) = self.running.first().copied() {
                self.finish(run.host, run.index);
                self.ask(run.host);
            } else if let Some(OnItsWay { to, index }) = self.moves.first().copied() {
                self.end_move(to, index, true);
            } else {
                self.ask(0);
            }
            self.pass(7);
        }
        let policy = self.core.policy(Lane::Background).unwrap_or_default();
        let left: Vec<_> = self
            .core
            .farm()
            .workunits()
            .map(|(_, unit)| (unit.id, unit.waiting, self.core.explain_workunit(unit.id)))
            .collect();
        let jobs: Vec<_> =
            self.core.farm().jobs().map(|job| (job.id, job.phase, job.next)).collect();
        let (runs, moves) = (self.running.len(), self.moves.len());
        panic!("{policy} leaves work: {runs} runs, {moves} moves, {jobs:?}, {left:?}");
    }

    fn tell(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(self.now, input, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
        check_invariants(&self.core).expect("the invariants hold");
    }

    fn perform(&mut self, effect: Effect) {
        let number = |host| {
            let name = &self.core.farm().host(host).info.name;
            self.names.iter().position(|known| known == name).expect("a known host")
        };
        match effect {
            Effect::Welcome { host, .. } => {
                let number = number(host);
                self.numbers.insert(host, number);
            }
            Effect::Lease { host, token, replica, .. } => {
                let index = replica.workunit.index;
                let chunk = ChunkId { dataset: DATASET, index };
                assert!(self.core.farm().has_copy(chunk, host), "it runs where its chunk is");
                let job = self.core.farm().job(replica.workunit.job).expect("it is known");
                let head = (0..).find(|index| !job.ended.contains(*index)).expect("one is open");
                assert!(index - head < self.window, "{index} is within the window from {head}");
                self.running.push(Running { host: number(host), index, token, replica });
            }
            Effect::Abort { token, .. } => self.running.retain(|run| run.token != token),
            Effect::Move { chunk, to, .. } => {
                self.moves.push(OnItsWay { to: number(to), index: chunk.index });
            }
            _ => {}
        }
    }
}

fn kernel() -> KernelName {
    KernelName::new("k").expect("a name")
}

fn info(name: HostName) -> HostInfo {
    HostInfo {
        name,
        origin: Origin::Farm,
        owner: None,
        cores: 2,
        memory_mib: 1024,
        kind: None,
        chunk_cache_mib: 1024,
        capabilities: Capabilities { kernels: [kernel()].into(), ..Capabilities::default() },
    }
}

fn spec(count: u32) -> JobSpec {
    JobSpec {
        name: String::new(),
        owner: OwnerName::new("o").expect("a name"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(kernel()),
        workunits: Workunits::Count(count),
        replication: 1,
        quorum: None,
        max_replicas: None,
        lease_s: 10_000,
        profile: Profile {
            reads: Some(Reads { dataset: DATASET, chunk_bytes: 1, first: 0 }),
            ..Profile::default()
        },
        trust: Trust::Fixed,
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    }
}
