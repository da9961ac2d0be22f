//! Machines that run a batch as the scheduling core has it.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, Epoch, Feature, HostInfo, HostKind, HostName, JobId, KernelName,
    LeaseToken, Origin, OwnerName, Profile, ReplicaId, Time,
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
    /// From when a job came to when it was done, on average over all jobs, in microseconds.
    pub(super) flow_us: u64,
    /// How long each machine worked, in microseconds.
    pub(super) busy_us: Vec<u64>,
    /// Most replicas that ran at once of one application on one kind of machine on which none of its
    /// jobs was done yet.
    pub(super) untried_at_once: usize,
}

enum Event {
    /// A job comes.
    Comes(usize),
    /// A replica is done.
    Done(Running),
}

/// A replica that runs.
struct Running {
    job: usize,
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
    calendar: Calendar<Event>,
    /// By application and kind of machine: how many run while none is done. None where one is.
    untried: BTreeMap<(usize, String), Option<usize>>,
    record: Record,
    effects: Vec<Effect>,
    /// Whether all invariants are checked after every event.
    is_checked: bool,
}

/// Submits the jobs in this order, each when it comes, lets all machines ask, and runs until all is
/// done.
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
        untried: BTreeMap::new(),
        record: Record {
            makespan_us: 0,
            flow_us: 0,
            busy_us: vec![0; machines],
            untried_at_once: 0,
        },
        effects: Vec::new(),
        is_checked,
    };
    world.begin(order)?;
    let (mut done, mut flow_us) = (0, 0);
    while let Some((now, event)) = world.calendar.pop() {
        match event {
            Event::Comes(job) => {
                world.submit(now, job)?;
                world.perform(now)?;
            }
            Event::Done(running) => {
                world.finish(now, &running)?;
                flow_us += now.as_micros() - workload.comes_us[running.job];
                done += 1;
            }
        }
    }
    if done == workload.jobs() {
        world.record.flow_us = flow_us / done.max(1) as u64;
        Ok(world.record)
    } else {
        Err(format!("{} has done {done} of {} jobs", config.rule.as_str(), workload.jobs()))
    }
}

impl World<'_> {
    /// All machines are there, and all jobs known that come at the beginning, before the first machine
    /// asks.
    fn begin(&mut self, order: &[usize]) -> Result<(), String> {
        let applications = self.workload.work.iter().map(|(application, _)| *application);
        let kernels: BTreeSet<KernelName> = applications.map(kernel).collect();
        for (host, kind) in self.hosts.iter().zip(&self.workload.kinds) {
            let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
            let info = host_info(host.clone(), kind, kernels.clone());
            self.stage.tell(
                Time::ZERO,
                Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 },
            );
        }
        for job in order {
            match self.workload.comes_us[*job] {
                0 => self.submit(Time::ZERO, *job)?,
                later => self.calendar.enter(Time::from_micros(later), Event::Comes(*job)),
            }
        }
        for host in self.hosts.clone() {
            self.stage.ask(Time::ZERO, host, 1);
            self.perform(Time::ZERO)?;
        }
        Ok(())
    }

    fn submit(&mut self, now: Time, job: usize) -> Result<(), String> {
        let id = self.stage.submit(now, self.spec(job)).map_err(|refusal| refusal.to_string())?;
        self.jobs.insert(id, job);
        Ok(())
    }

    fn finish(&mut self, now: Time, running: &Running) -> Result<(), String> {
        let Running { job, machine, token, replica, time_us } = *running;
        self.untried.insert(self.entry(job, machine), None);
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
                let running = Running { job, machine, token, replica, time_us };
                self.calendar.enter(end, Event::Done(running));
                if let Some(run) = self.untried.entry(self.entry(job, machine)).or_insert(Some(0)) {
                    *run += 1;
                    self.record.untried_at_once = self.record.untried_at_once.max(*run);
                }
            }
        }
        self.effects = effects;
        if self.is_checked {
            self.stage.check().map_err(|violation| violation.to_string())?;
        }
        Ok(())
    }

    /// A job's application, and a machine's kind.
    fn entry(&self, job: usize, machine: usize) -> (usize, String) {
        (self.workload.work[job].0, self.workload.kinds[machine].clone())
    }

    fn spec(&self, job: usize) -> JobSpec {
        let (mut run_time_us, mut longest) = (BTreeMap::new(), 0);
        for (machine, kind) in self.workload.kinds.iter().enumerate() {
            let kind = HostKind::new(kind.as_str()).expect("a plain name");
            run_time_us.extend(self.workload.said_us(job, machine).map(|said| (kind, said)));
            longest = longest.max(self.workload.time_us(job, machine));
        }
        let (application, size) = self.workload.work[job];
        let size = Feature::try_from(size as f64).expect("a finite number");
        let features = BTreeMap::from([("size".to_owned(), size)]);
        JobSpec {
            name: String::new(),
            owner: OwnerName::new("ann").expect("a plain name"),
            project: None,
            lane: Lane::Batch,
            task: Task::Kernel(kernel(application)),
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
            gpus: 0,
            profile: Profile { run_time_us, features, ..Profile::default() },
        }
    }
}

fn kernel(application: usize) -> KernelName {
    KernelName::new(format!("pca-{application}")).expect("a plain name")
}

fn host_info(name: HostName, kind: &str, kernels: BTreeSet<KernelName>) -> HostInfo {
    HostInfo {
        name,
        origin: Origin::Farm,
        owner: None,
        cores: 1,
        memory_mib: 16_384,
        kind: Some(HostKind::new(kind).expect("a plain name")),
        chunk_cache_mib: 0,
        capabilities: Capabilities { kernels, ..Capabilities::default() },
    }
}
