//! The modelled cluster: jobs arrive, hosts compute, the core decides.

use std::collections::BTreeMap;

use gleaner_protocol::control::{AbortReason, Fragment};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, Epoch, JobId, LeaseToken, ReplicaId, Span, Time, WorkunitId};
use gleaner_scheduling::{Effect, HostIx, Input, Policy, ReportedOutcome};

use super::host::Host;
use super::limits::DEADLINE_EVENTS_MAX;
use super::workload::DeadlineJob;
use crate::stage::Stage;

/// Hosts and what it costs to use them.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    /// Slots that each host announces, in the order in which hosts join. Each has one core.
    pub(super) slots: Vec<u32>,
    /// How long it takes from the assignment of a task until it computes.
    pub(super) deploy: Span,
    /// Work that a task does again after it was moved or interrupted: what it did since its last
    /// checkpoint; none where it does all of it again.
    pub(super) checkpoint: Option<Span>,
    /// What a task needs beside its work each time that it goes on after it was taken from its host.
    pub(super) resume: Span,
    /// When renders have hosts for themselves.
    pub(super) taken: Vec<Taken>,
    /// Whether all invariants are checked after every event.
    pub(super) is_checked: bool,
}

/// A host that renders have for themselves for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) host: usize,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The policy did not take it.
    Declined,
    /// It was done then.
    Done(Time),
    /// It was taken and never done.
    Lost,
}

/// What a policy made of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// By the jobs' places.
    pub(super) fates: Vec<Fate>,
    /// How often a task was taken from its host.
    pub(super) interruptions: u64,
    /// By the jobs' places: when it was first said that it can no longer be done in time.
    pub(super) told: Vec<Option<Time>>,
    /// By the jobs' places: when renders last took a host from a task that was not due yet.
    pub(super) struck: Vec<Option<Time>>,
    /// Core time of all replicas, and of those that ran beside another of their workunit, in
    /// microseconds.
    pub(super) used_us: u64,
    pub(super) second_us: u64,
}

/// A replica that runs.
#[derive(Debug, Clone, Copy)]
struct Replica {
    workunit: WorkunitId,
    /// Since when it is what it is now.
    since: Time,
    /// Whether another of its workunit ran before it.
    is_second: bool,
}

struct World<'a> {
    jobs: &'a [DeadlineJob],
    cluster: &'a Cluster,
    stage: Stage,
    hosts: Vec<Host>,
    /// Places of jobs by their ids, and tasks that each has left.
    places: BTreeMap<JobId, usize>,
    left: Vec<u32>,
    /// What interrupted tasks have left to do, in thousandths of core-microseconds.
    begun: BTreeMap<WorkunitId, u64>,
    replicas: BTreeMap<(HostIx, LeaseToken), Replica>,
    record: Record,
    effects: Vec<Effect>,
}

/// Runs a workload, in order of arrival, under a policy.
///
/// # Errors
/// An invariant that does not hold, or an end that does not come.
pub(super) fn run(
    cluster: &Cluster,
    jobs: &[DeadlineJob],
    policy: Box<dyn Policy>,
) -> Result<Record, String> {
    let name = policy.name();
    let mut world = World {
        jobs,
        cluster,
        stage: Stage::new(Lane::Deadline, policy),
        hosts: (0..cluster.slots.len()).map(|number| Host::new(number, 1)).collect(),
        places: BTreeMap::new(),
        left: jobs.iter().map(|job| job.tasks).collect(),
        begun: BTreeMap::new(),
        replicas: BTreeMap::new(),
        record: Record {
            fates: vec![Fate::Lost; jobs.len()],
            told: vec![None; jobs.len()],
            struck: vec![None; jobs.len()],
            ..Record::default()
        },
        effects: Vec::new(),
    };
    for (host, slots) in world.hosts.iter().zip(&cluster.slots) {
        world.stage.join(Time::ZERO, host.info(), *slots);
    }
    world.perform(Time::ZERO);
    let openings =
        cluster.taken.iter().flat_map(|of| [(of.from, of.host, 0), (of.until, of.host, 1)]);
    let mut openings: Vec<(Time, usize, u32)> = openings.collect();
    openings.sort_unstable();
    let mut openings = openings.into_iter().peekable();
    let mut arrived = 0;
    for _ in 0..DEADLINE_EVENTS_MAX {
        if cluster.is_checked {
            world.stage.check().map_err(|violation| violation.to_string())?;
        }
        let end = world
            .hosts
            .iter()
            .enumerate()
            .filter_map(|(at, host)| Some((host.next_end()?, at)))
            .min();
        let arrival = jobs.get(arrived).map(|job| job.arrival);
        let tick = world.stage.next_deadline();
        let opening = openings.peek().map(|(time, ..)| *time);
        let ends = end.map(|(time, _)| time);
        let Some(now) = ends.into_iter().chain(opening).chain(arrival).chain(tick).min() else {
            return Ok(world.record);
        };
        if let Some((_, host)) = end.filter(|(time, _)| *time == now) {
            world.finish(now, host);
        } else if let Some((_, host, slots)) = openings.next_if(|(time, ..)| *time == now) {
            world.open(now, host, slots);
        } else if arrival == Some(now) {
            world.submit(now, arrived);
            arrived += 1;
        } else {
            world.stage.tick(now);
        }
        world.perform(now);
        world.hear(now);
    }
    Err(format!("{name} has not done all jobs after {DEADLINE_EVENTS_MAX} events"))
}

impl World<'_> {
    fn submit(&mut self, now: Time, place: usize) {
        let spec = self.jobs[place].spec(self.cluster.checkpoint);
        match self.stage.submit(now, spec) {
            Ok(job) => {
                self.places.insert(job, place);
            }
            Err(_) => self.record.fates[place] = Fate::Declined,
        }
    }

    fn finish(&mut self, now: Time, host: usize) {
        let Some(task) = self.hosts[host].take_done(now) else { return };
        let workunit = task.replica.workunit;
        let place = self.places[&workunit.job];
        self.left[place] -= 1;
        if self.left[place] == 0 {
            self.record.fates[place] = Fate::Done(now);
        }
        self.begun.remove(&workunit);
        let index = self.index_of(host);
        self.note_end(now, index, task.token);
        let name = self.hosts[host].name.clone();
        let output = ReportedOutcome::Output(Digest::from_bytes([0; 32]));
        let cpu_us = self.jobs[place].takes.as_micros();
        self.stage.report(now, name.clone(), task.token, task.replica, output, cpu_us);
        self.stage.ask(now, name, 1);
    }

    fn perform(&mut self, now: Time) {
        let mut effects = std::mem::take(&mut self.effects);
        self.stage.take_effects(&mut effects);
        let mut more = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Lease { host, token, replica, share, .. } => {
                    let left = self.left_of(replica);
                    let workunit = replica.workunit;
                    let is_second = self.replicas.values().any(|of| of.workunit == workunit);
                    let of = Replica { workunit, since: now, is_second };
                    self.replicas.insert((host, token), of);
                    self.hosts[host.get()].start(now, token, replica, left, share.as_permille());
                }
                Effect::Share { host, token, share } => {
                    self.hosts[host.get()].set_share(now, token, share.as_permille());
                }
                Effect::Abort { host, token, reason: AbortReason::Decided } => {
                    self.hosts[host.get()].stop(now, token);
                    self.note_end(now, host, token);
                    let name = self.hosts[host.get()].name.clone();
                    self.stage.ask(now, name, 1);
                    more = true;
                }
                Effect::Abort { host, token, reason } => self.interrupt(now, host, token, reason),
                _ => {}
            }
        }
        self.effects = effects;
        if more {
            self.perform(now);
        }
    }

    /// Renders take a host, or leave it.
    fn open(&mut self, now: Time, host: usize, slots: u32) {
        let name = self.hosts[host].name.clone();
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.stage.tell(now, Input::Fragment { host: name.clone(), fragment });
        if slots > 0 {
            self.stage.ask(now, name, slots);
        }
    }

    /// Notes of which jobs it is said for the first time that they will be late.
    fn hear(&mut self, now: Time) {
        for (job, place) in &self.places {
            let told = &mut self.record.told[*place];
            if told.is_none() && self.stage.is_out_of_reach(*job) {
                *told = Some(now);
            }
        }
    }

    /// The core's number of a host.
    fn index_of(&self, host: usize) -> HostIx {
        let name = &self.hosts[host].name;
        let mut hosts = self.stage.farm().hosts();
        hosts.find(|(_, of)| of.info.name == *name).expect("it has joined").0
    }

    /// A replica ends; another of its workunit is the first from now on.
    fn note_end(&mut self, now: Time, host: HostIx, token: LeaseToken) {
        let Some(ended) = self.replicas.remove(&(host, token)) else { return };
        self.record.count(now, &ended);
        let others = self.replicas.values_mut();
        for other in others.filter(|of| of.workunit == ended.workunit && of.is_second) {
            self.record.count(now, other);
            (other.since, other.is_second) = (now, false);
        }
    }

    /// What a replica has to do when it starts.
    fn left_of(&self, replica: ReplicaId) -> u64 {
        let whole = self.jobs[self.places[&replica.workunit.job]].takes;
        let (left, before) = match self.begun.get(&replica.workunit) {
            Some(left) => (*left, self.cluster.resume),
            None => (whole.as_micros() * 1000, Span::ZERO),
        };
        left + (self.cluster.deploy + before).as_micros() * 1000
    }

    fn interrupt(&mut self, now: Time, host: HostIx, token: LeaseToken, reason: AbortReason) {
        let Some(task) = self.hosts[host.get()].stop(now, token) else { return };
        self.record.interruptions += 1;
        self.note_end(now, host, token);
        let id = task.replica.workunit;
        let place = self.places[&id.job];
        if reason == AbortReason::FragmentClosed && now < self.jobs[place].due {
            self.record.struck[place] = Some(now);
        }
        let whole = self.jobs[place].takes.as_micros() * 1000;
        let step = self.cluster.checkpoint.map_or(0, |span| span.as_micros() * 1000);
        let had = self.begun.get(&id).copied().unwrap_or(whole);
        // What it needed to go on, and had not done yet, is no work.
        let done = whole - task.left.min(had);
        let kept = done.checked_div(step).map_or(0, |steps| steps * step);
        self.begun.insert(id, whole - kept);
    }
}

impl Record {
    fn count(&mut self, now: Time, replica: &Replica) {
        let ran_us = now.since(replica.since).as_micros();
        self.used_us += ran_us;
        self.second_us += if replica.is_second { ran_us } else { 0 };
    }
}
