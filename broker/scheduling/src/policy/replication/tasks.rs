//! The workunits of one job, where they run and where copies of their chunks are.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{ChunkId, DatasetId, JobId, Span, Time, WorkunitId};
use smallvec::SmallVec;

use crate::Desk;
use crate::farm::{Farm, HostIx, Job, JobPhase, WorkunitIx};

/// How far a workunit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A replica of it waits: it is in the queue of higher priority (HPQ).
    Ready,
    /// All its replicas run: it is in the queue of lower priority (LPQ).
    Running,
    /// It has ended.
    Ended,
}

/// A replica that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) host: HostIx,
    pub(crate) since: Time,
}

/// The workunits of one job.
///
/// # Invariants
/// - Stages are those of the farm.
/// - `by_host` has the workunits that have not ended by the holders of their chunks.
/// - `head` is the first workunit that has not ended.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(crate) job: JobId,
    dataset: DatasetId,
    stages: Vec<Stage>,
    holders: Vec<SmallVec<[HostIx; 3]>>,
    by_host: Vec<BTreeSet<u32>>,
    runs: BTreeMap<u32, SmallVec<[Run; 2]>>,
    head: u32,
    ready: usize,
    /// That of the job, beside the policy's.
    window: u32,
}

impl Tasks {
    /// The workunits of a job that reads a dataset.
    pub(crate) fn new(now: Time, farm: &Farm, job: &Job) -> Option<Self> {
        let dataset = job.spec.profile.reads?.dataset;
        let count = job.workunit_count() as usize;
        let mut tasks = Self {
            job: job.id,
            dataset,
            stages: vec![Stage::Ready; count],
            holders: vec![SmallVec::new(); count],
            by_host: Vec::new(),
            runs: BTreeMap::new(),
            head: 0,
            ready: count,
            window: job.spec.profile.window.unwrap_or(u32::MAX),
        };
        for index in 0..job.workunit_count() {
            for host in farm.copies(ChunkId { dataset, index }) {
                tasks.set_copy(index, host, true);
            }
            match job.open.get(&index) {
                Some(workunit) => tasks.sync(now, farm, *workunit),
                None if job.ended.contains(index) => tasks.end(index),
                None => {}
            }
        }
        Some(tasks)
    }

    pub(crate) fn stage(&self, index: u32) -> Stage {
        self.stages[index as usize]
    }

    /// Those that have a copy of a workunit's chunk, in order.
    pub(crate) fn holders(&self, index: u32) -> &[HostIx] {
        &self.holders[index as usize]
    }

    /// Where a workunit runs.
    pub(crate) fn runs(&self, index: u32) -> &[Run] {
        self.runs.get(&index).map_or(&[], SmallVec::as_slice)
    }

    /// All that runs, in order.
    pub(crate) fn all_runs(&self) -> impl Iterator<Item = (u32, &[Run])> {
        self.runs.iter().map(|(index, runs)| (*index, runs.as_slice()))
    }

    /// What of the window has not ended, whose chunk a host has, in order.
    pub(crate) fn of_host(&self, host: HostIx, window: u32) -> impl Iterator<Item = u32> {
        let end = self.window_end(window);
        let all = self.by_host.get(host.get()).into_iter().flatten().copied();
        all.take_while(move |index| *index < end)
    }

    /// The same of those behind a workunit.
    pub(crate) fn of_host_behind(
        &self,
        host: HostIx,
        index: u32,
        window: u32,
    ) -> impl Iterator<Item = u32> {
        let end = self.window_end(window);
        let held = self.by_host.get(host.get()).into_iter();
        let behind = held.flat_map(move |held| held.range(index.saturating_add(1)..).copied());
        behind.take_while(move |index| *index < end)
    }

    /// The window: the first that has not ended, and those behind it.
    pub(crate) fn window(&self, window: u32) -> std::ops::Range<u32> {
        self.head..self.window_end(window)
    }

    /// What is ready in the window, in order.
    pub(crate) fn ready(&self, window: u32) -> impl Iterator<Item = u32> {
        self.window(window).filter(|index| self.stage(*index) == Stage::Ready)
    }

    /// The job's window and its first workunit, where a workunit is beyond it.
    pub(crate) fn is_beyond(&self, index: u32) -> Option<(u32, u32)> {
        (index >= self.window_end(u32::MAX)).then_some((self.window, self.head))
    }

    fn window_end(&self, window: u32) -> u32 {
        let count = u32::try_from(self.stages.len()).expect("WORKUNITS_MAX fits u32");
        self.head.saturating_add(window.min(self.window)).min(count)
    }

    pub(crate) fn chunk(&self, index: u32) -> ChunkId {
        ChunkId { dataset: self.dataset, index }
    }

    /// The workunit that reads a chunk.
    pub(crate) fn reader_of(&self, chunk: ChunkId) -> Option<u32> {
        let is_known = chunk.dataset == self.dataset && (chunk.index as usize) < self.stages.len();
        is_known.then_some(chunk.index)
    }

    /// A host has a copy of a workunit's chunk, or has none.
    pub(crate) fn set_copy(&mut self, index: u32, host: HostIx, held: bool) {
        if self.by_host.len() <= host.get() {
            self.by_host.resize_with(host.get() + 1, BTreeSet::new);
        }
        let holders = &mut self.holders[index as usize];
        match (holders.binary_search(&host), held) {
            (Err(at), true) => holders.insert(at, host),
            (Ok(at), false) => drop(holders.remove(at)),
            _ => return,
        }
        if held && self.stage(index) != Stage::Ended {
            self.by_host[host.get()].insert(index);
        } else {
            self.by_host[host.get()].remove(&index);
        }
    }

    /// Brings a workunit to where the farm has it.
    pub(crate) fn sync(&mut self, now: Time, farm: &Farm, workunit: WorkunitIx) {
        let unit = farm.workunit(workunit);
        let index = unit.id.index;
        let runs = self.runs.entry(index).or_default();
        runs.retain(|run| unit.pending.iter().any(|pending| pending.host == run.host));
        for pending in &unit.pending {
            if !runs.iter().any(|run| run.host == pending.host) {
                runs.push(Run { host: pending.host, since: now });
            }
        }
        if runs.is_empty() {
            self.runs.remove(&index);
        }
        self.set(index, if unit.waiting > 0 { Stage::Ready } else { Stage::Running });
    }

    /// A workunit has ended.
    pub(crate) fn end(&mut self, index: u32) {
        self.set(index, Stage::Ended);
        self.runs.remove(&index);
        for host in &self.holders[index as usize] {
            self.by_host[host.get()].remove(&index);
        }
        while self.stages.get(self.head as usize) == Some(&Stage::Ended) {
            self.head += 1;
        }
    }

    fn set(&mut self, index: u32, stage: Stage) {
        let entry = &mut self.stages[index as usize];
        if *entry == Stage::Ready {
            self.ready -= 1;
        }
        self.ready += usize::from(stage == Stage::Ready);
        *entry = stage;
    }

    /// How long a replica has run that has just been reported.
    pub(crate) fn took(&self, now: Time, index: u32, host: HostIx) -> Option<Span> {
        let run = self.runs(index).iter().find(|run| run.host == host)?;
        Some(now.since(run.since))
    }

    /// Whether this host could start a replica of this workunit, its slots aside: it has the
    /// chunk, is able, has no replica or vote of it, and others that have the chunk do not come first.
    pub(crate) fn may_run(&self, farm: &Farm, index: u32, host: HostIx) -> bool {
        let has_left = |job: &Job| farm.has_left(job.spec.lane, host, job.ability);
        self.holders(index).binary_search(&host).is_ok()
            && farm.job(self.job).is_some_and(has_left)
            && match farm.find(self.id(index)) {
                Some(workunit) => farm.may_have(workunit, host).is_ok(),
                None => farm.can_run(host, self.job),
            }
    }

    /// Whether one more replica of a workunit that runs is within what its job allows.
    pub(crate) fn may_duplicate(&self, farm: &Farm, index: u32) -> bool {
        let (Some(workunit), Some(job)) = (farm.find(self.id(index)), farm.job(self.job)) else {
            return false;
        };
        let unit = farm.workunit(workunit);
        let replicas = unit.reported() + unit.pending.len() + usize::from(unit.waiting);
        replicas < usize::from(job.spec.max_replicas())
    }

    /// Starts a replica of a workunit on a host that may run it: the one that waits, or one more.
    /// Whether it was started.
    pub(crate) fn start(&mut self, desk: &mut Desk<'_>, index: u32, host: HostIx) -> bool {
        let open = desk.farm().find(self.id(index));
        // What others left of its memory may have gone to another since it was looked at.
        if !self.may_run(desk.farm(), index, host) {
            return false;
        }
        let Some(workunit) = open.or_else(|| desk.open_index(self.job, index)) else {
            return false;
        };
        if desk.farm().workunit(workunit).waiting == 0 && desk.duplicate(workunit).is_err() {
            return false;
        }
        let started = desk.start(workunit, host).is_ok();
        debug_assert!(started, "an able host with a free slot and without a replica of it");
        self.sync(desk.now(), desk.farm(), workunit);
        started
    }

    fn id(&self, index: u32) -> WorkunitId {
        WorkunitId { job: self.job, index }
    }

    /// Whether all is as the farm has it.
    pub(crate) fn check(&self, farm: &Farm, job: &Job) -> Result<(), String> {
        let mut ready = 0;
        for index in 0..job.workunit_count() {
            let open = job.open.get(&index).map(|workunit| farm.workunit(*workunit));
            let is_active = job.phase == JobPhase::Active;
            let stage = match open {
                Some(unit) if unit.waiting > 0 => Stage::Ready,
                Some(_) => Stage::Running,
                None if is_active && !job.ended.contains(index) => Stage::Ready,
                None => Stage::Ended,
            };
            ready += usize::from(stage == Stage::Ready);
            if self.stage(index) != stage {
                return Err(format!("{index} is {stage:?} and listed {:?}", self.stage(index)));
            }
            let runs = self.runs(index).iter().map(|run| run.host);
            let pending = open.into_iter().flat_map(|unit| unit.pending.iter());
            if runs.collect::<BTreeSet<_>>() != pending.map(|pending| pending.host).collect() {
                return Err(format!("the runs of {index} are not its leases"));
            }
            if !farm.copies(self.chunk(index)).eq(self.holders(index).iter().copied()) {
                return Err(format!("the holders of {index} are not those of its chunk"));
            }
            let listed = |host: &HostIx| self.by_host[host.get()].contains(&index);
            if self.holders(index).iter().any(|host| listed(host) == (stage == Stage::Ended)) {
                return Err(format!("{index} is {stage:?} and in the wrong lists of hosts"));
            }
        }
        if ready != self.ready {
            return Err(format!("{ready} are ready and {} counted", self.ready));
        }
        Ok(())
    }
}
