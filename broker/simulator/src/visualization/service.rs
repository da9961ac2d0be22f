//! The service: a head node with the scheduling core, rendering nodes, and who asks for frames.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use gleaner_protocol::control::Verdict;
use gleaner_protocol::job::{JobSpec, Lane, Task as Run, Workunits};
use gleaner_protocol::limits::LEASE_S_MAX;
use gleaner_protocol::{
    Capabilities, ChunkId, DatasetId, Digest, HostInfo, HostName, JobId, KernelName, Origin,
    OwnerName, Profile, Reads, Span, Time,
};
use gleaner_scheduling::visualization::{Flow, Grade, Wish};
use gleaner_scheduling::{Effect, Input, Policy, ReportedOutcome};

use super::node::{Event, Kind, Node, Speed, Task};
use super::rendering::Rendering;
use super::tally::Tally;
use super::workload::{Frame, USUAL_WORK, Workload};
use crate::scenario::Progress;
use crate::stage::Stage;

/// How many nodes of what size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cluster {
    pub(super) nodes: u32,
    pub(super) cores: u32,
    pub(super) quota_mib: u64,
    /// Tasks that a node takes at a time: with two it loads one while it renders the other.
    pub(super) tasks_at_once: u32,
    /// Tasks of a job on each dataset, which is as many chunks.
    pub(super) tasks: Vec<u32>,
    pub(super) speed: SpeedSource,
    pub(super) crash: Option<Crash>,
}

/// What the times of a node come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SpeedSource {
    pub(super) chunk_bytes: u64,
    pub(super) load: Span,
    pub(super) render: Span,
    /// By how much rendering times differ from their mean at most, as a share of it.
    pub(super) render_spread: f64,
}

/// Nodes that go, and come back empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crash {
    pub(super) nodes: u32,
    pub(super) at: Time,
    pub(super) back: Time,
}

/// The modelled service in the middle of a run.
pub(super) struct Service<'a> {
    load: &'a Workload,
    speed: Speed,
    rendering: Rendering,
    /// The number of the first chunk of each dataset, and of one more.
    firsts: Vec<u32>,
    slots: u32,
    stage: Stage,
    nodes: Vec<Node>,
    infos: Vec<HostInfo>,
    events: BinaryHeap<Reverse<Event>>,
    effects: Vec<Effect>,
    /// Crash and return, the latter first.
    outages: Vec<(Time, u32, bool)>,
    next_frame: usize,
    /// Frames by their jobs.
    begun: Vec<usize>,
    /// What putting the layers of a frame together takes, where that is a job of its own.
    join: Option<Span>,
    /// Jobs that join layers.
    joins: BTreeSet<JobId>,
    /// The jobs of frames that were begun in views, and are not there yet.
    drawing: BTreeMap<usize, JobId>,
    /// The view of each action, where frames are drawn as a view asks for them, and not all of them.
    views: Vec<View>,
    template: JobSpec,
    pub(super) tally: Tally,
}

/// Frames of an action as a view asks for them.
struct View {
    flow: Flow<Wanted>,
    /// What nothing was begun of yet, in order.
    waiting: Vec<usize>,
}

/// A frame that somebody wants to see, by its number. Another one comes soon.
#[derive(Debug, Clone, Copy)]
struct Wanted(usize);

impl Wish for Wanted {
    fn seq(&self) -> u64 {
        self.0 as u64
    }

    fn is_moving(&self) -> bool {
        true
    }
}

impl<'a> Service<'a> {
    pub(super) fn new(cluster: &Cluster, load: &'a Workload, policy: Box<dyn Policy>) -> Self {
        let SpeedSource { chunk_bytes, load: loading, render, render_spread } = cluster.speed;
        let quota_bytes = cluster.quota_mib << 20;
        let name = |at: u32| HostName::new(format!("node{at:03}")).expect("a plain name");
        let kernel = KernelName::new("volume").expect("a plain name");
        let infos: Vec<_> = (0..cluster.nodes)
            .map(|at| HostInfo {
                name: name(at),
                origin: Origin::Farm,
                owner: None,
                cores: cluster.cores,
                memory_mib: cluster.quota_mib,
                kind: None,
                chunk_cache_mib: cluster.quota_mib,
                capabilities: Capabilities {
                    kernels: BTreeSet::from([kernel.clone()]),
                    ..Capabilities::default()
                },
            })
            .collect();
        let outages = cluster.crash.iter().flat_map(|crash| {
            let all = 0..crash.nodes.min(cluster.nodes);
            let back = all.clone().map(|node| (crash.back, node, true));
            back.chain(all.map(|node| (crash.at, node, false)))
        });
        let mut firsts = vec![0];
        firsts.extend(cluster.tasks.iter().scan(0, |chunks, tasks| {
            *chunks += tasks;
            Some(*chunks)
        }));
        let tasks = |frame: &Frame| cluster.tasks[frame.dataset as usize];
        Self {
            load,
            speed: Speed { chunk_bytes, load: loading },
            rendering: Rendering::new(render, render_spread),
            firsts,
            slots: cluster.tasks_at_once,
            stage: Stage::new(Lane::Rendering, policy),
            nodes: infos.iter().map(|info| Node::new(info.name.clone(), quota_bytes)).collect(),
            infos,
            events: BinaryHeap::new(),
            effects: Vec::new(),
            outages: outages.collect(),
            next_frame: 0,
            begun: Vec::with_capacity(load.frames.len()),
            join: None,
            joins: BTreeSet::new(),
            drawing: BTreeMap::new(),
            views: Vec::new(),
            template: template(kernel, cluster),
            tally: Tally::of(load, tasks),
        }
    }

    /// Has the frames of each action drawn as a broker has those of a view: the newest is begun next where
    /// there is a credit, and the others are dropped. All is seen as soon as it is there.
    pub(super) fn with_views(self) -> Self {
        let view = || View { flow: Flow::new(false), waiting: Vec::new() };
        Self { views: std::iter::repeat_with(view).take(self.load.actions).collect(), ..self }
    }

    /// Has the layers of a frame of several chunks put together by another job, which takes so long.
    pub(super) fn with_joins(self, join: Span) -> Self {
        let tasks = |frame: &Frame| {
            let dataset = frame.dataset as usize;
            let tasks = self.firsts[dataset + 1] - self.firsts[dataset];
            tasks + u32::from(tasks > 1)
        };
        Self { tally: Tally::of(self.load, tasks), join: Some(join), ..self }
    }

    /// Runs until all jobs are done.
    pub(super) fn run(&mut self, progress: &dyn Progress, what: &str) -> Result<(), String> {
        self.begin()?;
        let (frames, mut told) = (self.load.frames.len(), 0);
        while let Some(now) = self.step()? {
            let done = self.tally.jobs_done() * 1000 / frames.max(1);
            if done > told {
                told = done;
                progress.done(u32::try_from(done * 1000).unwrap_or(u32::MAX), what);
            }
            debug_assert!(now >= Time::ZERO);
        }
        Ok(())
    }

    /// Frames that became jobs.
    pub(super) fn jobs_begun(&self) -> usize {
        self.begun.len()
    }

    /// The nodes come.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        (0..self.nodes.len()).try_for_each(|at| self.join(Time::ZERO, at))
    }

    /// Takes what happens next; `None` when all jobs are done.
    pub(super) fn step(&mut self) -> Result<Option<Time>, String> {
        if self.tally.jobs_done() == self.load.frames.len() {
            return Ok(None);
        }
        let frame = self.load.frames.get(self.next_frame).map(|frame| frame.at);
        let event = self.events.peek().map(|Reverse(event)| event.at);
        let outage = self.outages.last().map(|(at, ..)| *at);
        let own = [event, frame, outage].into_iter().flatten().min();
        let deadline = self.stage.next_deadline();
        let Some(now) = own.into_iter().chain(deadline).min() else {
            return Err("the jobs that are left can run nowhere".into());
        };
        let now = now.max(self.tally.now);
        self.tally.now = now;
        if event.is_some_and(|at| at <= now) {
            let Reverse(event) = self.events.pop().expect("it was looked at");
            self.happen(event);
        } else if outage.is_some_and(|at| at <= now) {
            let (_, node, is_back) = self.outages.pop().expect("it was looked at");
            self.outage(now, node as usize, is_back)?;
        } else if frame.is_some_and(|at| at <= now) {
            self.ask_for_frame(now)?;
        } else {
            self.stage.tick(now);
        }
        self.perform(now)?;
        Ok(Some(now))
    }

    /// The invariants of the core and of its policy.
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), gleaner_scheduling::Violation> {
        self.stage.check()
    }

    /// The next frame is asked for.
    fn ask_for_frame(&mut self, now: Time) -> Result<(), String> {
        let frame = self.next_frame;
        self.next_frame += 1;
        let action = self.load.frames[frame].action;
        let view = action.and_then(|action| self.views.get_mut(action as usize));
        let (Some(view), Some(action)) = (view, action) else { return self.submit(now, frame) };
        view.flow.state(Wanted(frame));
        view.waiting.push(frame);
        self.begin_in_view(now, action)
    }

    /// Begins what a view is to draw now. What it passed over is not drawn any more.
    fn begin_in_view(&mut self, now: Time, action: u32) -> Result<(), String> {
        loop {
            let view = &mut self.views[action as usize];
            let Some((_, Wanted(frame))) = view.flow.begin_next() else { return Ok(()) };
            for passed in view.waiting.drain(..).filter(|of| *of != frame) {
                self.tally.dropped(passed);
            }
            self.submit(now, frame)?;
        }
    }

    /// A job has ended: what its action has waited with is begun.
    fn job_ended(&mut self, now: Time, job: JobId) -> Result<(), String> {
        self.stage.tell(now, Input::Forget { job });
        self.joins.remove(&job);
        let frame = self.begun[frame_of(job)];
        let Some(action) = self.load.frames[frame].action else { return Ok(()) };
        let Some(view) = self.views.get_mut(action as usize) else { return Ok(()) };
        self.drawing.remove(&frame);
        view.flow.came((frame as u64, Grade::Full));
        view.flow.drawn(frame as u64);
        // What it has overtaken is not shown any more.
        for stale in view.flow.stale() {
            view.flow.lost(stale);
            let overtaken = usize::try_from(stale.0).expect("frames are counted by a usize");
            if let Some(job) = self.drawing.remove(&overtaken) {
                self.tally.dropped(overtaken);
                self.stage.cancel(now, job);
            }
        }
        self.begin_in_view(now, action)
    }

    fn submit(&mut self, now: Time, frame: usize) -> Result<(), String> {
        let Frame { dataset, action, .. } = self.load.frames[frame];
        let mut spec = self.template.clone();
        spec.profile.session = action.map(u64::from);
        let reads = spec.profile.reads.as_mut().expect("the template reads a dataset");
        reads.dataset = DatasetId::new(dataset.into());
        let dataset = dataset as usize;
        spec.workunits = Workunits::Count(self.firsts[dataset + 1] - self.firsts[dataset]);
        let job = self.stage.submit(now, spec).map_err(|refusal| refusal.to_string())?;
        debug_assert_eq!(job, job_of(self.begun.len()), "jobs are numbered as they come");
        self.begun.push(frame);
        if !self.views.is_empty() {
            self.drawing.insert(frame, job);
        }
        Ok(())
    }

    /// The layers of a frame are there.
    fn submit_join(&mut self, now: Time, layers: JobId) -> Result<(), String> {
        self.stage.tell(now, Input::Forget { job: layers });
        let frame = self.begun[frame_of(layers)];
        let mut spec = self.template.clone();
        spec.profile.session = self.load.frames[frame].action.map(u64::from);
        spec.profile.reads = None;
        let job = self.stage.submit(now, spec).map_err(|refusal| refusal.to_string())?;
        self.begun.push(frame);
        self.joins.insert(job);
        self.drawing.entry(frame).and_modify(|drawing| *drawing = job);
        Ok(())
    }

    fn join(&mut self, now: Time, at: usize) -> Result<(), String> {
        self.stage.join(now, self.infos[at].clone(), self.slots);
        self.nodes[at].is_up = true;
        self.nodes[at].asked = self.slots;
        self.perform(now)
    }

    fn outage(&mut self, now: Time, at: usize, is_back: bool) -> Result<(), String> {
        let host = self.nodes[at].name.clone();
        if is_back {
            return self.join(now, at);
        }
        let lost = self.nodes[at].crash();
        let lost = lost.into_iter().map(|chunk| self.chunk_id(chunk)).collect();
        self.stage.tell(now, Input::Copies { host: host.clone(), gained: Vec::new(), lost });
        self.stage.tell(now, Input::HostLeft { host });
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        let Event { at: now, node, kind, life, token } = event;
        let entry = &mut self.nodes[node as usize];
        if entry.life != life || !entry.is_at(kind, token) {
            return;
        }
        match kind {
            Kind::Load => {
                let (chunk, dropped) = entry.loaded(&self.speed);
                let host = entry.name.clone();
                self.begin_at(now, node as usize);
                let gained = vec![self.chunk_id(chunk)];
                let lost = dropped.into_iter().map(|chunk| self.chunk_id(chunk)).collect();
                self.stage.tell(now, Input::Copies { host, gained, lost });
            }
            Kind::Render => {
                let task = entry.rendered();
                let host = entry.name.clone();
                self.begin_at(now, node as usize);
                let Task { token, replica, spent, has_loaded, chunk, .. } = task;
                if chunk.is_some() {
                    self.tally.rendered(has_loaded);
                }
                let output = ReportedOutcome::Output(Digest::from_bytes([0; 32]));
                self.stage.report(now, host, token, replica, output, spent.as_micros());
                self.ask(now, node as usize);
            }
        }
    }

    /// A node asks for as much as it may, so that it is served at once later.
    fn ask(&mut self, now: Time, node: usize) {
        let entry = &mut self.nodes[node];
        if entry.is_up && entry.asked < self.slots {
            let most = self.infos[node].cores.max(self.slots);
            let more = most - entry.asked;
            entry.asked = most;
            self.stage.ask(now, entry.name.clone(), more);
        }
    }

    fn begin_at(&mut self, now: Time, node: usize) {
        let (events, life) = (&mut self.events, self.nodes[node].life);
        self.nodes[node].begin(&self.speed, &mut |step| {
            let at = now + step.takes;
            let node = u32::try_from(node).expect("nodes are counted by a u32");
            events.push(Reverse(Event { at, node, kind: step.kind, life, token: step.token }));
        });
    }

    /// Does what the core asks for.
    fn perform(&mut self, now: Time) -> Result<(), String> {
        let mut effects = std::mem::take(&mut self.effects);
        let mut layered = Vec::new();
        loop {
            self.stage.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Lease { host, token, replica, .. } => {
                        let frame = self.begun[frame_of(replica.workunit.job)];
                        let Frame { dataset, work_permille, .. } = self.load.frames[frame];
                        let join = self.join.filter(|_| self.joins.contains(&replica.workunit.job));
                        let first = self.firsts[dataset as usize];
                        let chunk = join.is_none().then_some(first + replica.workunit.index);
                        let node = host.get();
                        let entry = &mut self.nodes[node];
                        entry.asked = entry.asked.saturating_sub(1);
                        let render = self.rendering.time(replica.workunit);
                        let render_us = render.as_micros() * u64::from(work_permille);
                        let render = Span::from_micros(render_us / u64::from(USUAL_WORK));
                        let render = join.unwrap_or(render);
                        entry.accept(Task::new(token, replica, chunk, render));
                        self.tally.started(now, frame);
                        self.begin_at(now, node);
                    }
                    Effect::Abort { host, token, .. } => {
                        self.nodes[host.get()].abort(token);
                        self.begin_at(now, host.get());
                        self.ask(now, host.get());
                    }
                    Effect::Verdict { workunit, verdict: Verdict::Counted, .. } => {
                        let frame = self.begun[frame_of(workunit.job)];
                        let left = self.tally.accepted(now, frame, workunit.job);
                        if self.join.is_some() && left == 1 {
                            layered.push(workunit.job);
                        }
                    }
                    _ => {}
                }
            }
            while let Some(job) = self.tally.pop_ended() {
                self.job_ended(now, job)?;
            }
            for job in layered.drain(..) {
                self.submit_join(now, job)?;
            }
        }
        self.effects = effects;
        Ok(())
    }

    fn chunk_id(&self, chunk: u32) -> ChunkId {
        let dataset = self.firsts.partition_point(|first| *first <= chunk) - 1;
        let index = chunk - self.firsts[dataset];
        ChunkId { dataset: DatasetId::new(dataset as u64), index }
    }
}

/// The job of a frame: they are submitted in order.
pub(crate) fn job_of(frame: usize) -> JobId {
    JobId::new(frame as u64 + 1)
}

/// The frame of a job where all frames become jobs; else the place of its frame among those that did.
pub(crate) fn frame_of(job: JobId) -> usize {
    usize::try_from(job.get() - 1).expect("frames are counted by a usize")
}

fn template(kernel: KernelName, cluster: &Cluster) -> JobSpec {
    let dataset = DatasetId::new(0);
    let reads = Some(Reads { dataset, chunk_bytes: cluster.speed.chunk_bytes, first: 0 });
    JobSpec {
        name: String::new(),
        owner: OwnerName::new("visitor").expect("a plain name"),
        project: None,
        lane: Lane::Rendering,
        task: Run::Kernel(kernel),
        workunits: Workunits::Count(1),
        replication: 1,
        quorum: None,
        max_replicas: None,
        // Who waits for a node that is down learns it by its link.
        lease_s: LEASE_S_MAX,
        profile: Profile { reads, ..Profile::default() },
        trust: gleaner_protocol::Trust::Fixed,
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    }
}
