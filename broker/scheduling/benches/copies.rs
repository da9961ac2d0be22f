//! What copies of chunks cost the core: memory, and the time to take note of a host's.
//!
//! A dataset of 65,536 chunks of 16 MiB, a TiB, has two copies of each on 1,000 hosts, and a job reads
//! it. Then a host that keeps all of it, and one that keeps its share, come back and tell what they have;
//! hosts are opened one after the other, and workunits end. The clock is the CPU time of the one thread. `--format json` prints one object.

mod counting;

use std::collections::{BTreeSet, VecDeque};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, ChunkId, DatasetId, Digest, Epoch, HostInfo, HostName, KernelName, Origin,
    OwnerName, Profile, Reads, Span, Time,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Input, LanePolicy, PolicyName, ReportedOutcome, RequestId,
};

use self::counting::live_bytes;

const HOSTS: u32 = 1_000;
const CHUNKS: u32 = 65_536;
const COPIES: u32 = 2;
const CHUNK_BYTES: u64 = 16 << 20;
/// Workunits that end.
const ENDS: usize = 2_000;
/// Most memory, in MiB; longest time for a host's copies, and of one input while the job runs, in
/// milliseconds.
const LIMITS: (f64, f64, f64) = (64.0, 50.0, 5.0);

fn cpu_ms() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

fn name(number: u32) -> HostName {
    HostName::new(format!("host{number:04}")).expect("a plain name")
}

fn chunk(index: u32) -> ChunkId {
    ChunkId { dataset: DatasetId::new(1), index }
}

/// What the hosts keep: copies of a chunk are far apart.
fn kept_by(host: u32) -> Vec<ChunkId> {
    let is_kept = |index: &u32| (0..COPIES).any(|copy| (index + copy * 499) % HOSTS == host);
    (0..CHUNKS).filter(is_kept).map(chunk).collect()
}

fn handle(core: &mut Core, input: Input) -> f64 {
    let mut effects = Vec::new();
    let before = cpu_ms();
    core.handle(Time::ZERO, input, &mut effects);
    cpu_ms() - before
}

fn joins(core: &mut Core, number: u32, slots: u32) {
    let kernels = BTreeSet::from([KernelName::new("noop").expect("a plain name")]);
    let info = HostInfo {
        name: name(number),
        origin: Origin::Farm,
        owner: None,
        cores: 4,
        memory_mib: 16_384,
        capabilities: Capabilities { kernels, ..Capabilities::default() },
        kind: None,
        chunk_cache_mib: 1 << 20,
    };
    let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
    handle(core, Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
}

fn gains(core: &mut Core, number: u32, gained: Vec<ChunkId>) -> f64 {
    handle(core, Input::Copies { host: name(number), gained, lost: Vec::new() })
}

fn job() -> JobSpec {
    let reads = Reads { dataset: DatasetId::new(1), chunk_bytes: CHUNK_BYTES, first: 0 };
    JobSpec {
        name: "bench".into(),
        owner: OwnerName::new("ann").expect("a plain name"),
        project: None,
        lane: Lane::Dataset,
        task: Task::Kernel(KernelName::new("noop").expect("a plain name")),
        workunits: Workunits::Count(CHUNKS),
        replication: 1,
        quorum: None,
        max_replicas: None,
        lease_s: 3600,
        profile: Profile { reads: Some(reads), ..Profile::default() },
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    }
}

/// Opens all hosts, and has workunits end, each some time after the one before. How long each input
/// takes, sorted.
fn runs(core: &mut Core) -> Vec<f64> {
    let (mut now, mut took, mut running) = (Time::ZERO, Vec::new(), VecDeque::new());
    let mut feed = |core: &mut Core, now: Time, input: Input, running: &mut VecDeque<_>| {
        let mut effects = Vec::new();
        let before = cpu_ms();
        core.handle(now, input, &mut effects);
        took.push(cpu_ms() - before);
        running.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Lease { host, token, replica, .. } => Some((host, token, replica)),
            _ => None,
        }));
    };
    for number in 0..HOSTS {
        let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
        feed(core, now, Input::Fragment { host: name(number), fragment }, &mut running);
        feed(core, now, Input::Request { host: name(number), cores: 1 }, &mut running);
        now = now + Span::from_millis(1);
    }
    for _ in 0..ENDS {
        now = now + Span::from_millis(10);
        let Some((host, token, replica)) = running.pop_front() else { break };
        let host = core.farm().host(host).info.name.clone();
        let outcome = ReportedOutcome::Output(Digest::from_bytes([1; 32]));
        let report =
            Input::Report { host: host.clone(), token, replica, outcome, cpu_us: 1, took_us: 1 };
        feed(core, now, report, &mut running);
        feed(core, now, Input::Request { host, cores: 1 }, &mut running);
        while core.next_deadline().is_some_and(|due| due <= now) {
            feed(core, now, Input::Tick, &mut running);
        }
    }
    took.sort_by(f64::total_cmp);
    took
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.windows(2).any(|pair| pair == ["--format", "json"]);
    let config = CoreConfig::background(PolicyName::FragmentAware)
        .with_lane(Lane::Dataset, LanePolicy::default_of(Lane::Dataset));
    let mut core = Core::new(&config);
    // They render: what they keep is known, and nothing of the job begins.
    (0..HOSTS).for_each(|number| joins(&mut core, number, 0));
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let before = live_bytes();
    for number in 0..HOSTS {
        gains(&mut core, number, kept_by(number));
    }
    let copies_mib = mib(live_bytes() - before);
    let submit = Input::Submit { request: RequestId::new(1), spec: Box::new(job()) };
    let submit_ms = handle(&mut core, submit);
    let with_job_mib = mib(live_bytes() - before);
    // Both know what the farm had of them before: nothing is lost while they are away.
    joins(&mut core, HOSTS, 0);
    joins(&mut core, HOSTS + 1, 0);
    let share_ms = gains(&mut core, HOSTS, kept_by(0));
    let all_ms = gains(&mut core, HOSTS + 1, (0..CHUNKS).map(chunk).collect());
    let took_ms = runs(&mut core);
    let at = |part: f64| took_ms[(took_ms.len() as f64 * part) as usize];
    let (p50_ms, p99_ms, longest_ms) = (at(0.5), at(0.99), took_ms[took_ms.len() - 1]);
    if json {
        println!(
            "{{\"copies_mib\":{copies_mib:.1},\"with_job_mib\":{with_job_mib:.1},\"submit_ms\":{submit_ms:.1},\
             \"share_ms\":{share_ms:.3},\"all_ms\":{all_ms:.1},\"p50_ms\":{p50_ms:.3},\"p99_ms\":{p99_ms:.3},\
             \"longest_ms\":{longest_ms:.1}}}"
        );
        return;
    }
    println!("{CHUNKS} chunks of 16 MiB, {COPIES} copies of each, {HOSTS} hosts");
    println!("  copies in memory                  {copies_mib:>8.1} MiB");
    println!("  the same, and a job that reads it {with_job_mib:>8.1} MiB, at most {}", LIMITS.0);
    println!("  the job is accepted in            {submit_ms:>8.1} ms");
    println!("  a host tells of its share in      {share_ms:>8.3} ms");
    println!("  a host tells of all of it in      {all_ms:>8.1} ms, at most {}", LIMITS.1);
    println!(
        "  an input while it runs, of {}: p50 {p50_ms:.3}, p99 {p99_ms:.3}, longest {longest_ms:.1} ms, p99 at most {}",
        took_ms.len(),
        LIMITS.2
    );
}
