//! Our scheduler.

mod loads;
mod node;
mod patient;
mod set;
mod teams;

use std::collections::{BTreeSet, VecDeque};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{ChunkId, JobId, LeaseToken, Span, Time, WorkunitId};
use rustc_hash::FxHashMap;

use self::node::{Due, Node, Running};
use self::set::{Phase, Set, Waiting};
use self::teams::Teams;
use super::TestRun;
use super::board::{Arrived, check_tasks, is_wanted, may_be_given, may_be_taken};
use super::catalogue::{Catalogue, SetIx};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx};
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Refusal, Violation};

/// Loads a dataset once, onto a team of nodes, and has all its frames rendered there.
///
/// - A load holds up its nodes for hundreds of frames, so it is made when those nodes have no
///   more than a few frames left to render, and for the dataset that most frames wait for. Where
///   nodes load while they render, it is made as soon as they load nothing else.
/// - A frame is due when it was asked for. An action that had to wait for its dataset is late by
///   that for all its frames, but for the time for which the load held up all others, too; one that
///   finds a backlog is late by that. So it does not push aside those that are in time, and goes on
///   at the rate at which it begins.
/// - A dataset whose team is behind by more than a load takes is loaded by an idle team, where that
///   renders its frames sooner and has fewer viewers with it than its own has.
/// - Batch jobs are rendered in the gaps, first those whose dataset is there; another one is
///   loaded for them where nobody has used a team for half the time of a load, and no frame
///   waits for one.
///
/// Each decision takes constant time: frames go to the nodes that have their chunks without a
/// search; a search is made for each load, of which there is one in thousands of tasks.
///
/// # Invariants
/// - Each task that waits is in one place: its node's queues, or its dataset's.
/// - The frames of a dataset that is here are at its nodes; those that came before it moved are where it
///   was.
pub struct Gleaner {
    run: TestRun,
    catalogue: Catalogue,
    sets: Vec<Set>,
    nodes: Vec<Node>,
    teams: Teams,
    sessions: FxHashMap<u64, Session>,
    /// Datasets that are away and that someone waits for, the first one for longest.
    away: Vec<SetIx>,
    /// Tasks that came back, or that read nothing, to be put onto a node.
    again: Vec<WorkunitId>,
    /// Tasks of batch jobs that read no dataset, in order.
    patient: VecDeque<WorkunitId>,
    /// Leases of nodes that are gone.
    lost: Vec<(HostIx, LeaseToken)>,
    /// Nodes that were given something since they were looked at.
    touched: Vec<usize>,
    /// Whether something came back or a node came or went.
    stirred: bool,
    /// Nodes with something to start and no room for it, though the lane does not have all their
    /// slots: no host asks anew when others leave more.
    starved: BTreeSet<usize>,
    /// Whether there may be a dataset to load and a team for it.
    may_load: bool,
    /// When to look again for batch jobs to load for.
    retry: Option<Time>,
}

/// A user action with frames that are not done.
#[derive(Debug, Clone, Copy, Default)]
struct Session {
    open: u32,
    /// By how much its frames are late from the start.
    late: Span,
}

/// Most frames that a node may have left for a load to hold up: fewer than come in the time in
/// which a load would be reconsidered.
const FEW_FRAMES: usize = 8;

impl Gleaner {
    /// A fresh one.
    #[must_use]
    pub fn new(run: TestRun) -> Self {
        Self {
            run,
            catalogue: Catalogue::default(),
            sets: Vec::new(),
            nodes: Vec::new(),
            teams: Teams::default(),
            sessions: FxHashMap::default(),
            away: Vec::new(),
            again: Vec::new(),
            patient: VecDeque::new(),
            lost: Vec::new(),
            touched: Vec::new(),
            stirred: false,
            starved: BTreeSet::new(),
            may_load: false,
            retry: None,
        }
    }

    fn arrive(&mut self, now: Time, farm: &Farm, job: JobId) {
        let Some(job) = farm.job(job).filter(|job| job.has_untouched()) else { return };
        let (session, tasks) = (job.spec.profile.session, job.spec.workunits.len());
        let Some(set) = self.catalogue.of_job(&job.spec) else {
            let all = (0..tasks).map(|index| WorkunitId { job: job.id, index });
            match session {
                Some(_) => self.again.extend(all),
                None => {
                    self.patient.extend(all);
                    self.touch_all();
                }
            }
            self.stirred = true;
            return;
        };
        if self.sets.len() <= set.get() {
            self.sets.push(Set::new(self.catalogue.get(set).chunks));
        }
        let of = Arrived { job: job.id, set: Some(set), tasks, session };
        match session {
            Some(session) => self.frame_came(now, farm, set, of, session),
            None => self.batch_came(set, of),
        }
    }

    /// All nodes are looked at again.
    fn touch_all(&mut self) {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up);
        self.touched.extend(up.map(|(at, _)| at));
    }

    fn frame_came(&mut self, now: Time, farm: &Farm, set: SetIx, of: Arrived, session: u64) {
        let entry = &mut self.sets[set.get()];
        entry.asked_by(now, session);
        if entry.phase == Phase::Here && (entry.held as usize) < entry.home.len() {
            // It came for batch jobs that did not need all of it.
            entry.phase = Phase::Away;
            if entry.batch_waiting() > 0 {
                self.away.push(set);
            }
        }
        let waiting = Waiting { of, asked: now };
        if entry.phase == Phase::Here {
            match self.better_team(now, set) {
                Some(team) => {
                    self.sessions.entry(session).or_default().open += 1;
                    self.sets[set.get()].waiting.push_back(waiting);
                    self.load(now, farm, set, team);
                }
                None => self.render(waiting),
            }
        } else {
            self.sessions.entry(session).or_default().open += 1;
            if !entry.is_waited_for() && entry.batch_waiting() == 0 && entry.phase == Phase::Away {
                self.away.push(set);
            }
            entry.waiting.push_back(waiting);
            self.may_load |= entry.phase == Phase::Away;
        }
    }

    fn batch_came(&mut self, set: SetIx, of: Arrived) {
        let entry = &mut self.sets[set.get()];
        let first = !entry.is_waited_for() && entry.batch_waiting() == 0;
        if first && entry.phase == Phase::Away {
            self.away.push(set);
            self.may_load = true;
        }
        let is_here = entry.phase == Phase::Here;
        for index in 0..of.tasks {
            let at = index as usize;
            let queue = &mut entry.batch[at];
            queue.push_back(of.job);
            if is_here && queue.len() == 1 {
                let node = entry.home[at];
                self.nodes[node].batch.push_back((set, index));
                self.touched.push(node);
            }
        }
    }

    /// Sends a frame of a dataset that is here to its nodes.
    fn render(&mut self, frame: Waiting) {
        let session = frame.of.session.expect("a frame has a session");
        let begins = self.sessions.get(&session).is_none_or(|session| session.open == 0);
        let backlog = begins.then(|| self.backlog(frame.of.set.expect("a frame has a dataset")));
        let session = self.sessions.entry(session).or_default();
        session.late = backlog.unwrap_or(session.late);
        session.open += 1;
        let at = frame.asked + session.late;
        self.send(frame.of, at);
    }

    fn send(&mut self, of: Arrived, at: Time) {
        let set = of.set.expect("a frame has a dataset");
        for index in 0..of.tasks {
            let node = self.sets[set.get()].home[index as usize];
            let entry = &mut self.nodes[node];
            entry.push_frame(Due { at, job: of.job, index });
            if entry.running.len() < entry.slots as usize {
                self.touched.push(node);
            }
            if entry.frame_count() > FEW_FRAMES && !entry.is_busy {
                self.weigh(node);
            }
        }
    }

    /// Counts a node as busy where a load would hold up more than a few frames, or another load.
    fn weigh(&mut self, node: usize) {
        let entry = &mut self.nodes[node];
        let is_rendering = !entry.overlaps() && entry.frame_count() > FEW_FRAMES;
        let is_busy = is_rendering || !entry.loads.is_empty() || entry.is_loading();
        if entry.is_busy != is_busy {
            entry.is_busy = is_busy;
            self.may_load |= self.teams.turn(node, is_busy);
        }
    }

    /// All chunks of a dataset are there: its frames can be rendered.
    fn came(&mut self, now: Time, set: SetIx) {
        let entry = &mut self.sets[set.get()];
        (entry.phase, entry.coming) = (Phase::Here, 0);
        let waiting = std::mem::take(&mut entry.waiting);
        // A load holds up all others of its nodes, but where nodes load while they render.
        let holds_up = entry.home.iter().all(|node| !self.nodes[*node].overlaps());
        let load = self.run.load(self.catalogue.get(set).chunk_bytes);
        let held_up = if holds_up { load } else { Span::ZERO };
        for (index, queue) in (0..).zip(&entry.batch) {
            if !queue.is_empty() {
                let node = entry.home[index as usize];
                self.nodes[node].batch.push_back((set, index));
                self.touched.push(node);
            }
        }
        for frame in waiting {
            let session = frame.of.session.expect("a frame has a session");
            let session = self.sessions.entry(session).or_default();
            if session.late == Span::ZERO {
                session.late = now.since(frame.asked + held_up);
            }
            let at = frame.asked + session.late;
            self.send(frame.of, at);
        }
    }

    /// A chunk came to a node, or went.
    fn copy_changed(&mut self, now: Time, farm: &Farm, node: usize, chunk: ChunkId, held: bool) {
        let Some((set, index)) = self.catalogue.find(chunk) else { return };
        let Some(entry) = self.sets.get_mut(set.get()) else { return };
        if entry.home.get(index as usize) != Some(&node) {
            return;
        }
        debug_assert_eq!(farm.has_copy(chunk, HostIx::from_index(node)), held);
        if held {
            entry.held += 1;
            entry.coming = entry.coming.saturating_sub(1);
            if entry.coming == 0 && entry.phase == Phase::Coming {
                self.came(now, set);
            }
        } else {
            entry.held = entry.held.saturating_sub(1);
            if entry.phase != Phase::Away {
                entry.phase = Phase::Away;
                if entry.is_waited_for() || entry.batch_waiting() > 0 {
                    self.away.push(set);
                    self.may_load = true;
                }
            }
        }
    }

    fn host_changed(&mut self, farm: &Farm, host: HostIx) {
        let (node, entry) = (host.get(), farm.host(host));
        // It may take now what came back.
        self.stirred |= !self.again.is_empty();
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, Node::default);
        }
        let is_up = entry.connected && entry.fragment.cores > 0;
        let of = &mut self.nodes[node];
        let has_changed = std::mem::replace(&mut of.slots, entry.fragment.cores) != of.slots;
        if of.is_up == is_up {
            if is_up && has_changed {
                self.touched.push(node);
            }
            return;
        }
        let lost = std::mem::take(of);
        let of = &mut self.nodes[node];
        (of.is_up, of.slots) = (is_up, entry.fragment.cores);
        let tasks = lost.tasks();
        self.again.extend(tasks.map(|due| WorkunitId { job: due.job, index: due.index }));
        self.lost.extend(lost.running.iter().map(|run| (host, run.token)));
        for at in 0..self.sets.len() {
            let set = &mut self.sets[at];
            if !is_up && set.home.contains(&node) {
                let was_away = set.phase == Phase::Away;
                set.home.clear();
                (set.phase, set.held) = (Phase::Away, 0);
                if !was_away && (set.is_waited_for() || set.batch_waiting() > 0) {
                    self.away.push(SetIx::from_index(at));
                }
            }
        }
        self.form_teams(farm);
        (self.stirred, self.may_load) = (true, true);
    }

    /// Whether a task that came back waits for a node, or at one.
    fn waits_again(&self, id: WorkunitId) -> bool {
        let mut tasks = self.nodes.iter().flat_map(Node::tasks);
        self.again.contains(&id)
            || tasks.any(|due| (due.job, due.index) == (id.job, id.index))
            || self.patient.contains(&id)
    }

    /// Forms the teams anew of the nodes that give memory to chunks; of all where none does.
    fn form_teams(&mut self, farm: &Farm) {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up).map(|(at, _)| at);
        let up: Vec<usize> = up.collect();
        let keeps = |node: &&usize| farm.host(HostIx::from_index(**node)).info.chunk_cache_mib > 0;
        let keepers: Vec<usize> = up.iter().filter(keeps).copied().collect();
        self.teams.form(if keepers.is_empty() { up } else { keepers });
    }

    /// Puts what came back onto nodes: to the one that has the chunk, or else to the same one for
    /// all tasks of a chunk.
    fn settle(&mut self, desk: &mut Desk<'_>) {
        self.stirred = false;
        for (host, token) in std::mem::take(&mut self.lost) {
            if let Ok(workunit) = desk.revoke(host, token) {
                self.again.push(desk.farm().workunit(workunit).id);
            }
        }
        for id in std::mem::take(&mut self.again) {
            let farm = desk.farm();
            if !is_wanted(farm, id) {
                continue;
            }
            let spec = farm.job(id.job).map(|job| &job.spec);
            let set = spec.and_then(|spec| self.catalogue.of_job(spec));
            if set.is_none() && spec.is_some_and(|spec| spec.profile.session.is_none()) {
                self.patient.push_front(id);
                self.touch_all();
                continue;
            }
            let set = set.and_then(|set| self.sets.get(set.get()).map(|entry| (set, entry)));
            let home = set.and_then(|(_, entry)| entry.home.get(id.index as usize).copied());
            let may = |node: &usize| may_be_given(farm, id, HostIx::from_index(*node));
            let up = self.teams.up();
            let salt = set.map_or(id.job.get() as usize, |(set, _)| set.get());
            let first = (salt + id.index as usize) % up.len().max(1);
            let others = up[first..].iter().chain(&up[..first]).copied();
            // Those that keep no chunks come last.
            let all = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up);
            match home.into_iter().chain(others).chain(all).find(may) {
                Some(node) => {
                    let due = Due { at: Time::ZERO, job: id.job, index: id.index };
                    self.nodes[node].push_frame(due);
                    self.touched.push(node);
                    self.weigh(node);
                }
                None => self.again.push(id),
            }
        }
    }

    /// Gives a node what it is to do next, as far as there is room on it.
    fn start(&mut self, desk: &mut Desk<'_>, node: usize) {
        let host = HostIx::from_index(node);
        while self.nodes[node].is_up {
            if desk.room(host) == 0 && !self.gives_way(desk, node) {
                break;
            }
            let entry = &mut self.nodes[node];
            let (due, loads) = if entry.may_load() {
                (entry.loads.pop_front(), true)
            } else if entry.may_render() {
                (entry.pop_frame(), false)
            } else {
                (None, false)
            };
            if due.is_some() {
                entry.last_frame = Some(desk.now());
            }
            let may_render = entry.may_render();
            let due = due.or_else(|| may_render.then(|| self.pop_batch(node)).flatten());
            match due {
                Some(due) => self.start_task(desk, node, due, loads),
                None if self.start_patient(desk, node) => {}
                None => break,
            }
        }
        if self.nodes[node].is_starved() {
            self.starved.insert(node);
        }
        self.weigh(node);
    }

    fn start_task(&mut self, desk: &mut Desk<'_>, node: usize, due: Due, loads: bool) {
        let host = HostIx::from_index(node);
        let Due { job, index, .. } = due;
        let open = desk.open_index(job, index);
        let open = open.or_else(|| desk.farm().find(WorkunitId { job, index }));
        // A job that was cancelled, or a workunit that another host claimed, needs nothing.
        let Some(workunit) = open else {
            if desk.farm().is_full() && is_wanted(desk.farm(), WorkunitId { job, index }) {
                self.again.push(WorkunitId { job, index });
            }
            return;
        };
        match desk.start(workunit, host) {
            Ok(token) => {
                let is_patient = false;
                self.nodes[node].running.push(Running { workunit, token, loads, is_patient });
            }
            Err(Refusal::OneVotePerHost | Refusal::CannotRun | Refusal::OthersFirst) => {
                self.again.push(WorkunitId { job, index });
                self.stirred = true;
            }
            Err(Refusal::TooLittleLeft) => self.again.push(WorkunitId { job, index }),
            Err(_) => {}
        }
    }

    /// The next batch task on a chunk that is here.
    fn pop_batch(&mut self, node: usize) -> Option<Due> {
        while let Some(&(set, index)) = self.nodes[node].batch.front() {
            let entry = &mut self.sets[set.get()];
            let is_here = entry.phase == Phase::Here && entry.home[index as usize] == node;
            let queue = &mut entry.batch[index as usize];
            if is_here && let Some(job) = queue.pop_front() {
                if queue.is_empty() {
                    self.nodes[node].batch.pop_front();
                }
                return Some(Due { at: Time::ZERO, job, index });
            }
            self.nodes[node].batch.pop_front();
        }
        None
    }

    /// A task that loads has ended. Where its chunk is not there then, it does not come by it.
    fn loaded(&mut self, now: Time, farm: &Farm, host: HostIx, id: WorkunitId) {
        let set = farm.job(id.job).and_then(|job| self.catalogue.of_job(&job.spec));
        let Some(set) = set.filter(|set| set.get() < self.sets.len()) else { return };
        let entry = &mut self.sets[set.get()];
        let is_home = entry.home.get(id.index as usize) == Some(&host.get());
        if !is_home
            || entry.phase != Phase::Coming
            || farm.has_copy(self.catalogue.id(set, id.index), host)
        {
            return;
        }
        entry.coming = entry.coming.saturating_sub(1);
        if entry.coming == 0 {
            self.came(now, set);
        }
    }

    fn ended(&mut self, now: Time, farm: &Farm, job: JobId) {
        // Whoever waits for what a cancelled job was to load gets it with its own tasks.
        let given_up = self.sets.iter().position(|set| set.loader == Some(job));
        if let Some(at) = given_up {
            self.sets[at].loader = None;
            if self.sets[at].phase == Phase::Coming {
                self.came(now, SetIx::from_index(at));
            }
        }
        let session = farm.job(job).and_then(|job| job.spec.profile.session);
        let Some(session) = session else { return };
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.open = entry.open.saturating_sub(1);
            if entry.open == 0 {
                self.sessions.remove(&session);
            }
        }
    }
}

impl Policy for Gleaner {
    fn name(&self) -> &'static str {
        "gleaner"
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(may_be_taken(&self.catalogue, spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(job) => self.arrive(now, farm, job),
            Change::JobEnded(job) => self.ended(now, farm, job),
            Change::Completed { workunit, host, .. } => {
                let node = &mut self.nodes[host.get()];
                let at = node.running.iter().position(|run| run.workunit == workunit);
                let run = at.map(|at| node.running.swap_remove(at));
                // A host that has had room all the time is not offered again.
                if node.overlaps() {
                    self.touched.push(host.get());
                }
                if run.is_some_and(|run| run.loads) {
                    self.loaded(now, farm, host, farm.workunit(workunit).id);
                }
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                for node in &mut self.nodes {
                    node.running.retain(|run| {
                        run.workunit != workunit
                            || unit.pending.iter().any(|pending| pending.token == run.token)
                    });
                }
                if unit.waiting > 0 {
                    // It may have waited before, and others may have it now.
                    if !self.waits_again(unit.id) {
                        self.again.push(unit.id);
                    }
                    self.stirred = true;
                }
            }
            Change::WorkunitEnded(workunit) => {
                // Its leases have ended already: the workunit does not name their hosts any more.
                for (at, node) in self.nodes.iter_mut().enumerate() {
                    let before = node.running.len();
                    node.running.retain(|run| run.workunit != workunit);
                    if node.running.len() < before {
                        self.touched.push(at);
                    }
                }
            }
            Change::HostChanged(host) => self.host_changed(farm, host),
            Change::CopyChanged { host, chunk, held } => {
                self.copy_changed(now, farm, host.get(), chunk, held);
            }
            Change::JobTouched(_) | Change::HostForgotten(_) | Change::DecidedBefore(_) => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        // What came back for want of memory may find some by now.
        self.stirred |= !self.again.is_empty() && desk.farm().has_keeping(desk.lane());
        if self.stirred {
            self.settle(desk);
        }
        self.touched.extend(std::mem::take(&mut self.starved));
        if let Trigger::Host(host) = trigger {
            self.start(desk, host.get());
        }
        if self.retry.is_some_and(|retry| retry <= desk.now()) {
            self.retry = None;
            self.may_load = true;
            self.touched.extend(std::mem::take(&mut self.starved));
        }
        if std::mem::take(&mut self.may_load) {
            self.consider_loads(desk.now(), desk.farm());
        }
        while let Some(node) = self.touched.pop() {
            self.start(desk, node);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.stirred || !self.touched.is_empty() { Some(Time::ZERO) } else { self.retry }
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        vec![WaitReason::InTurn]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let queued = self.nodes.iter().flat_map(Node::tasks);
        let queued = queued.map(|due| (due.job, due.index));
        let frames = self
            .sets
            .iter()
            .flat_map(|set| &set.waiting)
            .flat_map(|frame| (0..frame.of.tasks).map(|index| (frame.of.job, index)));
        let batch = self.sets.iter().flat_map(|set| {
            let chunks = (0..).zip(&set.batch);
            chunks.flat_map(|(index, jobs)| jobs.iter().map(move |job| (*job, index)))
        });
        let again = self.again.iter().chain(&self.patient).map(|id| (id.job, id.index));
        check_tasks(farm, lane, queued.chain(frames).chain(batch).chain(again))
    }
}
