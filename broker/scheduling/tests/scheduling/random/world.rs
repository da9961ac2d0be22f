//! Steps that may make sense or not, and the core that takes them.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{Fragment, Held, HeldState, ReleaseReason};
use gleaner_protocol::job::{
    ApplicationTask, Attempts, Comparison, JobSpec, Lane, RunsOn, Task, Workunits,
};
use gleaner_protocol::{
    Account, Capabilities, Digest, Epoch, GpuInfo, GpuKind, HostInfo, HostName, JobId, KernelName,
    LeaseToken, Origin, OwnerName, Profile, ReplicaId, Share, Span, Time, Trust,
};
use gleaner_scheduling::{
    AccountLimit, Core, CoreConfig, Effect, Fact, Input, JobPhase, LaneLimits, LanePolicy,
    PolicyName, ReportedOutcome, RequestId, check_invariants,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof};

const HOSTS: u8 = 8;
/// Hosts that come to finish the work, on each side: more than any workunit has replicas.
const HELPERS: u8 = 12;
const LEASE_S: u64 = 100;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Submit {
        owner: u8,
        kernel: u8,
        workunits: u32,
        replication: u8,
        more: u16,
        error_ppb: Option<u32>,
        lane: Lane,
        /// What each takes beside cores, by number.
        kept: u8,
    },
    Cancel {
        job: u64,
    },
    Join {
        host: u8,
        origin: Origin,
        owner: Option<u8>,
        kernels: u8,
        slots: u32,
        /// What it gives beside cores, by number.
        gives: u8,
        keeps: u64,
    },
    Leave {
        host: u8,
    },
    Expel {
        host: u8,
    },
    /// Whoever runs the farm vouches for some owners, by bits.
    Vouch {
        owners: u8,
    },
    RevokeKey {
        host: u8,
        last_of: Option<u8>,
    },
    Give {
        host: u8,
        slots: u32,
        gives: u8,
    },
    Ask {
        host: u8,
        slots: u32,
    },
    /// Some lease of the past, reported by its host or by another, right or wrong.
    Report {
        lease: usize,
        other_host: Option<u8>,
        attempt: u32,
        output: Option<u8>,
    },
    Release {
        lease: usize,
        reason: ReleaseReason,
    },
    Freeze {
        lease: usize,
        frozen: bool,
    },
    Save {
        lease: usize,
        state: u8,
    },
    Advance {
        seconds: u64,
    },
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let host = || 0..HOSTS;
    let origin = prop_oneof![Just(Origin::Farm), Just(Origin::Desktop)];
    let owner = prop_oneof![3 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let last_of = prop_oneof![Just(None), (0..2_u8).prop_map(Some)];
    let other_host = prop_oneof![9 => Just(None), 1 => host().prop_map(Some)];
    let attempt = prop_oneof![9 => Just(0), 1 => any::<u32>()];
    let output = prop_oneof![6 => Just(Some(0)), 2 => Just(Some(1)), 1 => Just(None)];
    let error = prop_oneof![Just(None), Just(Some(500_000)), Just(Some(1_000))];
    let lane = prop_oneof![
        3 => Just(Lane::Background),
        1 => Just(Lane::Deadline),
        1 => Just(Lane::Batch),
    ];
    let reason = prop_oneof![
        3 => Just(ReleaseReason::Preempted),
        1 => Just(ReleaseReason::Aborted),
        1 => Just(ReleaseReason::CannotRun("no".into())),
        1 => Just(ReleaseReason::HostTrouble("full".into())),
    ];
    prop_oneof![
        4 => (0..3_u8, 0..2_u8, 1..6_u32, 1..4_u8, 0..4_u16, error, lane, 0..8_u8).prop_map(
            |(owner, kernel, workunits, replication, more, error_ppb, lane, kept)| {
                Step::Submit { owner, kernel, workunits, replication, more, error_ppb, lane, kept }
            }
        ),
        1 => (0..8_u64).prop_map(|job| Step::Cancel { job }),
        12 => (host(), origin, owner, 0..4_u8, 0..5_u32, 0..8_u8, any::<u64>()).prop_map(
            |(host, origin, owner, kernels, slots, gives, keeps)| {
                Step::Join { host, origin, owner, kernels, slots, gives, keeps }
            }
        ),
        4 => host().prop_map(|host| Step::Leave { host }),
        1 => host().prop_map(|host| Step::Expel { host }),
        1 => (0..4_u8).prop_map(|owners| Step::Vouch { owners }),
        1 => (host(), last_of).prop_map(|(host, last_of)| Step::RevokeKey { host, last_of }),
        6 => (host(), 0..6_u32, 0..8_u8)
            .prop_map(|(host, slots, gives)| Step::Give { host, slots, gives }),
        25 => (host(), 0..6_u32).prop_map(|(host, slots)| Step::Ask { host, slots }),
        25 => (any::<usize>(), other_host, attempt, output).prop_map(
            |(lease, other_host, attempt, output)| {
                Step::Report { lease, other_host, attempt, output }
            }
        ),
        8 => (any::<usize>(), reason).prop_map(|(lease, reason)| Step::Release { lease, reason }),
        4 => (any::<usize>(), any::<bool>())
            .prop_map(|(lease, frozen)| Step::Freeze { lease, frozen }),
        12 => (any::<usize>(), any::<u8>()).prop_map(|(lease, state)| Step::Save { lease, state }),
        4 => (0..150_u64).prop_map(|seconds| Step::Advance { seconds }),
    ]
}

pub(crate) fn config(policy: PolicyName) -> CoreConfig {
    let reconnect_grace = Span::from_secs(30);
    let limited = Account::Owner(owner_name(0));
    let config = CoreConfig {
        reconnect_grace,
        gone_hosts_max: 1,
        limited: BTreeMap::from([(limited, AccountLimit { cores: Some(3) })]),
        ..CoreConfig::background(policy)
    };
    let mut config = [Lane::Deadline, Lane::Batch]
        .into_iter()
        .fold(config, |config, lane| config.with_lane(lane, LanePolicy::default_of(lane)));
    for (lane, max_percent, min_percent) in [(Lane::Background, 70, 20), (Lane::Batch, 50, 0)] {
        let limits = LaneLimits { max_percent, min_percent };
        config.lanes.get_mut(&lane).expect("a lane").limits = limits;
    }
    config
}

/// So many cores, and what is given beside them by number.
fn fragment(slots: u32, gives: u8) -> Fragment {
    let memory_mib = [None, Some(1_024), Some(2_048), Some(5_000)][usize::from(gives % 4)];
    Fragment { epoch: Epoch::default(), cores: slots, memory_mib, gpus: u32::from(gives > 3) }
}

fn gpu() -> GpuInfo {
    GpuInfo {
        name: "a GPU".into(),
        driver: "one".into(),
        kind: GpuKind::Discrete,
        memory_mib: 8_192,
        texture_side_max: 16_384,
        buffer_mib_max: 1_024,
        pci: None,
    }
}

#[derive(Clone)]
struct Given {
    host: HostName,
    token: LeaseToken,
    replica: ReplicaId,
    share: Share,
}

pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) facts: Vec<Fact>,
    pub(crate) vouched: BTreeSet<OwnerName>,
    now: Time,
    /// Every lease ever given.
    given: Vec<Given>,
}

impl World {
    pub(crate) fn new(policy: PolicyName) -> Self {
        Self::of(Core::new(&config(policy)), Vec::new())
    }

    pub(crate) fn of(core: Core, facts: Vec<Fact>) -> Self {
        let (vouched, now) = (BTreeSet::new(), Time::ZERO);
        Self { core, facts, vouched, now, given: Vec::new() }
    }

    fn feed(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(self.now, input.clone(), &mut effects);
        if let Err(violation) = check_invariants(&self.core) {
            panic!("after {input:?}: {violation}");
        }
        self.remember(effects);
    }

    pub(crate) fn remember(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist(fact) => self.facts.push(fact),
                Effect::Lease { host, token, replica, share, .. } => {
                    let host = self.core.farm().host(host).info.name.clone();
                    self.given.push(Given { host, token, replica, share });
                }
                _ => {}
            }
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let request = RequestId::new(1);
        match step.clone() {
            Step::Submit { owner, kernel, workunits, replication, more, error_ppb, lane, kept } => {
                let is_due = lane == Lane::Deadline;
                let (replication, error_ppb) =
                    if is_due { (1, None) } else { (replication, error_ppb) };
                let profile = Profile {
                    // With much time, with some, and with as much as the admission asks for.
                    due_ms: is_due.then_some([3_600_000, 60_000, 12_000][usize::from(more % 3)]),
                    cpu_us: Some(10_000_000),
                    ..Profile::default()
                };
                let trust =
                    error_ppb.map_or(Trust::Fixed, |error_ppb| Trust::Adaptive { error_ppb });
                let max_replicas = Some(u16::from(replication) + more);
                let (owner, kernel) = (owner_name(owner), kernel_name(kernel));
                // Three in eight take memory, and one of them a GPU too.
                let memory_mib = [None, Some(1_024), Some(2_048), Some(700)][usize::from(kept % 4)];
                let memory_mib = memory_mib.filter(|_| kept < 5);
                let has_gpus = !matches!(lane, Lane::Rendering | Lane::Dataset);
                let gpus = u8::from(has_gpus && (kept == 3 || kept == 4));
                let task = match memory_mib {
                    None if gpus == 0 => Task::Kernel(kernel),
                    memory_mib => {
                        let spec = Digest::of(b"a specification");
                        let comparison = match gpus {
                            0 => Comparison::default(),
                            _ => Comparison::Tolerance,
                        };
                        let inputs = Vec::new();
                        Task::Application(ApplicationTask {
                            kernel,
                            spec,
                            inputs,
                            memory_mib,
                            comparison,
                        })
                    }
                };
                let cores_permille = match (workunits % 4, lane) {
                    (1, Lane::Background) => Share::permille(500),
                    (2, Lane::Background | Lane::Deadline) => Share::cores(2),
                    _ => Share::WHOLE,
                };
                let spec = JobSpec {
                    name: String::new(),
                    owner,
                    project: None,
                    lane,
                    task,
                    workunits: Workunits::Items(
                        (0..workunits).map(|index| index.to_string()).collect(),
                    ),
                    replication,
                    quorum: None,
                    max_replicas,
                    lease_s: LEASE_S,
                    profile,
                    trust,
                    on_release: Default::default(),
                    attempts: Attempts { failed: 1 + more, timed_out: 2, lost: 2 },
                    on: (more == 3).then_some(RunsOn::Farm),
                    cores_permille,
                    gpus,
                };
                self.feed(Input::Submit { request, spec: Box::new(spec) });
            }
            Step::Cancel { job } => self.feed(Input::Cancel { request, job: JobId::new(job) }),
            Step::Join { host, origin, owner, kernels, slots, gives, keeps } => {
                let name = host_name('h', host);
                let bit = |index: usize| keeps >> (index % 64) & 1 == 1;
                let of_host = self.given.iter().filter(|given| given.host == name).enumerate();
                let held = of_host.filter(|(index, _)| bit(*index)).map(|(index, given)| Held {
                    token: given.token,
                    replica: given.replica,
                    state: match (bit(index + 31), bit(index + 47), bit(index + 7)) {
                        (false, ..) => HeldState::Runs,
                        (true, false, false) => HeldState::Aside,
                        (true, false, true) => HeldState::Ended,
                        (true, true, _) => HeldState::Parked,
                    },
                    goes_on: bit(index + 17),
                    share: given.share,
                });
                let held = held.collect();
                let fragment = fragment(slots, gives);
                self.joins(name, origin, owner, kernels, fragment, (held, keeps >> 62));
            }
            Step::Leave { host } => self.feed(Input::HostLeft { host: host_name('h', host) }),
            Step::Expel { host } => self.feed(Input::HostExpelled { host: host_name('h', host) }),
            Step::Vouch { owners } => {
                let named = (0..2_u8).filter(|owner| owners >> owner & 1 == 1);
                self.vouched = named.map(owner_name).collect();
                self.feed(Input::Vouch { owners: self.vouched.clone() });
            }
            Step::RevokeKey { host, last_of } => {
                let (host, last_of) = (host_name('h', host), last_of.map(owner_name));
                self.feed(Input::KeyRevoked { host, last_of });
            }
            Step::Give { host, slots, gives } => {
                let fragment = fragment(slots, gives);
                self.feed(Input::Fragment { host: host_name('h', host), fragment });
            }
            Step::Ask { host, slots } => {
                self.feed(Input::Request { host: host_name('h', host), cores: slots });
            }
            Step::Report { lease, other_host, attempt, output } => {
                let Some(Given { host, token, mut replica, .. }) = self.any(lease) else { return };
                let host = other_host.map_or(host, |other| host_name('h', other));
                replica.attempt = replica.attempt.wrapping_add(attempt);
                let outcome = match output {
                    Some(output) => ReportedOutcome::Output(Digest::of(&[output])),
                    None => ReportedOutcome::Failed("failed".into()),
                };
                self.feed(Input::Report { host, token, replica, outcome, cpu_us: 3, took_us: 3 });
            }
            Step::Release { lease, reason } => {
                let Some(Given { host, token, .. }) = self.any(lease) else { return };
                self.feed(Input::Released { host, token, reason });
            }
            Step::Freeze { lease, frozen } => {
                let Some(Given { host, token, .. }) = self.any(lease) else { return };
                self.feed(Input::Frozen { host, token, frozen });
            }
            Step::Save { lease, state } => {
                let Some(Given { host, token, .. }) = self.any(lease) else { return };
                self.feed(Input::Saved { host, token, state: Digest::of(&[state]) });
            }
            Step::Advance { seconds } => {
                self.now = self.now + Span::from_secs(seconds);
                self.feed(Input::Tick);
            }
        }
    }

    /// A lease of the past, a late one rather than an early one.
    fn any(&self, lease: usize) -> Option<Given> {
        let recent = self.given.len().min(12);
        let at = lease.checked_rem(recent).map(|back| self.given.len() - 1 - back);
        at.map(|at| self.given[at].clone())
    }

    fn joins(
        &mut self,
        name: HostName,
        origin: Origin,
        owner: Option<u8>,
        kernels: u8,
        fragment: Fragment,
        (held, incarnation): (Vec<Held>, u64),
    ) {
        let kernels = (0..2).filter(|kernel| kernels >> kernel & 1 == 1).map(kernel_name);
        let info = HostInfo {
            name,
            origin,
            owner: owner.map(owner_name),
            cores: 4,
            memory_mib: 0,
            capabilities: Capabilities {
                kernels: kernels.collect(),
                kernel_memory_mib: 4_096,
                gpu: Some(gpu()),
                ..Capabilities::default()
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        self.feed(Input::HostJoined { info, fragment, held, incarnation });
    }

    /// The hosts so far go silent, honest ones come: all work ends, in few rounds.
    pub(crate) fn finishes(&mut self) {
        // The helpers have no owners.
        self.feed(Input::Vouch { owners: BTreeSet::new() });
        for host in 0..HOSTS {
            self.feed(Input::HostLeft { host: host_name('h', host) });
        }
        self.now = self.now + Span::from_secs(LEASE_S + 30);
        self.feed(Input::Tick);
        assert_eq!(self.core.farm().lease_count(), 0, "all leases have run out");
        for helper in 0..HELPERS {
            let gives = fragment(4, 4 + helper % 4);
            self.joins(host_name('f', helper), Origin::Farm, None, 3, gives, (Vec::new(), 0));
            self.joins(host_name('d', helper), Origin::Desktop, None, 3, gives, (Vec::new(), 0));
        }
        for _ in 0..200 {
            self.now = self.now + Span::from_millis(100);
            self.feed(Input::Tick);
            for helper in 0..HELPERS {
                for prefix in ['f', 'd'] {
                    self.feed(Input::Request { host: host_name(prefix, helper), cores: 4 });
                }
            }
            let given = std::mem::take(&mut self.given);
            for Given { host, token, replica, .. } in given {
                let outcome = ReportedOutcome::Output(Digest::of(b"right"));
                self.feed(Input::Report { host, token, replica, outcome, cpu_us: 1, took_us: 1 });
            }
            if self.core.farm().jobs().all(|job| job.phase != JobPhase::Active) {
                return;
            }
        }
        let active = self.core.farm().jobs().find(|job| job.phase == JobPhase::Active);
        let reasons = active.and_then(|job| self.core.explain_job(job.id));
        panic!("work does not end: {reasons:?}");
    }
}

fn host_name(prefix: char, number: u8) -> HostName {
    HostName::new(format!("{prefix}{number}")).expect("a plain name")
}

fn owner_name(number: u8) -> OwnerName {
    OwnerName::new(format!("o{number}")).expect("a plain name")
}

fn kernel_name(number: u8) -> KernelName {
    KernelName::new(format!("k{number}")).expect("a plain name")
}
