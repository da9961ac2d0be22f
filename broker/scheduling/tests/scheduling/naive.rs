//! The fragment-aware policy, with its queues, marks and turns, makes the same choices as a model
//! that follows the published algorithm step by step over plain lists. What the algorithm does not
//! know, attempts that fail, is in other tests.

mod model;

use gleaner_protocol::control::{Fragment, ReleaseReason};
use gleaner_protocol::job::{ApplicationTask, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, HostInfo, HostName, JobId, KernelName, LeaseToken, Origin, OwnerName,
    ReplicaId, Time,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Input, PolicyName, ReportedOutcome, RequestId, check_invariants,
};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};

use self::model::{Given, Host, LARGE_FROM, LARGE_MIB, Model};

/// Those that there are; the last ones take memory.
const KERNELS: u8 = 4;

/// A host: its side, its kernels by bits, its owner, its slots, and for how many large ones it has memory.
type Described = (bool, u8, Option<usize>, u32, u64);

/// Voters of owners come behind those of hosts.
const OWNED: usize = 1000;

#[derive(Debug, Clone)]
enum Step {
    Submit { owner: u8, kernel: u8, workunits: u32, replication: u8 },
    Request { host: usize, slots: u32 },
    Report { lease: usize, output: u8 },
    Preempt { lease: usize },
    Cancel { job: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let output = prop_oneof![8 => Just(0), 2 => Just(1)];
    prop_oneof![
        2 => (0..3_u8, 0..KERNELS, 1..80_u32, 1..5_u8).prop_map(
            |(owner, kernel, workunits, replication)| {
                Step::Submit { owner, kernel, workunits, replication }
            },
        ),
        20 => (any::<usize>(), 1..40_u32).prop_map(|(host, slots)| Step::Request { host, slots }),
        30 => (any::<usize>(), output).prop_map(|(lease, output)| Step::Report { lease, output }),
        15 => any::<usize>().prop_map(|lease| Step::Preempt { lease }),
        1 => any::<usize>().prop_map(|job| Step::Cancel { job }),
    ]
}

fn host() -> impl Strategy<Value = Described> {
    let owner = prop_oneof![2 => Just(None), 1 => (0..2_usize).prop_map(Some)];
    (any::<bool>(), 1..1_u8 << KERNELS, owner, 1..80_u32, 0..20_u64)
}

/// The core and the model side by side.
struct Pair {
    core: Core,
    model: Model,
    leases: Vec<(LeaseToken, ReplicaId, usize)>,
}

impl Pair {
    fn new(hosts: &[Described]) -> Self {
        let mut core = Core::new(&CoreConfig::background(PolicyName::FragmentAware));
        core.set_incarnation(1);
        let mut pair = Self { core, model: Model::default(), leases: Vec::new() };
        // Kernel 0 is asked for first, then kernel 1: so hosts come in the order of their bits.
        for kernel in 0..KERNELS {
            pair.step(&Step::Submit { owner: 0, kernel, workunits: 1, replication: 1 });
        }
        let mut owners = Vec::new();
        for (number, (is_farm, kernels, owner, slots, large)) in hosts.iter().copied().enumerate() {
            let voter = owner.map_or(number, |owner| {
                let known = owners.iter().position(|known| *known == owner);
                OWNED
                    + known.unwrap_or_else(|| {
                        owners.push(owner);
                        owners.len() - 1
                    })
            });
            let (asked, running, taken_mib, memory_mib) = (0, 0, 0, large * LARGE_MIB);
            pair.model.hosts.push(Host {
                is_farm,
                kernels,
                voter,
                slots,
                asked,
                running,
                memory_mib,
                taken_mib,
                quota: None,
                is_suspect: false,
            });
            let offered = (0..KERNELS).filter(|kernel| kernels >> kernel & 1 == 1).map(kernel_name);
            let info = HostInfo {
                name: host_name(number),
                origin: if is_farm { Origin::Farm } else { Origin::Desktop },
                owner: owner.map(|owner| owner_name(owner as u8)),
                cores: 1,
                memory_mib: 1,
                capabilities: Capabilities {
                    kernels: offered.collect(),
                    kernel_memory_mib: LARGE_MIB as u32,
                    ..Capabilities::default()
                },
                kind: None,
                chunk_cache_mib: 0,
            };
            let memory_mib = Some(memory_mib);
            let fragment = Fragment { cores: slots, memory_mib, ..Fragment::default() };
            pair.handle(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        }
        pair
    }

    fn handle(&mut self, input: Input) -> Vec<Given> {
        let mut effects = Vec::new();
        self.core.handle(Time::ZERO, input, &mut effects);
        check_invariants(&self.core).expect("after every input");
        let mut given = Vec::new();
        for effect in effects {
            match effect {
                Effect::Lease { host, token, replica, .. } => {
                    self.leases.push((token, replica, host.get()));
                    let job = replica.workunit.job.get() as usize - 1;
                    given.push((host.get(), job, replica.workunit.index));
                }
                Effect::Abort { token, .. } => self.leases.retain(|lease| lease.0 != token),
                _ => {}
            }
        }
        given
    }

    fn step(&mut self, step: &Step) {
        for (number, host) in self.model.hosts.iter_mut().enumerate() {
            let known = self.core.farm().host_named(&host_name(number)).expect("it joined");
            host.is_suspect = known.standing.is_suspect();
        }
        let (by_core, by_model) = match *step {
            Step::Submit { owner, kernel, workunits, replication } => {
                let job = Model::job(owner, kernel, workunits, replication);
                let spec = JobSpec {
                    name: String::new(),
                    owner: owner_name(owner),
                    project: None,
                    lane: Lane::Background,
                    task: task(kernel),
                    workunits: Workunits::Items(
                        (0..workunits).map(|index| index.to_string()).collect(),
                    ),
                    replication,
                    quorum: None,
                    max_replicas: None,
                    lease_s: 100,
                    profile: Default::default(),
                    trust: Default::default(),
                    on_release: Default::default(),
                    attempts: Default::default(),
                    on: None,
                    cores_permille: gleaner_protocol::Share::WHOLE,
                    gpus: 0,
                };
                let request = RequestId::new(1);
                (
                    self.handle(Input::Submit { request, spec: Box::new(spec) }),
                    self.model.submit(job),
                )
            }
            Step::Request { host, slots } => {
                let host = host % self.model.hosts.len();
                let by_core = self.handle(Input::Request { host: host_name(host), cores: slots });
                (by_core, self.model.request(host, slots))
            }
            Step::Report { lease, output } => {
                let Some((token, replica, host)) = self.take(lease) else { return };
                let outcome = ReportedOutcome::Output(Digest::of(&[output]));
                let name = host_name(host);
                let input =
                    Input::Report { host: name, token, replica, outcome, cpu_us: 1, took_us: 1 };
                let by_core = self.handle(input);
                let job = replica.workunit.job.get() as usize - 1;
                (by_core, self.model.report(host, job, replica.workunit.index, output))
            }
            Step::Preempt { lease } => {
                let Some((token, replica, host)) = self.take(lease) else { return };
                let reason = ReleaseReason::Preempted;
                let by_core = self.handle(Input::Released { host: host_name(host), token, reason });
                let job = replica.workunit.job.get() as usize - 1;
                (by_core, self.model.preempt(host, job, replica.workunit.index))
            }
            Step::Cancel { job } => {
                let job = job % self.model.jobs.len();
                let id = JobId::new(job as u64 + 1);
                let by_core = self.handle(Input::Cancel { request: RequestId::new(1), job: id });
                (by_core, self.model.cancel(job))
            }
        };
        assert_eq!(by_core, by_model, "after {step:?}: (host, job, index) given by core and model");
    }

    fn take(&mut self, lease: usize) -> Option<(LeaseToken, ReplicaId, usize)> {
        let count = self.leases.len();
        (count > 0).then(|| self.leases.swap_remove(lease % count))
    }
}

fn host_name(number: usize) -> HostName {
    HostName::new(format!("h{number}")).expect("a plain name")
}

fn owner_name(number: u8) -> OwnerName {
    OwnerName::new(format!("o{number}")).expect("a plain name")
}

fn task(kernel: u8) -> Task {
    if kernel < LARGE_FROM {
        return Task::Kernel(kernel_name(kernel));
    }
    Task::Application(ApplicationTask {
        kernel: kernel_name(kernel),
        spec: Digest::of(b"a specification"),
        inputs: Vec::new(),
        memory_mib: Some(LARGE_MIB as u32),
        comparison: Default::default(),
    })
}

fn kernel_name(number: u8) -> KernelName {
    KernelName::new(format!("k{number}")).expect("a plain name")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queues_choose_what_a_linear_scan_would(
        hosts in proptest::collection::vec(host(), 1..7),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut pair = Pair::new(&hosts);
        for step in &steps {
            pair.step(step);
        }
    }
}
