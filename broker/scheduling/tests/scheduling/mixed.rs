//! Random inputs to policies of mixed batches: all invariants after each of them.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, KernelName, LeaseToken, Origin,
    OwnerName, Profile, ReplicaId, Span, Time,
};
use gleaner_scheduling::mixed::{Batch, BatchConfig, Effort, Rule};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Input, PolicyName, ReportedOutcome, RequestId, check_invariants,
};
use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};

const HOSTS: u8 = 6;
const KINDS: [&str; 2] = ["fat", "gpu"];

#[derive(Debug, Clone)]
enum Step {
    Submit { workunits: u32, replication: u8, fat_s: Option<u64>, gpu_s: Option<u64> },
    Cancel(u64),
    Join { host: u8, kind: usize, slots: u32 },
    Leave(u8),
    Give { host: u8, slots: u32 },
    Ask { host: u8, slots: u32 },
    Report { lease: usize, fails: bool },
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let host = || 0..HOSTS;
    let time = || proptest::option::of(0..50_u64);
    prop_oneof![
        4 => (1..5_u32, 1..4_u8, time(), time()).prop_map(|(workunits, replication, fat_s, gpu_s)| {
            Step::Submit { workunits, replication, fat_s, gpu_s }
        }),
        1 => (1..8_u64).prop_map(Step::Cancel),
        6 => (host(), 0..2_usize, 0..4_u32)
            .prop_map(|(host, kind, slots)| Step::Join { host, kind, slots }),
        2 => host().prop_map(Step::Leave),
        3 => (host(), 0..4_u32).prop_map(|(host, slots)| Step::Give { host, slots }),
        12 => (host(), 1..4_u32).prop_map(|(host, slots)| Step::Ask { host, slots }),
        12 => (any::<usize>(), proptest::bool::weighted(0.2))
            .prop_map(|(lease, fails)| Step::Report { lease, fails }),
        3 => (1..150_u64).prop_map(Step::Advance),
    ]
}

struct World {
    core: Core,
    now: Time,
    given: Vec<(HostName, LeaseToken, ReplicaId)>,
}

fn name(host: u8) -> HostName {
    HostName::new(format!("host-{host}")).expect("a plain name")
}

fn kernel() -> KernelName {
    KernelName::new("pca").expect("a plain name")
}

impl World {
    fn new(rule: Rule) -> Self {
        let config = CoreConfig {
            reconnect_grace: Span::from_secs(30),
            ..CoreConfig::background(PolicyName::Plain)
        };
        let batch = Batch::new(BatchConfig {
            rule,
            effort: Effort { entries: 20_000, ..Effort::default() },
            steps_max: 64,
            steps_at_once: 16,
            rest_ns_per_step: 100_000_000,
        });
        let policy: Box<dyn gleaner_scheduling::Policy> = Box::new(batch);
        let core = Core::with_policies(&config, BTreeMap::from([(Lane::Batch, policy)]));
        Self { core, now: Time::ZERO, given: Vec::new() }
    }

    fn feed(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(self.now, input.clone(), &mut effects);
        if let Err(violation) = check_invariants(&self.core) {
            panic!("after {input:?}: {violation}");
        }
        for effect in effects {
            if let Effect::Lease { host, token, replica, .. } = effect {
                let host = self.core.farm().host(host);
                assert!(host.leases.len() <= host.fragment.cores as usize, "beyond its cores");
                self.given.push((host.info.name.clone(), token, replica));
            }
        }
    }

    fn join(&mut self, host: u8, kind: usize, slots: u32) {
        let capabilities =
            Capabilities { kernels: BTreeSet::from([kernel()]), ..Capabilities::default() };
        let info = HostInfo {
            name: name(host),
            origin: Origin::Farm,
            owner: None,
            cores: 4,
            memory_mib: 1024,
            kind: Some(HostKind::new(KINDS[kind]).expect("a plain name")),
            chunk_cache_mib: 0,
            capabilities,
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.feed(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
    }

    fn report(&mut self, lease: usize, fails: bool) {
        let Some((host, token, replica)) = self.given.get(lease).cloned() else { return };
        let outcome = if fails {
            ReportedOutcome::Failed("it failed".into())
        } else {
            ReportedOutcome::Output(Digest::from_bytes([7; 32]))
        };
        // Mostly something else than was said.
        let cpu_us = (lease as u64 % 100) * 1_000_000;
        self.feed(Input::Report { host, token, replica, outcome, cpu_us, took_us: cpu_us });
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Submit { workunits, replication, fat_s, gpu_s } => {
                let known = KINDS.into_iter().zip([fat_s, gpu_s]);
                let known = known.filter_map(|(kind, time)| Some((kind, time?)));
                let kind = |kind| HostKind::new(kind).expect("a plain name");
                let run_time_us = known.map(|(of, time)| (kind(of), time * 1_000_000)).collect();
                let spec = JobSpec {
                    name: String::new(),
                    owner: OwnerName::new("ann").expect("a plain name"),
                    project: None,
                    lane: Lane::Batch,
                    task: Task::Kernel(kernel()),
                    workunits: Workunits::Count(workunits),
                    replication,
                    quorum: None,
                    max_replicas: None,
                    lease_s: 100,
                    trust: Default::default(),
                    on_release: Default::default(),
                    attempts: Default::default(),
                    on: None,
                    cores_permille: gleaner_protocol::Share::WHOLE,
                    gpus: 0,
                    profile: Profile { run_time_us, ..Profile::default() },
                };
                self.feed(Input::Submit { request: RequestId::new(1), spec: Box::new(spec) });
            }
            Step::Cancel(job) => {
                let job = gleaner_protocol::JobId::new(job);
                self.feed(Input::Cancel { request: RequestId::new(2), job });
            }
            Step::Join { host, kind, slots } => self.join(host, kind, slots),
            Step::Leave(host) => self.feed(Input::HostLeft { host: name(host) }),
            Step::Give { host, slots } => {
                let fragment =
                    Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
                self.feed(Input::Fragment { host: name(host), fragment });
            }
            Step::Ask { host, slots } => {
                self.feed(Input::Request { host: name(host), cores: slots });
            }
            Step::Report { lease, fails } => {
                let lease = lease.checked_rem(self.given.len()).unwrap_or(0);
                self.report(lease, fails);
            }
            Step::Advance(seconds) => {
                self.now = self.now + Span::from_secs(seconds);
                self.feed(Input::Tick);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_inputs_keep_the_invariants(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        for rule in Rule::ALL {
            let mut world = World::new(rule);
            steps.iter().for_each(|step| world.step(step));
        }
    }
}
