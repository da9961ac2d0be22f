//! A day of many owners who always want more than there is: each gets what its weight says.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{Fragment, ReleaseReason};
use gleaner_protocol::{
    Account, Capabilities, Digest, Epoch, HostInfo, HostName, KernelName, LeaseToken, Origin,
    OwnerName, ReplicaId, Span, Time,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Input, PolicyName, ReportedOutcome, RequestId, check_invariants,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const OWNERS: u32 = 20;
const HOSTS: usize = 128;
const DAY_S: u64 = 86_400;

fn owner(number: u32) -> OwnerName {
    OwnerName::new(format!("owner{number:02}")).expect("a plain name")
}

fn weight(number: u32) -> u32 {
    [1, 2, 4][number as usize % 3]
}

fn host(number: usize) -> HostName {
    HostName::new(format!("host{number:03}")).expect("a plain name")
}

/// A replica that runs.
struct Running {
    host: usize,
    replica: ReplicaId,
    owner: u32,
    since: Time,
    /// Whether a render drives it out at its end.
    is_preempted: bool,
}

struct Day {
    core: Core,
    chances: Pcg64,
    /// What ends, by time.
    ends: BTreeMap<(Time, LeaseToken), Running>,
    /// Core-seconds that each owner had.
    used_s: Vec<f64>,
    effects: Vec<Effect>,
}

impl Day {
    fn new(policy: PolicyName) -> Self {
        let weights =
            (0..OWNERS).map(|number| (Account::Owner(owner(number)), weight(number))).collect();
        let config = CoreConfig { weights, ..CoreConfig::background(policy) };
        Self {
            core: Core::new(&config),
            chances: Pcg64::seed_from_u64(7),
            ends: BTreeMap::new(),
            used_s: vec![0.0; OWNERS as usize],
            effects: Vec::new(),
        }
    }

    fn tell(&mut self, now: Time, input: Input) {
        self.core.handle(now, input, &mut self.effects);
        for effect in std::mem::take(&mut self.effects) {
            let Effect::Lease { host, token, replica, .. } = effect else { continue };
            let job = self.core.farm().job(replica.workunit.job).expect("it is known");
            let number: u32 = job.spec.owner.as_str()[5..].parse().expect("a number");
            let host = self.core.farm().host(host).info.name.as_str();
            let host = host[4..].parse().expect("a number");
            // From a second to an hour; some owners have long ones only, others short ones.
            let longest = if number.is_multiple_of(2) { 3_600_f64 } else { 600.0 };
            let takes = longest.powf(self.chances.random::<f64>());
            let until = now + Span::from_micros((takes * 1e6) as u64);
            let is_preempted = self.chances.random::<f64>() < 0.1;
            let running = Running { host, replica, owner: number, since: now, is_preempted };
            self.ends.insert((until, token), running);
        }
    }

    fn join(&mut self, number: usize) {
        let info = HostInfo {
            name: host(number),
            origin: Origin::Farm,
            owner: None,
            cores: 1,
            memory_mib: 1_000,
            capabilities: Capabilities {
                kernels: BTreeSet::from([KernelName::new("x").expect("a plain name")]),
                ..Capabilities::default()
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
        let joined = Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 };
        self.tell(Time::ZERO, joined);
    }

    fn submit(&mut self, number: u32) {
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1000000},"replication":1,
            "lease_s":86400}"#;
        let mut spec: gleaner_protocol::job::JobSpec = serde_json::from_str(json).expect("a job");
        spec.owner = owner(number);
        let request = RequestId::new(number.into());
        self.tell(Time::ZERO, Input::Submit { request, spec: Box::new(spec) });
    }

    /// The first that ends does.
    fn step(&mut self) -> Time {
        let ((now, token), of) = self.ends.pop_first().expect("the farm is full");
        self.used_s[of.owner as usize] += now.since(of.since).as_secs_f64();
        let (host, replica) = (host(of.host), of.replica);
        let over = if of.is_preempted {
            Input::Released { host: host.clone(), token, reason: ReleaseReason::Preempted }
        } else {
            let outcome = ReportedOutcome::Output(Digest::of(b"x"));
            Input::Report { host: host.clone(), token, replica, outcome, cpu_us: 1, took_us: 1 }
        };
        self.tell(now, over);
        self.tell(now, Input::Request { host, cores: 1 });
        now
    }
}

#[test]
fn each_owner_gets_what_its_weight_says_however_long_its_replicas_are() {
    for policy in [PolicyName::FragmentAware, PolicyName::Gleaner] {
        let mut day = Day::new(policy);
        (0..HOSTS).for_each(|number| day.join(number));
        (0..OWNERS).for_each(|number| day.submit(number));
        (0..HOSTS).for_each(|number| {
            day.tell(Time::ZERO, Input::Request { host: host(number), cores: 1 });
        });
        while day.step() < Time::from_micros(DAY_S * 1_000_000) {}
        assert_eq!(check_invariants(&day.core), Ok(()));
        // What runs at the end of the day counts up to then.
        let end = Time::from_micros(DAY_S * 1_000_000);
        for of in day.ends.values() {
            day.used_s[of.owner as usize] += end.since(of.since).as_secs_f64();
        }
        let all: f64 = day.used_s.iter().sum();
        let weights: u32 = (0..OWNERS).map(weight).sum();
        for number in 0..OWNERS {
            let due = all * f64::from(weight(number)) / f64::from(weights);
            let off = day.used_s[number as usize] / due - 1.0;
            assert!(off.abs() <= 0.02, "{policy:?}: owner {number} is off by {off:.4}");
        }
    }
}
