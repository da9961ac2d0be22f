//! The modelled cluster: jobs arrive, hosts compute, the core decides.

use std::collections::BTreeMap;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, JobId, LeaseToken, ReplicaId, Span, Time, WorkunitId};
use gleaner_scheduling::{Effect, HostIx, Policy, ReportedOutcome};

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
    /// checkpoint.
    pub(super) checkpoint: Span,
    /// Whether all invariants are checked after every event.
    pub(super) is_checked: bool,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// By the jobs' places.
    pub(super) fates: Vec<Fate>,
    /// How often a task was taken from its host.
    pub(super) interruptions: u64,
}

struct World<'a> {
    jobs: &'a [DeadlineJob],
    cluster: &'a Cluster,
    stage: Stage,
    hosts: Vec<Host>,
    /// Places of jobs by their ids, and tasks that each has left.
    places: BTreeMap<JobId, usize>,
    left: Vec<u32>,
    fates: Vec<Fate>,
    /// What interrupted tasks have left to do, in thousandths of core-microseconds.
    begun: BTreeMap<WorkunitId, u64>,
    interruptions: u64,
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
        fates: vec![Fate::Lost; jobs.len()],
        begun: BTreeMap::new(),
        interruptions: 0,
        effects: Vec::new(),
    };
    for (host, slots) in world.hosts.iter().zip(&cluster.slots) {
        world.stage.join(Time::ZERO, host.info(), *slots);
    }
    world.perform(Time::ZERO);
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
        let Some(now) = end.map(|(time, _)| time).into_iter().chain(arrival).chain(tick).min()
        else {
            return Ok(Record { fates: world.fates, interruptions: world.interruptions });
        };
        if let Some((_, host)) = end.filter(|(time, _)| *time == now) {
            world.finish(now, host);
        } else if arrival == Some(now) {
            world.submit(now, arrived);
            arrived += 1;
        } else {
            world.stage.tick(now);
        }
        world.perform(now);
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
            Err(_) => self.fates[place] = Fate::Declined,
        }
    }

    fn finish(&mut self, now: Time, host: usize) {
        let Some(task) = self.hosts[host].take_done(now) else { return };
        let workunit = task.replica.workunit;
        let place = self.places[&workunit.job];
        self.left[place] -= 1;
        if self.left[place] == 0 {
            self.fates[place] = Fate::Done(now);
        }
        self.begun.remove(&workunit);
        let name = self.hosts[host].name.clone();
        let output = ReportedOutcome::Output(Digest::from_bytes([0; 32]));
        let cpu_us = self.jobs[place].takes.as_micros();
        self.stage.report(now, name.clone(), task.token, task.replica, output, cpu_us);
        self.stage.ask(now, name, 1);
    }

    fn perform(&mut self, now: Time) {
        let mut effects = std::mem::take(&mut self.effects);
        self.stage.take_effects(&mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Lease { host, token, replica, share, .. } => {
                    let left = self.left_of(replica);
                    self.hosts[host.get()].start(now, token, replica, left, share.as_permille());
                }
                Effect::Share { host, token, share } => {
                    self.hosts[host.get()].set_share(now, token, share.as_permille());
                }
                Effect::Abort { host, token, .. } => self.interrupt(now, host, token),
                _ => {}
            }
        }
        self.effects = effects;
    }

    /// What a replica has to do when it starts.
    fn left_of(&self, replica: ReplicaId) -> u64 {
        let whole = || self.jobs[self.places[&replica.workunit.job]].takes.as_micros() * 1000;
        let left = self.begun.get(&replica.workunit).copied().unwrap_or_else(whole);
        left + self.cluster.deploy.as_micros() * 1000
    }

    fn interrupt(&mut self, now: Time, host: HostIx, token: LeaseToken) {
        let Some(task) = self.hosts[host.get()].stop(now, token) else { return };
        self.interruptions += 1;
        let id = task.replica.workunit;
        let whole = self.jobs[self.places[&id.job]].takes.as_micros() * 1000;
        let step = self.cluster.checkpoint.as_micros() * 1000;
        let done = whole.saturating_sub(task.left);
        let kept = done.checked_div(step).map_or(0, |steps| steps * step);
        self.begun.insert(id, whole - kept);
    }
}
