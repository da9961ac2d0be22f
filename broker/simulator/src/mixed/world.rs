//! Machines that run a batch as the scheduling core has it.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, JobId, KernelName, LeaseToken,
    Origin, OwnerName, Profile, ReplicaId, Time,
};
use gleaner_scheduling::mixed::{Batch, BatchConfig};
use gleaner_scheduling::{Effect, Input, ReportedOutcome};

use super::workload::Workload;
use crate::calendar::Calendar;
use crate::stage::Stage;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// When the last job was done, in microseconds.
    pub(super) makespan_us: u64,
    /// How long each machine worked, in microseconds.
    pub(super) busy_us: Vec<u64>,
}

/// A replica that runs.
struct Running {
    machine: usize,
    token: LeaseToken,
    replica: ReplicaId,
    time_us: u64,
}

struct World<'a> {
    workload: &'a Workload,
    stage: Stage,
    hosts: Vec<HostName>,
    /// Which job of the workload each job is.
    jobs: BTreeMap<JobId, usize>,
    calendar: Calendar<Running>,
    record: Record,
    effects: Vec<Effect>,
    /// Whether all invariants are checked after every event.
    is_checked: bool,
}

/// Submits the jobs in this order, lets all machines ask, and runs until all is done.
///
/// # Errors
/// A job that is refused or never done, or an invariant that does not hold.
pub(super) fn run(
    workload: &Workload,
    order: &[usize],
    config: BatchConfig,
    is_checked: bool,
) -> Result<Record, String> {
    let machines = workload.machines();
    let hosts = (0..machines).map(|at| HostName::new(format!("machine-{at}")));
    let mut world = World {
        workload,
        stage: Stage::new(Lane::Batch, Box::new(Batch::new(config))),
        hosts: hosts.map(|host| host.expect("a plain name")).collect(),
        jobs: BTreeMap::new(),
        calendar: Calendar::new(),
        record: Record { makespan_us: 0, busy_us: vec![0; machines] },
        effects: Vec::new(),
        is_checked,
    };
    world.begin(order)?;
    let mut done = 0;
    while let Some((now, running)) = world.calendar.pop() {
        world.finish(now, &running)?;
        done += 1;
    }
    if done == workload.jobs() {
        Ok(world.record)
    } else {
        Err(format!("{} has done {done} of {} jobs", config.rule.as_str(), workload.jobs()))
    }
}

impl World<'_> {
    /// All machines are there and all jobs known before the first machine asks: one batch.
    fn begin(&mut self, order: &[usize]) -> Result<(), String> {
        for (host, kind) in self.hosts.iter().zip(&self.workload.kinds) {
            let fragment = Fragment { epoch: Epoch::default(), slots: 1 };
            let info = host_info(host.clone(), kind);
            self.stage.tell(
                Time::ZERO,
                Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 },
            );
        }
        for job in order {
            let spec = self.spec(*job);
            let id = self.stage.submit(Time::ZERO, spec).map_err(|refusal| refusal.to_string())?;
            self.jobs.insert(id, *job);
        }
        for host in self.hosts.clone() {
            self.stage.ask(Time::ZERO, host, 1);
            self.perform(Time::ZERO)?;
        }
        Ok(())
    }

    fn finish(&mut self, now: Time, running: &Running) -> Result<(), String> {
        let Running { machine, token, replica, time_us } = *running;
        self.record.busy_us[machine] += time_us;
        self.record.makespan_us = self.record.makespan_us.max(now.as_micros());
        let host = self.hosts[machine].clone();
        let output = ReportedOutcome::Output(Digest::from_bytes([0; 32]));
        self.stage.report(now, host.clone(), token, replica, output, time_us);
        self.stage.ask(now, host, 1);
        self.perform(now)
    }

    fn perform(&mut self, now: Time) -> Result<(), String> {
        let mut effects = std::mem::take(&mut self.effects);
        self.stage.take_effects(&mut effects);
        for effect in &effects {
            if let Effect::Lease { host, token, replica, .. } = *effect {
                let machine = host.get();
                let job = self.jobs[&replica.workunit.job];
                let time_us = self.workload.time_us(job, machine);
                let end = Time::from_micros(now.as_micros() + time_us);
                self.calendar.enter(end, Running { machine, token, replica, time_us });
            }
        }
        self.effects = effects;
        if self.is_checked {
            self.stage.check().map_err(|violation| violation.to_string())?;
        }
        Ok(())
    }

    fn spec(&self, job: usize) -> JobSpec {
        let mut run_time_us = BTreeMap::new();
        for (machine, kind) in self.workload.kinds.iter().enumerate() {
            let kind = HostKind::new(kind.as_str()).expect("a plain name");
            run_time_us.insert(kind, self.workload.time_us(job, machine));
        }
        let longest = run_time_us.values().max().copied().unwrap_or(0);
        JobSpec {
            name: String::new(),
            owner: OwnerName::new("ann").expect("a plain name"),
            lane: Lane::Batch,
            task: Task::Kernel(kernel()),
            workunits: Workunits::Count(1),
            replication: 1,
            quorum: None,
            max_replicas: None,
            // A lease outlives the longest run of its job.
            lease_s: longest / 1_000_000 + 1,
            trust: Default::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            profile: Profile { run_time_us, ..Profile::default() },
        }
    }
}

fn kernel() -> KernelName {
    KernelName::new("pca").expect("a plain name")
}

fn host_info(name: HostName, kind: &str) -> HostInfo {
    HostInfo {
        name,
        origin: Origin::Farm,
        owner: None,
        cores: 1,
        memory_mib: 16_384,
        kind: Some(HostKind::new(kind).expect("a plain name")),
        chunk_cache_mib: 0,
        capabilities: Capabilities {
            kernels: BTreeSet::from([kernel()]),
            ..Capabilities::default()
        },
    }
}
