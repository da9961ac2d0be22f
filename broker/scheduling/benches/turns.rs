//! How long one input of the core takes while every lane of a farm is loaded.
//!
//! 1,000 hosts of 4 cores and three kinds have more due tasks, batches and background work than they
//! can run. Each replica that ends is reported, its host asks for another, and due jobs and batches
//! come all the while. The clock is the CPU time of the one thread. `--format json` prints one object.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, KernelName, LeaseToken, Origin,
    OwnerName, Profile, ReplicaId, Span, Time,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, HostIx, Input, LanePolicy, PolicyName, ReportedOutcome, RequestId,
};

const HOSTS: u32 = 1_000;
const CORES: u32 = 4;
const KINDS: [&str; 3] = ["fat", "light", "gpu"];
/// Replicas that end.
const ENDS: u32 = 40_000;
/// One due job for so many of them, and one batch for so many.
const ENDS_PER_DUE_JOB: u32 = 100;
const ENDS_PER_BATCH: u32 = 2_000;
const DUE_TASKS: u32 = 20;
const BATCH: u32 = 500;
/// Longest that the 99th of a hundred may take, in milliseconds.
const LIMIT_MS: f64 = 5.0;

fn cpu_ms() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

struct Running {
    host: HostIx,
    token: LeaseToken,
    replica: ReplicaId,
}

struct Farm {
    core: Core,
    names: Vec<HostName>,
    running: Vec<Running>,
    parked: BTreeMap<LeaseToken, Running>,
    now: Time,
    random: u64,
    /// What each input took, by its kind.
    took_ms: BTreeMap<&'static str, Vec<f64>>,
}

impl Farm {
    fn new() -> Self {
        let config = [Lane::Deadline, Lane::Batch]
            .into_iter()
            .fold(CoreConfig::background(PolicyName::FragmentAware), |config, lane| {
                config.with_lane(lane, LanePolicy::default_of(lane))
            });
        Self {
            core: Core::new(&config),
            names: Vec::new(),
            running: Vec::new(),
            parked: BTreeMap::new(),
            now: Time::ZERO,
            random: 0x9E37_79B9_7F4A_7C15,
            took_ms: BTreeMap::new(),
        }
    }

    fn handle(&mut self, kind: &'static str, input: Input) {
        let mut effects = Vec::new();
        let before = cpu_ms();
        self.core.handle(self.now, input, &mut effects);
        self.took_ms.entry(kind).or_default().push(cpu_ms() - before);
        for effect in effects {
            match effect {
                Effect::Lease { host, token, replica, .. } => {
                    self.running.push(Running { host, token, replica });
                }
                Effect::Abort { token, .. } => {
                    self.running.retain(|of| of.token != token);
                    self.parked.remove(&token);
                }
                Effect::Park { token, .. } => {
                    let at = self.running.iter().position(|of| of.token == token);
                    let of = self.running.swap_remove(at.expect("what is parked ran"));
                    self.parked.insert(token, of);
                }
                Effect::Resume { token, .. } => {
                    self.running.extend(self.parked.remove(&token));
                }
                _ => {}
            }
        }
    }

    fn joins(&mut self, number: u32) {
        let name = HostName::new(format!("host{number:04}")).expect("a plain name");
        self.names.push(name.clone());
        let kernels = BTreeSet::from([KernelName::new("noop").expect("a plain name")]);
        let kind = KINDS[number as usize % KINDS.len()];
        let info = HostInfo {
            name: name.clone(),
            origin: Origin::Farm,
            owner: None,
            cores: CORES,
            memory_mib: 16_384,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
            kind: Some(HostKind::new(kind).expect("a plain name")),
            chunk_cache_mib: 0,
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: CORES, ..Fragment::default() };
        self.handle("join", Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        self.handle("request", Input::Request { host: name, cores: CORES });
    }

    fn submits(&mut self, kind: &'static str, lane: Lane, workunits: u32, profile: Profile) {
        let spec = JobSpec {
            name: "bench".into(),
            owner: OwnerName::new("ann").expect("a plain name"),
            project: None,
            lane,
            task: Task::Kernel(KernelName::new("noop").expect("a plain name")),
            workunits: Workunits::Count(workunits),
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: 3600,
            profile,
            trust: Default::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        };
        self.handle(kind, Input::Submit { request: RequestId::new(1), spec: Box::new(spec) });
    }

    fn due_job_comes(&mut self) {
        let due_ms = Some(3_600_000);
        let profile = Profile { due_ms, cpu_us: Some(300_000_000), ..Profile::default() };
        self.submits("due job", Lane::Deadline, DUE_TASKS, profile);
    }

    fn batch_comes(&mut self) {
        let times = KINDS.iter().zip([200, 500, 100]).map(|(kind, seconds)| {
            (HostKind::new(*kind).expect("a plain name"), seconds * 1_000_000)
        });
        let profile = Profile { run_time_us: times.collect(), ..Profile::default() };
        self.submits("batch", Lane::Batch, BATCH, profile);
    }

    /// Any replica that runs ends, a moment after the one before, and its host asks for another.
    fn one_ends(&mut self) {
        self.now = self.now + Span::from_millis(75);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let any = (self.random % self.running.len() as u64) as usize;
        let Running { host, token, replica } = self.running.swap_remove(any);
        let name = self.names[host.get()].clone();
        let outcome = ReportedOutcome::Output(Digest::from_bytes([1; 32]));
        let report =
            Input::Report { host: name.clone(), token, replica, outcome, cpu_us: 1, took_us: 1 };
        self.handle("report", report);
        self.handle("request", Input::Request { host: name, cores: 1 });
        while self.core.next_deadline().is_some_and(|due| due <= self.now) {
            self.handle("tick", Input::Tick);
        }
    }
}

/// The `part` of a sorted list, and its last.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() as f64 * part) as usize).min(sorted.len() - 1)]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.windows(2).any(|pair| pair == ["--format", "json"]);
    let mut farm = Farm::new();
    (0..HOSTS).for_each(|number| farm.joins(number));
    farm.submits("background", Lane::Background, 1_000_000, Profile::default());
    for _ in 0..100 {
        farm.due_job_comes();
    }
    (0..10).for_each(|_| farm.batch_comes());
    farm.took_ms.clear();
    for end in 0..ENDS {
        if end.is_multiple_of(ENDS_PER_DUE_JOB) {
            farm.due_job_comes();
        }
        if end.is_multiple_of(ENDS_PER_BATCH) {
            farm.batch_comes();
        }
        farm.one_ends();
    }
    let mut all: Vec<f64> = farm.took_ms.values().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| at(&all, part));
    if json {
        println!("{{\"p50_ms\":{p50:.3},\"p99_ms\":{p99:.3},\"longest_ms\":{longest:.3}}}");
        return;
    }
    println!("{HOSTS} hosts x {CORES} cores, all lanes loaded, {} inputs", all.len());
    println!("  ms, limit of p99 {LIMIT_MS}     p50       p99   longest    inputs");
    println!("  all              {p50:>10.3}{p99:>10.3}{longest:>10.3}{:>10}", all.len());
    for (kind, took_ms) in &mut farm.took_ms {
        took_ms.sort_by(f64::total_cmp);
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| at(took_ms, part));
        println!("  {kind:<16} {p50:>10.3}{p99:>10.3}{longest:>10.3}{:>10}", took_ms.len());
    }
}
