//! Decisions a second of the core, and what a touched workunit costs in memory.
//!
//! A decision is one replica leased or one report counted. The clock is the CPU time of the one
//! thread, the bench's own bookkeeping between inputs included. `--format json` prints one object.

mod counting;

use std::collections::BTreeSet;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostName, KernelName, LeaseToken, Origin, OwnerName,
    ReplicaId, Time,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, HostIx, Input, LanePolicy, PolicyName, ReportedOutcome, RequestId,
};

use self::counting::live_bytes;

const HOSTS: u32 = 100_000;
const SLOTS: u32 = 4;
const WORKUNITS: u32 = 1_000_000;
const REPLICATION: u8 = 2;
/// Hosts of the second part, all of one owner, whose replicas nobody else can complete.
const HOSTS_OF_ONE_OWNER: u32 = 250;
const SLOTS_OF_ONE_OWNER: u32 = 4_000;
const CANCELLED_OPEN: u32 = 1_000_000;

/// CPU time of this thread, in seconds.
fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

struct Leased {
    host: HostIx,
    token: LeaseToken,
    replica: ReplicaId,
}

/// A core with its hosts, and the leases that are out.
struct Bench {
    core: Core,
    names: Vec<HostName>,
    leased: Vec<Leased>,
    effects: Vec<Effect>,
    decisions: u64,
    random: u64,
}

/// The lanes of a farm, of which only background has work.
fn all_lanes(policy: PolicyName) -> CoreConfig {
    [Lane::Deadline, Lane::Batch]
        .into_iter()
        .fold(CoreConfig::background(policy), |config, lane| {
            config.with_lane(lane, LanePolicy::default_of(lane))
        })
}

impl Bench {
    fn new(policy: PolicyName) -> Self {
        Self::with(&CoreConfig::background(policy))
    }

    fn with(config: &CoreConfig) -> Self {
        Self {
            core: Core::new(config),
            names: Vec::new(),
            leased: Vec::new(),
            effects: Vec::new(),
            decisions: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    fn handle(&mut self, input: Input) {
        self.core.handle(Time::ZERO, input, &mut self.effects);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Lease { host, token, replica, .. } => {
                    self.decisions += 1;
                    self.leased.push(Leased { host, token, replica });
                }
                Effect::Verdict { .. } => self.decisions += 1,
                _ => {}
            }
        }
    }

    fn joins(&mut self, number: u32, slots: u32, owner: Option<&str>) {
        self.joins_with("noop", number, slots, owner);
    }

    fn joins_with(&mut self, kernel: &str, number: u32, slots: u32, owner: Option<&str>) {
        let kernels = BTreeSet::from([KernelName::new(kernel).expect("a plain name")]);
        let name = HostName::new(format!("host{number:06}")).expect("a plain name");
        self.names.push(name.clone());
        let info = HostInfo {
            name,
            origin: if number.is_multiple_of(2) { Origin::Farm } else { Origin::Desktop },
            owner: owner.map(|owner| OwnerName::new(owner).expect("a plain name")),
            cores: slots,
            memory_mib: 16_384,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
            kind: None,
            chunk_cache_mib: 0,
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.handle(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
    }

    fn submits(&mut self, workunits: u32) {
        let spec = JobSpec {
            name: "bench".into(),
            owner: OwnerName::new("ann").expect("a plain name"),
            project: None,
            lane: Lane::Background,
            task: Task::Kernel(KernelName::new("noop").expect("a plain name")),
            workunits: Workunits::Count(workunits),
            replication: REPLICATION,
            quorum: None,
            max_replicas: None,
            lease_s: 3600,
            profile: Default::default(),
            trust: Default::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        };
        self.handle(Input::Submit { request: RequestId::new(1), spec: Box::new(spec) });
    }

    fn asks(&mut self, host: u32, slots: u32) {
        let host = self.names[host as usize].clone();
        self.handle(Input::Request { host, cores: slots });
    }

    /// Any one of the leases that are out is reported, and its host asks for another.
    fn one_reports(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let any = (self.random % self.leased.len() as u64) as usize;
        let Leased { host, token, replica } = self.leased.swap_remove(any);
        let name = self.names[host.get()].clone();
        let digest = Digest::from_bytes([replica.workunit.index as u8; 32]);
        let outcome = ReportedOutcome::Output(digest);
        self.handle(Input::Report {
            host: name.clone(),
            token,
            replica,
            outcome,
            cpu_us: 1,
            took_us: 1,
        });
        self.handle(Input::Request { host: name, cores: 1 });
    }
}

/// 100,000 hosts, half of them on either side, work off 1,000,000 workunits.
struct Throughput {
    join_us: f64,
    submit_us: f64,
    decisions: u64,
    decisions_per_s: f64,
    leased_bytes: f64,
}

fn throughput(config: &CoreConfig) -> Throughput {
    let mut bench = Bench::with(config);
    bench.leased.reserve((HOSTS * SLOTS) as usize + 1);
    let began = cpu_seconds();
    for number in 0..HOSTS {
        bench.joins(number, SLOTS, None);
    }
    let joined = cpu_seconds();
    bench.submits(WORKUNITS);
    let submitted = cpu_seconds();
    let bytes_before = live_bytes();
    for number in 0..HOSTS {
        bench.asks(number, SLOTS);
    }
    let leased_bytes = (live_bytes() - bytes_before) as f64 / bench.core.farm().open_count() as f64;
    while !bench.leased.is_empty() {
        bench.one_reports();
    }
    let ended = cpu_seconds();
    let job = bench.core.farm().jobs().next().expect("one job").status();
    assert_eq!(job.decided, WORKUNITS, "all is done: {job:?}");
    Throughput {
        join_us: (joined - began) * 1e6 / f64::from(HOSTS),
        submit_us: (submitted - joined) * 1e6,
        decisions: bench.decisions,
        decisions_per_s: bench.decisions as f64 / (ended - submitted),
        leased_bytes,
    }
}

/// All 1,000,000 workunits touched at once: a replica of each runs, one waits in its queue,
/// because all hosts are of one owner. Then the job is cancelled.
struct Touched {
    decisions_per_s: f64,
    bytes: f64,
    cancel_ms: f64,
}

fn touched(policy: PolicyName) -> Touched {
    let mut bench = Bench::new(policy);
    bench.leased.reserve(CANCELLED_OPEN as usize);
    for number in 0..HOSTS_OF_ONE_OWNER {
        bench.joins(number, SLOTS_OF_ONE_OWNER, Some("studio"));
    }
    bench.submits(CANCELLED_OPEN);
    let (before, bytes_before) = (cpu_seconds(), live_bytes());
    for number in 0..HOSTS_OF_ONE_OWNER {
        bench.asks(number, SLOTS_OF_ONE_OWNER);
    }
    let seconds = cpu_seconds() - before;
    bench.effects.shrink_to_fit();
    let bytes = (live_bytes() - bytes_before) as f64 / f64::from(CANCELLED_OPEN);
    assert_eq!(bench.core.farm().open_count(), CANCELLED_OPEN as usize);
    let decisions = bench.decisions;
    let before = cpu_seconds();
    let job = bench.core.farm().jobs().next().expect("one job").id;
    bench.handle(Input::Cancel { request: RequestId::new(2), job });
    let cancel_ms = (cpu_seconds() - before) * 1e3;
    assert_eq!(bench.core.farm().open_count(), 0);
    Touched { decisions_per_s: decisions as f64 / seconds, bytes, cancel_ms }
}

/// The same, smaller, while half of the hosts ask for work that there is none of, and in the end
/// all others too. Returns decisions a second.
fn beside_standing_requests(policy: PolicyName) -> f64 {
    let mut bench = Bench::new(policy);
    for number in 0..HOSTS {
        let kernel = if number.is_multiple_of(2) { "other" } else { "noop" };
        bench.joins_with(kernel, number, SLOTS, None);
    }
    for number in (0..HOSTS).step_by(2) {
        bench.asks(number, SLOTS);
    }
    bench.submits(WORKUNITS / 4);
    let before = cpu_seconds();
    for number in (1..HOSTS).step_by(2) {
        bench.asks(number, SLOTS);
    }
    while !bench.leased.is_empty() {
        bench.one_reports();
    }
    bench.decisions as f64 / (cpu_seconds() - before)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.windows(2).any(|pair| pair == ["--format", "json"]);
    let mut objects = Vec::new();
    for policy in PolicyName::ALL {
        let Throughput { join_us, submit_us, decisions, decisions_per_s, leased_bytes } =
            throughput(&CoreConfig::background(policy));
        let all_lanes_per_s = throughput(&all_lanes(policy)).decisions_per_s;
        let Touched { decisions_per_s: touched_per_s, bytes, cancel_ms } = touched(policy);
        let standing_per_s = beside_standing_requests(policy);
        objects.push(format!(
            "\"{policy}\":{{\"hosts\":{HOSTS},\"workunits\":{WORKUNITS},\"decisions\":{decisions},\
             \"decisions_per_s\":{decisions_per_s:.0},\"all_lanes_per_s\":{all_lanes_per_s:.0},\"bytes_per_leased_workunit\":{leased_bytes:.1},\
             \"bytes_per_waiting_workunit\":{bytes:.1},\"touched_per_s\":{touched_per_s:.0},\"standing_per_s\":{standing_per_s:.0},\
             \"join_us\":{join_us:.2},\"submit_us\":{submit_us:.1},\"cancel_ms\":{cancel_ms:.0}}}"
        ));
        if json {
            continue;
        }
        println!(
            "policy {policy}: {HOSTS} hosts x {SLOTS} slots, {WORKUNITS} workunits x {REPLICATION} replicas"
        );
        println!("  decisions/s (leases given + reports counted)    {decisions_per_s:>12.0}");
        println!("  the same with all lanes, one of them busy       {all_lanes_per_s:>12.0}");
        println!("  bytes per touched workunit, both replicas run   {leased_bytes:>12.1}");
        println!("  bytes per touched workunit, one runs one waits  {bytes:>12.1}");
        println!("  leases/s where one owner has all hosts          {touched_per_s:>12.0}");
        println!("  decisions/s beside standing requests            {standing_per_s:>12.0}");
        println!("  us per host that joins                          {join_us:>12.2}");
        println!("  us to submit the job                            {submit_us:>12.1}");
        println!("  ms to cancel {CANCELLED_OPEN} open workunits             {cancel_ms:>12.0}");
    }
    if json {
        println!("{{{}}}", objects.join(","));
    }
}
