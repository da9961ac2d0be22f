//! Stories of the four policies, and every input in any order under all of them.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{Fragment, ReleaseReason};
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, JobId, KernelName, LeaseToken,
    Origin, OwnerName, Profile, ReplicaId, Share, Span, Time, Trust,
};
use proptest::prelude::*;

use super::{Gleaner, GleanerConfig};
use crate::baselines::{Eladur, EladurConfig, FcfsBackfill, FcfsBackfillConfig, GridEngine};
use crate::{
    Core, CoreConfig, Effect, Input, Policy, PolicyName, ReportedOutcome, RequestId, SubmitRefusal,
    check_invariants,
};

/// A cluster with what its hosts hold.
struct Cluster {
    core: Core,
    now: Time,
    /// Numbers of the hosts in the order of their first appearance.
    known: Vec<usize>,
    held: Vec<(usize, LeaseToken, ReplicaId, Share)>,
    effects: Vec<Effect>,
}

fn name(host: usize) -> HostName {
    HostName::new(format!("n{host}")).expect("a plain name")
}

impl Cluster {
    fn new(policy: Box<dyn Policy>, hosts: usize) -> Self {
        let config = CoreConfig::background(PolicyName::Plain);
        let core = Core::with_policies(&config, BTreeMap::from([(Lane::Deadline, policy)]));
        let mut cluster = Self {
            core,
            now: Time::ZERO,
            known: Vec::new(),
            held: Vec::new(),
            effects: Vec::new(),
        };
        for host in 0..hosts {
            cluster.join(host, 1);
        }
        cluster
    }

    fn join(&mut self, host: usize, slots: u32) {
        let kernels = BTreeSet::from([KernelName::new("scan").expect("a plain name")]);
        let info = HostInfo {
            name: name(host),
            origin: Origin::Farm,
            owner: None,
            cores: slots,
            memory_mib: 1024,
            kind: None,
            chunk_cache_mib: 0,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.held.retain(|held| held.0 != host);
        if !self.known.contains(&host) {
            self.known.push(host);
        }
        self.tell(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        self.tell(Input::Request { host: name(host), cores: slots });
    }

    fn tell(&mut self, input: Input) {
        self.core.handle(self.now, input, &mut self.effects);
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Lease { host, token, replica, share, .. } => {
                    self.held.push((self.known[host.get()], token, replica, share));
                }
                Effect::Share { token, share, .. } => {
                    let held = self.held.iter_mut().find(|held| held.1 == token);
                    held.expect("a held replica").3 = share;
                }
                Effect::Abort { token, .. } => self.held.retain(|held| held.1 != token),
                _ => {}
            }
        }
        assert_eq!(check_invariants(&self.core), Ok(()));
    }

    fn advance(&mut self, seconds: u64) {
        let until = self.now + Span::from_secs(seconds);
        while let Some(due) = self.core.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.tell(Input::Tick);
            if self.core.next_deadline() == Some(due) {
                break;
            }
        }
        self.now = until;
    }

    /// Whether a job of tasks of so many seconds, due after so many, was taken.
    fn submit(&mut self, tasks: u32, takes_s: u64, due_s: u64) -> Result<JobId, SubmitRefusal> {
        self.submit_on(1, tasks, takes_s, due_s)
    }

    /// The same, each task on so many cores.
    fn submit_on(
        &mut self,
        cores: u32,
        tasks: u32,
        takes_s: u64,
        due_s: u64,
    ) -> Result<JobId, SubmitRefusal> {
        let kind = HostKind::new("node").expect("a plain name");
        let spec = JobSpec {
            name: String::new(),
            owner: OwnerName::new("someone").expect("a plain name"),
            project: None,
            lane: Lane::Deadline,
            task: Task::Kernel(KernelName::new("scan").expect("a plain name")),
            workunits: Workunits::Count(tasks),
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: 100_000,
            profile: Profile {
                run_time_us: BTreeMap::from([(kind, takes_s * 1_000_000)]),
                due_ms: Some(due_s * 1000),
                checkpoint_ms: takes_s.is_multiple_of(2).then_some(1),
                ..Profile::default()
            },
            trust: Trust::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: Share::cores(cores),
            gpus: 0,
        };
        let request = RequestId::new(1);
        let mut effects = Vec::new();
        self.core.handle(self.now, Input::Submit { request, spec: Box::new(spec) }, &mut effects);
        let answer = effects.iter().find_map(|effect| match effect {
            Effect::Submitted { result, .. } => Some(result.clone()),
            _ => None,
        });
        self.effects = effects;
        self.tell(Input::Tick);
        answer.expect("a submission is answered")
    }

    /// Tasks of a job that run now.
    fn running(&self, job: JobId) -> usize {
        self.held.iter().filter(|held| held.2.workunit.job == job).count()
    }

    fn report(&mut self, place: usize) {
        let (host, token, replica, _) = self.held.remove(place);
        let outcome = ReportedOutcome::Output(Digest::of(b"x"));
        self.tell(Input::Report {
            host: name(host),
            token,
            replica,
            outcome,
            cpu_us: 1,
            took_us: 1,
        });
        self.tell(Input::Request { host: name(host), cores: 1 });
    }
}

fn policies() -> [Box<dyn Policy>; 4] {
    [
        Box::new(GridEngine::default()),
        Box::new(FcfsBackfill::new(FcfsBackfillConfig::default())),
        Box::new(Eladur::new(EladurConfig::default())),
        Box::new(Gleaner::new(GleanerConfig::default())),
    ]
}

#[test]
fn the_queue_takes_what_cannot_be_done_and_the_others_do_not() {
    for policy in policies() {
        let is_queue = policy.name() == "grid-engine";
        let mut cluster = Cluster::new(policy, 2);
        assert_eq!(cluster.submit(1, 100, 60).is_ok(), is_queue);
        assert!(cluster.submit(2, 100, 200).is_ok());
    }
}

#[test]
fn a_reservation_lets_a_small_job_by_that_does_not_delay_it() {
    let mut cluster = Cluster::new(Box::new(FcfsBackfill::new(FcfsBackfillConfig::default())), 3);
    let long = cluster.submit(2, 1000, 2000).expect("it fits");
    let wide = cluster.submit(3, 100, 3000).expect("it waits for three cores");
    let small = cluster.submit(1, 500, 900).expect("it is backfilled");
    assert_eq!((cluster.running(long), cluster.running(wide), cluster.running(small)), (2, 0, 1));
    let late = cluster.submit(1, 2000, 2500);
    assert!(late.is_err(), "it would delay the reservation, and be late behind it");
    for _ in 0..3 {
        cluster.report(0);
    }
    assert_eq!(cluster.running(wide), 3, "all ended early");
}

#[test]
fn elastic_shares_let_two_tasks_run_on_one_core() {
    let mut cluster = Cluster::new(Box::new(Eladur::new(EladurConfig::default())), 1);
    let first = cluster.submit(1, 100, 400).expect("a third of the core is enough");
    assert_eq!(cluster.held[0].3, Share::WHOLE, "what is left over is its own");
    let second = cluster.submit(1, 100, 400).expect("another third");
    assert_eq!((cluster.running(first), cluster.running(second)), (1, 1));
    assert!(cluster.held.iter().all(|held| held.3 == Share::permille(500)));
    assert!(cluster.submit(2, 100, 400).is_err(), "more than the core has");
}

#[test]
fn ours_gives_the_core_to_who_can_wait_least() {
    let mut cluster = Cluster::new(Box::new(Gleaner::new(GleanerConfig::default())), 1);
    let patient = cluster.submit(1, 100, 1000).expect("it fits");
    cluster.advance(10);
    let pressing = cluster.submit(1, 100, 110).expect("the patient one can wait");
    assert_eq!((cluster.running(patient), cluster.running(pressing)), (0, 1));
    cluster.advance(100);
    cluster.report(0);
    assert_eq!(cluster.running(patient), 1);
}

#[test]
fn who_overruns_a_prediction_harms_nobody_else() {
    let mut cluster = Cluster::new(Box::new(Gleaner::new(GleanerConfig::default())), 1);
    let wrong = cluster.submit(1, 100, 200).expect("it fits");
    let right = cluster.submit(1, 100, 300).expect("it fits behind");
    cluster.advance(150);
    assert_eq!(cluster.running(wrong), 1, "there is still time for both");
    cluster.advance(48);
    assert_eq!(cluster.running(right), 1, "now there is not");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_inputs_in_any_order_keep_all_invariants(
        which in 0_usize..4,
        steps in prop::collection::vec((0_u8..12, 0_usize..4, 1_u64..200), 1..60),
    ) {
        let policy = policies().into_iter().nth(which).expect("one of four");
        let mut cluster = Cluster::new(policy, 2);
        let mut jobs = Vec::new();
        for (step, at, number) in steps {
            match step {
                0 => jobs.extend(cluster.submit(1 + at as u32, number, number * 2 + 20)),
                1 => cluster.join(at, 1 + (number % 2) as u32),
                2 => {
                    cluster.tell(Input::HostLeft { host: name(at) });
                }
                3 => {
                    let fragment = Fragment { epoch: Epoch::default(), cores: (number % 3) as u32, ..Fragment::default() };
                    cluster.tell(Input::Fragment { host: name(at), fragment });
                }
                4 if !cluster.held.is_empty() => cluster.report(at % cluster.held.len()),
                5 if !cluster.held.is_empty() => {
                    let (host, token, ..) = cluster.held.remove(at % cluster.held.len());
                    let reason = ReleaseReason::Preempted;
                    cluster.tell(Input::Released { host: name(host), token, reason });
                }
                6 if !jobs.is_empty() => {
                    let job = jobs.remove(at % jobs.len());
                    cluster.tell(Input::Cancel { request: RequestId::new(2), job });
                }
                7 | 8 if !cluster.held.is_empty() => {
                    let (host, token, ..) = cluster.held[at % cluster.held.len()];
                    let frozen = step == 7;
                    cluster.tell(Input::Frozen { host: name(host), token, frozen });
                }
                9 if !cluster.held.is_empty() => {
                    let (host, token, replica, _) = cluster.held.remove(at % cluster.held.len());
                    let outcome = ReportedOutcome::Failed("no memory".into());
                    let host = name(host);
                    cluster.tell(Input::Report { host, token, replica, outcome, cpu_us: 1, took_us: 1 });
                }
                10 => jobs.extend(cluster.submit_on(2, 1 + at as u32, number, number * 2 + 20)),
                _ => cluster.advance(number),
            }
        }
    }
}
