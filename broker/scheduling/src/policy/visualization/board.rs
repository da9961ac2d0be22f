//! What all the published policies share: tasks that are assigned to nodes ahead, and given out
//! in the order of assignment as the nodes come for them.

use std::collections::VecDeque;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{ChunkId, JobId, LeaseToken, Span, Time, WorkunitId};

use super::TestRun;
use super::catalogue::{Catalogue, ChunkIx, SetIx};
use super::tables::Tables;
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, Job, WorkunitIx};
use crate::limits::CHUNKS_MAX;
use crate::policy::Change;
use crate::{Desk, Refusal, Violation};

/// A job as the policies see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) job: JobId,
    pub(crate) set: Option<SetIx>,
    pub(crate) tasks: u32,
    /// The user action that it is a frame of; `None` for batch jobs.
    pub(crate) session: Option<u64>,
}

/// A task of a job: one workunit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) job: JobId,
    pub(crate) index: u32,
    pub(crate) chunk: Option<ChunkIx>,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    task: Task,
    cost: Span,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    task: Task,
    cost: Span,
    token: LeaseToken,
    workunit: WorkunitIx,
}

#[derive(Debug, Default)]
struct Node {
    is_up: bool,
    queue: VecDeque<Queued>,
    /// What the queue is expected to take.
    ahead_us: u64,
    running: Vec<Running>,
}

/// Nodes with their queues, and the tables.
///
/// # Invariants
/// - What a node has ahead is the sum of its queue.
/// - Each waiting or untouched workunit of an active job that was assigned is in one queue, or
///   among those that are to be assigned again.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) tables: Tables,
    catalogue: Catalogue,
    nodes: Vec<Node>,
    /// Tasks that came back from a node, or whose node is gone.
    again: Vec<Task>,
    /// Leases of nodes that are gone.
    lost: Vec<(HostIx, LeaseToken)>,
    /// Nodes that were assigned something since they were looked at.
    touched: Vec<usize>,
    queued: usize,
    /// Whether something came back since [`Board::settle`].
    stirred: bool,
}

impl Board {
    pub(crate) fn new(run: TestRun) -> Self {
        Self {
            tables: Tables::new(run),
            catalogue: Catalogue::default(),
            nodes: Vec::new(),
            again: Vec::new(),
            lost: Vec::new(),
            touched: Vec::new(),
            queued: 0,
            stirred: false,
        }
    }

    /// Whether the tables have room for the chunks of a job.
    pub(crate) fn admit(&self, spec: &JobSpec) -> Result<(), String> {
        may_be_taken(&self.catalogue, spec)
    }

    /// Enters a job that was accepted.
    pub(crate) fn arrive(&mut self, farm: &Farm, job: JobId) -> Option<Arrived> {
        let spec = &farm.job(job).filter(|job| job.has_untouched())?.spec;
        let set = self.catalogue.of_job(spec);
        if let Some(set) = set {
            self.tables.extend(&self.catalogue, self.catalogue.get(set).chunk_bytes);
        }
        Some(Arrived { job, set, tasks: spec.workunits.len(), session: spec.profile.session })
    }

    /// A task of a job.
    pub(crate) fn task(&self, of: &Arrived, index: u32) -> Task {
        let chunk = of.set.map(|set| self.catalogue.chunk(set, index));
        Task { job: of.job, index, chunk }
    }

    /// The nodes that are up, in order.
    pub(crate) fn up(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_up).map(|(at, _)| at)
    }

    /// Whether a node is up.
    pub(crate) fn is_up(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.is_up)
    }

    /// How many nodes were ever seen.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether a node has nothing left to give out.
    pub(crate) fn is_drained(&self, node: usize) -> bool {
        self.nodes[node].queue.is_empty()
    }

    /// Puts a task behind the others of a node.
    pub(crate) fn assign(&mut self, now: Time, task: Task, node: usize) {
        let cost = self.tables.assign(now, task.chunk, node);
        let entry = &mut self.nodes[node];
        entry.queue.push_back(Queued { task, cost });
        entry.ahead_us += cost.as_micros();
        self.queued += 1;
        if entry.queue.len() == 1 {
            self.touched.push(node);
        }
    }

    /// Keeps a task until there is a node for it.
    pub(crate) fn postpone(&mut self, task: Task) {
        self.again.push(task);
    }

    /// Takes note of a change.
    pub(crate) fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::Completed { workunit, host, took } => {
                self.completed(now, host.get(), workunit, took);
                // A host that has had room all the time is not offered again.
                if farm.host(host).fragment.cores > 1 {
                    self.touched.push(host.get());
                }
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                for node in &mut self.nodes {
                    let still = |run: &Running| {
                        run.workunit != workunit
                            || unit.pending.iter().any(|pending| pending.token == run.token)
                    };
                    node.running.retain(still);
                }
                if unit.waiting > 0 {
                    // It may have waited before, and others may have it now.
                    if !self.waits_again(unit.id) {
                        let set =
                            farm.job(unit.id.job).and_then(|job| self.catalogue.of_job(&job.spec));
                        let chunk = set.map(|set| self.catalogue.chunk(set, unit.id.index));
                        self.again.push(Task { job: unit.id.job, index: unit.id.index, chunk });
                    }
                    self.stirred = true;
                }
            }
            Change::WorkunitEnded(workunit) => {
                // Its leases have ended already: the workunit does not name their hosts any more.
                for node in &mut self.nodes {
                    node.running.retain(|run| run.workunit != workunit);
                }
            }
            Change::HostChanged(host) => self.host_changed(now, farm, host),
            Change::CopyChanged { host, chunk, held } => {
                self.copy_changed(host.get(), chunk, held);
            }
            Change::JobAdded(_)
            | Change::JobTouched(_)
            | Change::JobEnded(_)
            | Change::HostForgotten(_)
            | Change::DecidedBefore(_) => {}
        }
    }

    fn completed(&mut self, now: Time, node: usize, workunit: WorkunitIx, took: Option<Span>) {
        let entry = &mut self.nodes[node];
        let Some(at) = entry.running.iter().position(|run| run.workunit == workunit) else {
            return;
        };
        let run = entry.running.swap_remove(at);
        let others: u64 = entry.running.iter().map(|run| run.cost.as_micros()).sum();
        let left = Span::from_micros(entry.ahead_us + others);
        self.tables.correct(now, node, left);
        // A task that was expected to load did; one that took as long did as well.
        let render = self.tables.render();
        if let Some(chunk) = run.task.chunk
            && run.cost > render
            && let Some(took) = took.filter(|took| *took > render)
        {
            self.tables.measured(chunk, took);
        }
    }

    fn host_changed(&mut self, now: Time, farm: &Farm, host: HostIx) {
        let (node, entry) = (host.get(), farm.host(host));
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, Node::default);
        }
        let is_up = entry.connected && entry.fragment.cores > 0;
        // It may take now what came back.
        self.stirred |= !self.again.is_empty();
        if is_up == self.nodes[node].is_up {
            return;
        }
        self.tables.reset_node(now, node, entry.info.chunk_cache_mib.saturating_mul(1 << 20));
        let of = &mut self.nodes[node];
        of.is_up = is_up;
        self.queued -= of.queue.len();
        self.again.extend(of.queue.drain(..).map(|queued| queued.task));
        of.ahead_us = 0;
        let held = of.running.drain(..).map(|run| (host, run.token));
        self.lost.extend(held);
        self.stirred = true;
    }

    /// A node's word is taken where nothing is assigned to it: else the table is ahead of it.
    fn copy_changed(&mut self, node: usize, chunk: ChunkId, held: bool) {
        let Some((set, index)) = self.catalogue.find(chunk) else { return };
        let chunk = self.catalogue.chunk(set, index);
        if self.is_up(node) && self.is_drained(node) && self.nodes[node].running.is_empty() {
            self.tables.set_held(node, chunk, held);
        }
    }

    /// Whether a task that came back waits for a node, or at one.
    fn waits_again(&self, id: WorkunitId) -> bool {
        let queued = self.nodes.iter().flat_map(|node| &node.queue).map(|queued| &queued.task);
        let mut tasks = queued.chain(&self.again);
        tasks.any(|task| (task.job, task.index) == (id.job, id.index))
    }

    /// A plan begins: what came back for want of memory may find some by now.
    pub(crate) fn look_again(&mut self, desk: &Desk<'_>) {
        self.stirred |= !self.again.is_empty() && desk.farm().has_keeping(desk.lane());
    }

    /// Whether something came back that is to be assigned again.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// When it is to be planned without a cause from outside: at once, or never.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        (self.stirred || !self.touched.is_empty()).then_some(Time::ZERO)
    }

    /// Takes the replicas of lost nodes back and assigns what came back to the node that is
    /// expected to be done with it first, of those that may run it.
    pub(crate) fn settle(&mut self, desk: &mut Desk<'_>) {
        self.stirred = false;
        for (host, token) in std::mem::take(&mut self.lost) {
            if let Ok(workunit) = desk.revoke(host, token) {
                let id = desk.farm().workunit(workunit).id;
                let spec = desk.farm().job(id.job).map(|job| &job.spec);
                let set = spec.and_then(|spec| self.catalogue.of_job(spec));
                let chunk = set.map(|set| self.catalogue.chunk(set, id.index));
                self.again.push(Task { job: id.job, index: id.index, chunk });
            }
        }
        for task in std::mem::take(&mut self.again) {
            let farm = desk.farm();
            let id = WorkunitId { job: task.job, index: task.index };
            let may = |node: &usize| may_be_given(farm, id, HostIx::from_index(*node));
            let done = |node: &usize| {
                self.tables.available(*node).max(desk.now())
                    + self.tables.predicted(task.chunk, *node)
            };
            match self.up().filter(may).min_by_key(done) {
                Some(node) => self.assign(desk.now(), task, node),
                None if is_wanted(farm, id) => self.again.push(task),
                None => {}
            }
        }
    }

    /// Gives out what was assigned since the last time.
    pub(crate) fn start_touched(&mut self, desk: &mut Desk<'_>) {
        while let Some(node) = self.touched.pop() {
            self.start(desk, node);
        }
    }

    /// Gives a node what is next on its queue, as far as there is room on it.
    pub(crate) fn start(&mut self, desk: &mut Desk<'_>, node: usize) {
        let host = HostIx::from_index(node);
        while desk.room(host) > 0 {
            let Some(Queued { task, cost }) = self.nodes[node].queue.pop_front() else { return };
            self.nodes[node].ahead_us -= cost.as_micros();
            self.queued -= 1;
            let Task { job, index, .. } = task;
            let open = desk.open_index(job, index);
            let open = open.or_else(|| desk.farm().find(WorkunitId { job, index }));
            // A job that was cancelled, or a workunit that another host claimed, needs nothing.
            let Some(workunit) = open else {
                if desk.farm().is_full() && is_wanted(desk.farm(), WorkunitId { job, index }) {
                    self.again.push(task);
                }
                continue;
            };
            match desk.start(workunit, host) {
                Ok(token) => {
                    let running = Running { task, cost, token, workunit };
                    self.nodes[node].running.push(running);
                }
                Err(Refusal::OneVotePerHost | Refusal::CannotRun | Refusal::OthersFirst) => {
                    self.again.push(task);
                    self.stirred = true;
                }
                Err(Refusal::TooLittleLeft) => self.again.push(task),
                Err(_) => {}
            }
        }
    }

    /// Why an assigned workunit waits.
    pub(crate) fn explain(&self) -> Vec<WaitReason> {
        vec![WaitReason::FirstComeFirstServed { tasks_queued: self.queued + self.again.len() }]
    }

    /// Checks queues and tables; `held` are the tasks that the policy has not assigned yet.
    pub(crate) fn check<'a>(
        &'a self,
        farm: &Farm,
        lane: Lane,
        held: impl Iterator<Item = (JobId, u32)> + 'a,
    ) -> Result<(), Violation> {
        for (at, node) in self.nodes.iter().enumerate() {
            let sum: u64 = node.queue.iter().map(|queued| queued.cost.as_micros()).sum();
            if sum != node.ahead_us {
                let detail = format!("node {at} has {sum} us ahead, not {}", node.ahead_us);
                return Err(Violation::new("queue-keys", detail));
            }
        }
        if !self.tables.is_consistent() {
            return Err(Violation::new("queue-keys", "the sides of Cache differ".into()));
        }
        let queued = self.nodes.iter().flat_map(|node| &node.queue).map(|queued| queued.task);
        let tasks = queued.chain(self.again.iter().copied()).map(|task| (task.job, task.index));
        check_tasks(farm, lane, tasks.chain(held))
    }
}

/// Whether a workunit still needs a replica.
pub(crate) fn is_wanted(farm: &Farm, id: WorkunitId) -> bool {
    match farm.find(id) {
        Some(workunit) => farm.workunit(workunit).waiting > 0,
        None => farm.job(id.job).is_some_and(|job| {
            job.has_untouched() && id.index < job.workunit_count() && job.is_untouched(id.index)
        }),
    }
}

/// Whether a host may be given a task as soon as it has room. Where it may not, another one has to come
/// first, or it has to have waited: either changes a host, and what came back is looked at again then.
pub(crate) fn may_be_given(farm: &Farm, id: WorkunitId, host: HostIx) -> bool {
    let bars = |refusal| {
        matches!(refusal, Refusal::OneVotePerHost | Refusal::CannotRun | Refusal::OthersFirst)
    };
    let open = farm.find(id);
    let job = farm.job(id.job);
    let has_left = |job: &Job| farm.has_left(job.spec.lane, host, job.ability);
    farm.is_able(host, id.job)
        && job.is_some_and(has_left)
        && open.is_none_or(|unit| farm.is_eligible(unit, host).err().is_none_or(|of| !bars(of)))
}

/// Whether a job is one for these policies: they give each task to one node, and tell so many
/// chunks apart.
pub(crate) fn may_be_taken(catalogue: &Catalogue, spec: &JobSpec) -> Result<(), String> {
    let chunks = catalogue.chunk_count() + spec.workunits.len() as usize;
    if spec.replication != 1 {
        Err(format!("replication is {}, of rendering tasks it must be 1", spec.replication))
    } else if spec.profile.reads.is_some() && chunks > CHUNKS_MAX {
        Err(format!("its dataset would make {chunks} chunks of all, more than {CHUNKS_MAX}"))
    } else {
        Ok(())
    }
}

/// `queue-members`: what waits is in one queue.
pub(crate) fn check_tasks(
    farm: &Farm,
    lane: Lane,
    tasks: impl Iterator<Item = (JobId, u32)>,
) -> Result<(), Violation> {
    let mut listed: Vec<_> = tasks
        .map(|(job, index)| WorkunitId { job, index })
        .filter(|id| is_wanted(farm, *id))
        .collect();
    listed.sort_unstable();
    if let Some(twice) = listed.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Violation::new("queue-members", format!("{} is queued twice", twice[0])));
    }
    for job in farm.jobs().filter(|job| job.spec.lane == lane) {
        let ids = (0..job.workunit_count()).map(|index| WorkunitId { job: job.id, index });
        let missing = ids.filter(|id| is_wanted(farm, *id));
        if let Some(id) = missing.into_iter().find(|id| listed.binary_search(id).is_err()) {
            return Err(Violation::new("queue-members", format!("{id} waits in no queue")));
        }
    }
    Ok(())
}
