//! Runs one job under one policy.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane, Task as What, Workunits};
use gleaner_protocol::limits::{LEASE_S_MAX, REPLICAS_MAX};
use gleaner_protocol::{
    Capabilities, ChunkId, DatasetId, Digest, Epoch, HostInfo, HostName, KernelName, LeaseToken,
    Origin, OwnerName, Profile, Reads, ReplicaId, Span, Time, Trust,
};
use gleaner_scheduling::{Effect, HostIx, Input, Policy, ReportedOutcome};

use super::figures::Tally;
use super::network::Network;
use super::servers::Servers;
use crate::scenario::Numbers;
use crate::stage::Stage;

pub(crate) const DATASET: DatasetId = DatasetId::new(1);

/// Most servers with which tests check all invariants after every event.
#[cfg(test)]
const CHECKED_SERVERS_MAX: usize = 20;

/// What one chunk takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// Work, in seconds of the reference processor.
    pub(crate) work_s: f64,
    /// What is sent to the client, in MB.
    pub(crate) output_mb: f64,
    /// Size of the chunk, in MB.
    pub(crate) chunk_mb: f64,
}

/// A replica that runs.
#[derive(Debug, Clone, Copy)]
struct Running {
    token: LeaseToken,
    replica: ReplicaId,
    since: Time,
    /// When its output will have reached the client.
    until: Time,
}

/// One run.
pub(super) struct World<'a> {
    servers: &'a Servers,
    task: Task,
    stage: Stage,
    /// When the output of each server that computes will have reached the client.
    due: BTreeSet<(Time, usize)>,
    network: Network,
    running: Vec<Option<Running>>,
    names: Vec<HostName>,
    by_host: BTreeMap<HostIx, usize>,
    begun: BTreeSet<u32>,
    tally: Tally,
    now: Time,
    ended: Option<Time>,
}

impl<'a> World<'a> {
    /// All servers are connected, hold their copies, and ask; then the job comes.
    pub(super) fn new(servers: &'a Servers, task: Task, policy: Box<dyn Policy>) -> Self {
        let count = servers.list.len();
        let mut world = Self {
            servers,
            task,
            stage: Stage::new(Lane::Dataset, policy),
            due: BTreeSet::new(),
            network: Network::default(),
            running: vec![None; count],
            names: (0..count).map(name).collect(),
            by_host: BTreeMap::new(),
            begun: BTreeSet::new(),
            tally: Tally { useful: vec![(Span::ZERO, 0); count], ..Tally::default() },
            now: Time::ZERO,
            ended: None,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        let mut held: Vec<Vec<ChunkId>> = vec![Vec::new(); self.names.len()];
        for (index, servers) in (0..).zip(&self.servers.copies) {
            for server in servers {
                held[*server].push(ChunkId { dataset: DATASET, index });
            }
        }
        for (server, gained) in held.into_iter().enumerate() {
            let (host, now) = (self.names[server].clone(), self.now);
            let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
            let info = host_info(host.clone());
            self.stage
                .tell(now, Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
            self.stage.tell(now, Input::Copies { host, gained, lost: Vec::new() });
        }
        let hosts = self.stage.farm().hosts().map(|(host, _)| host);
        self.by_host = hosts.zip(0..).collect();
    }

    /// Runs the job to its end.
    ///
    /// # Errors
    /// Its policy declines it, or leaves it undone.
    pub(super) fn run(mut self) -> Result<Numbers, String> {
        let spec = job(self.servers.copies.len(), self.task);
        self.stage.submit(self.now, spec).map_err(|refusal| refusal.to_string())?;
        for server in 0..self.names.len() {
            self.stage.ask(self.now, self.names[server].clone(), 1);
        }
        self.perform();
        while self.ended.is_none() {
            if !self.step() {
                return Err("nothing runs or moves any more, and the job is not done".into());
            }
            #[cfg(test)]
            if self.names.len() <= CHECKED_SERVERS_MAX {
                self.stage.check().map_err(|violation| violation.to_string())?;
            }
        }
        let ended = self.ended.expect("the loop has ended");
        Ok(self.tally.numbers(ended.since(Time::ZERO)))
    }

    /// Takes the next event; `false` where there is none.
    fn step(&mut self) -> bool {
        let delivered = self.due.first().map(|(time, _)| *time);
        let arrived = self.network.next_event(self.servers);
        let deadline = self.stage.next_deadline().map(|due| due.max(self.now));
        let events = [delivered, arrived, deadline];
        let Some(next) = events.into_iter().flatten().min() else { return false };
        self.now = next;
        if delivered == Some(next) {
            let (_, server) = self.due.pop_first().expect("one is due");
            self.deliver(server);
        } else if let Some(arrived) = self.network.advance(next, self.servers) {
            let (gained, lost) = if arrived.held {
                self.tally.moved += 1;
                (vec![arrived.chunk], Vec::new())
            } else {
                self.tally.moves_given_up += 1;
                (Vec::new(), vec![arrived.chunk])
            };
            let host = self.names[arrived.to].clone();
            self.stage.tell(self.now, Input::Copies { host, gained, lost });
        } else if deadline == Some(next) {
            self.stage.tick(self.now);
        }
        self.perform();
        true
    }

    /// An output has reached the client.
    fn deliver(&mut self, server: usize) {
        let running = self.running[server].take();
        let Running { token, replica, since, .. } = running.expect("what is due runs");
        let useful = &mut self.tally.useful[server];
        *useful = (useful.0 + self.now.since(since), useful.1 + 1);
        let digest = Digest::of(&replica.workunit.index.to_le_bytes());
        let cpu_us = self.servers.cpu(server, self.task.work_s).as_micros();
        let outcome = ReportedOutcome::Output(digest);
        let host = self.names[server].clone();
        self.stage.report(self.now, host.clone(), token, replica, outcome, cpu_us);
        self.stage.ask(self.now, host, 1);
    }

    /// Does what the core asks for, until it asks for nothing more.
    fn perform(&mut self) {
        let mut effects = Vec::new();
        loop {
            self.stage.take_effects(&mut effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Lease { host, token, replica, .. } => self.start(host, token, replica),
                    Effect::Abort { host, token, .. } => self.abort(host, token),
                    Effect::Move { chunk, to, patience, .. } => {
                        let farm = self.stage.farm();
                        let from = farm.copies(chunk).map(|host| self.by_host[&host]).collect();
                        let (to, size_mb) = (self.by_host[&to], self.task.chunk_mb);
                        let ends = (from, to);
                        self.network.start(self.now, self.servers, chunk, ends, size_mb, patience);
                    }
                    Effect::JobChanged { job } => {
                        let job = self.stage.farm().job(job);
                        let has_ended = job
                            .is_some_and(|job| job.phase != gleaner_scheduling::JobPhase::Active);
                        if has_ended {
                            self.ended.get_or_insert(self.now);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn start(&mut self, host: HostIx, token: LeaseToken, replica: ReplicaId) {
        let server = self.by_host[&host];
        let chunk = ChunkId { dataset: DATASET, index: replica.workunit.index };
        assert!(self.stage.farm().has_copy(chunk, host), "a workunit runs where its chunk is");
        assert!(self.running[server].is_none(), "a server computes one workunit at a time");
        if !self.begun.insert(replica.workunit.index) {
            self.tally.duplicated += 1;
        }
        let computed = self.servers.computed(server, self.now, self.task.work_s);
        let until = computed + self.servers.sending(server, self.task.output_mb);
        self.running[server] = Some(Running { token, replica, since: self.now, until });
        self.due.insert((until, server));
    }

    fn abort(&mut self, host: HostIx, token: LeaseToken) {
        let server = self.by_host[&host];
        let running = self.running[server].take_if(|running| running.token == token);
        if let Some(Running { until, .. }) = running {
            self.due.remove(&(until, server));
            self.stage.ask(self.now, self.names[server].clone(), 1);
        }
    }
}

fn name(server: usize) -> HostName {
    HostName::new(format!("server-{server:04}")).expect("a plain name")
}

pub(crate) fn kernel() -> KernelName {
    KernelName::new("visualize").expect("a plain name")
}

fn host_info(name: HostName) -> HostInfo {
    HostInfo {
        name,
        origin: Origin::Farm,
        owner: None,
        cores: 1,
        memory_mib: 1024,
        kind: None,
        chunk_cache_mib: 1024,
        capabilities: Capabilities { kernels: [kernel()].into(), ..Capabilities::default() },
    }
}

/// One job: workunit `i` reads chunk `i`, and one output of it is enough.
pub(crate) fn job(chunks: usize, task: Task) -> JobSpec {
    let chunk_bytes = (task.chunk_mb * 1e6) as u64;
    JobSpec {
        name: "all chunks".into(),
        owner: OwnerName::new("anonymous").expect("a plain name"),
        project: None,
        lane: Lane::Dataset,
        task: What::Kernel(kernel()),
        workunits: Workunits::Count(u32::try_from(chunks).expect("a parameter's range")),
        replication: 1,
        quorum: Some(1),
        max_replicas: Some(REPLICAS_MAX),
        lease_s: LEASE_S_MAX,
        trust: Trust::Fixed,
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
        profile: Profile {
            reads: Some(Reads { dataset: DATASET, chunk_bytes, first: 0 }),
            ..Profile::default()
        },
    }
}
