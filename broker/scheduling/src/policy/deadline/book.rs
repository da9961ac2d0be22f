//! What a policy with deadlines has promised, and how far it has come.

mod check;
mod slots;

use std::collections::BTreeMap;

use gleaner_protocol::{JobId, LeaseToken, Share, Span, Time, WorkunitId};

use super::cores;
use super::estimate::{self, Margin};
use crate::farm::{Farm, HostIx, Pending, WorkunitIx};
use crate::{Change, Desk};
use slots::{Slot, slots_of};

/// Promised jobs with their tasks.
///
/// # Invariants
/// - It has exactly the jobs of its lane that go on, with a task for each of their workunits.
/// - A task runs here exactly where its workunit has that lease, under that share.
/// - A task is insured only while it runs; its insurance runs on another host.
/// - What runs in the place of a replica that stands still is its insurance from when that goes on.
#[derive(Debug, Default)]
pub(crate) struct Book {
    jobs: BTreeMap<JobId, Entry>,
}

/// A promised job.
#[derive(Debug)]
pub(crate) struct Entry {
    /// When all of it is to be done; far away where nobody said.
    pub(crate) due: Time,
    /// Whether its times were predicted, nine of ten of them to be shorter; else somebody named them.
    pub(crate) is_predicted: bool,
    /// Whether it was promised on a forecast of cores.
    pub(crate) is_forecast: bool,
    /// What each of its tasks has of its host's cores.
    pub(crate) share: Share,
    /// How often a task that runs writes down how far it has come, if ever.
    checkpoint: Option<Span>,
    /// What each of its tasks was thought to need, in microseconds.
    promised_us: u64,
    /// Of that, what was added to its prediction.
    margin_us: u64,
    /// The most that one of them took that has ended, in microseconds.
    took_us: Option<u64>,
    /// Core time that insurance replicas of it used which run no longer, in microseconds.
    insured_us: u64,
    /// Its workunits by their index.
    pub(crate) tasks: Vec<Task>,
}

/// A workunit of a promised job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// What it is thought to need of a whole core, in microseconds.
    expected_us: u64,
    /// What it had of it when its run began, in thousandths of core-microseconds.
    done: u64,
    /// Where it runs.
    pub(crate) run: Option<Run>,
    /// Where a second replica of it runs, in case that the first does not end in time.
    pub(crate) insurance: Option<Run>,
    /// Whether a second replica of it waits that nothing needs.
    pub(crate) has_spare: bool,
    /// Whether nothing of it is left to do.
    pub(crate) ended: bool,
    /// Whether it stands still on its host, for a lane before this one or for a render.
    pub(crate) is_held: bool,
    /// Its replica that stands still, where one does; another may run in its place.
    aside: Option<Aside>,
}

/// A replica that stands still.
#[derive(Debug, Clone, Copy)]
struct Aside {
    host: HostIx,
    token: LeaseToken,
    /// What it had of a whole core, in thousandths of core-microseconds.
    done: u64,
}

/// A task that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) host: HostIx,
    pub(crate) token: LeaseToken,
    pub(crate) share: Share,
    pub(crate) since: Time,
}

impl Run {
    /// What it has had of a core, in thousandths of core-microseconds.
    fn ran_at(&self, now: Time) -> u64 {
        now.since(self.since).as_micros() * u64::from(self.share.as_permille())
    }
}

impl Task {
    /// What its first replica has done.
    fn first_done_at(&self, now: Time) -> u64 {
        self.done + self.run.map_or(0, |run| run.ran_at(now))
    }

    /// What the replica of it has done that is furthest.
    fn done_at(&self, now: Time) -> u64 {
        let insurance = self.insurance.map_or(0, |run| run.ran_at(now));
        self.first_done_at(now).max(insurance)
    }

    /// Core time that it had so far, in microseconds.
    pub(crate) fn done_us(&self, now: Time) -> u64 {
        self.first_done_at(now) / 1000
    }

    /// What it is thought to need of a whole core, in microseconds.
    pub(crate) fn expected_us(&self) -> u64 {
        self.expected_us
    }

    /// Core time of the insurance replica that it has, in microseconds.
    pub(crate) fn insurance_us(&self, now: Time) -> u64 {
        self.insurance.map_or(0, |run| run.ran_at(now) / 1000)
    }

    /// What is left of it in microseconds of a whole core: never nothing before it has ended.
    pub(crate) fn left_us(&self, now: Time) -> u64 {
        estimate::left_us(self.expected_us, self.done_at(now) / 1000)
    }

    /// Whether it goes on beyond what was expected.
    pub(crate) fn is_overrun(&self, now: Time) -> bool {
        self.done_at(now) / 1000 >= self.expected_us
    }
}

impl Task {
    /// The replica that stood still may have a slot again: then it goes on, and what ran in its place
    /// is its insurance.
    fn thaw(&mut self, now: Time, slots: &[Slot]) {
        let Some(aside) = self.aside else { return };
        let is_it = |slot: &&Slot| (slot.host, slot.token) == (aside.host, aside.token);
        let Some(&Slot { host, token, share }) = slots.iter().find(is_it) else { return };
        self.insurance = self.insurance.or(self.run);
        self.run = Some(Run { host, token, share, since: now });
        (self.done, self.aside) = (aside.done, None);
    }

    /// Where a second replica of it runs: as its insurance, or in the place of one that stands still.
    pub(crate) fn second(&self) -> Option<Run> {
        self.insurance.or(self.run.filter(|_| self.aside.is_some()))
    }
}

impl Entry {
    /// Whether its tasks take longer than was promised for.
    pub(crate) fn is_overrun(&self, now: Time) -> bool {
        let longer = |task: &Task| task.expected_us > self.promised_us || task.is_overrun(now);
        self.open().any(|(_, task)| longer(task))
    }

    /// What a task takes where nothing is wrong, in microseconds: the most that one of them took which
    /// has ended, else what was promised.
    pub(crate) fn usual_us(&self) -> u64 {
        self.took_us.unwrap_or(self.promised_us)
    }

    /// How long such work of one of its tasks lasts on the cores that it has, in microseconds.
    pub(crate) fn lasts_us(&self, work_us: u64) -> u64 {
        estimate::lasts_us(self.share, work_us)
    }

    /// Whether a task that is taken from its host goes on where it was.
    pub(crate) fn is_movable(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// What is certainly left of one of its tasks: without what was added to its prediction.
    pub(crate) fn least_left_us(&self, now: Time, task: &Task) -> u64 {
        task.left_us(now).saturating_sub(self.margin_us).max(1)
    }

    /// Core time that its insurance replicas had so far, in microseconds.
    pub(crate) fn insured_us(&self, now: Time) -> u64 {
        let running = self.open().map(|(_, task)| task.insurance_us(now));
        running.fold(self.insured_us, u64::saturating_add)
    }

    /// Core time that its tasks had so far and that those that run still need, in microseconds.
    pub(crate) fn used_us(&self, now: Time) -> u64 {
        let used = |task: &Task| match task.run {
            Some(_) => task.done_us(now).saturating_add(task.left_us(now)),
            None => task.done_us(now),
        };
        self.tasks.iter().map(used).fold(0, u64::saturating_add)
    }

    /// Its tasks that have not ended, by their index.
    pub(crate) fn open(&self) -> impl Iterator<Item = (u32, &Task)> {
        (0..).zip(&self.tasks).filter(|(_, task)| !task.ended)
    }
}

impl Book {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether a task waits for a host.
    pub(crate) fn has_waiting(&self) -> bool {
        let mut open = self.jobs.values().flat_map(Entry::open);
        open.any(|(_, task)| task.run.is_none() && !task.is_held)
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&Entry> {
        self.jobs.get(&job)
    }

    /// All promised jobs in order of their promise.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Entry)> {
        self.jobs.iter().map(|(job, entry)| (*job, entry))
    }

    /// Takes note of a change; `true` where a plan may look different after it.
    pub(crate) fn observe(
        &mut self,
        now: Time,
        farm: &Farm,
        change: Change,
        margin: Margin,
    ) -> bool {
        match change {
            Change::JobAdded(job) => self.add(now, farm, job, margin),
            Change::JobEnded(job) => self.jobs.remove(&job).is_some(),
            Change::WorkunitChanged(workunit) => self.compare(now, farm, workunit),
            Change::WorkunitEnded(workunit) => self.end(now, farm, workunit),
            Change::Completed { workunit, host, took: None } => {
                self.fail(now, farm, workunit, host);
                false
            }
            Change::HostChanged(_) | Change::HostForgotten(_) => true,
            Change::DecidedBefore(id) => match self.task_mut(id) {
                Some(task) => !std::mem::replace(&mut task.ended, true),
                None => false,
            },
            Change::JobTouched(_) | Change::CopyChanged { .. } | Change::Completed { .. } => false,
        }
    }

    /// An attempt has failed: what it did counts for nothing, and says nothing of how long such a
    /// task takes.
    fn fail(&mut self, now: Time, farm: &Farm, workunit: WorkunitIx, host: HostIx) {
        let id = farm.workunit(workunit).id;
        let Some(task) = self.task_mut(id) else { return };
        if let Some(run) = task.run.filter(|run| run.host == host) {
            (task.run, task.done) = (Some(Run { since: now, ..run }), 0);
        }
    }

    fn end(&mut self, now: Time, farm: &Farm, workunit: WorkunitIx) -> bool {
        let unit = farm.workunit(workunit);
        let id = unit.id;
        let Some(entry) = self.jobs.get_mut(&id.job) else { return false };
        let Some(task) = entry.tasks.get_mut(id.index as usize) else { return false };
        let by = unit.votes.last().map(|vote| vote.host);
        let insurance = task.insurance.filter(|run| by == Some(run.host));
        let aside = task.aside.filter(|aside| by == Some(aside.host));
        let first = aside.map_or(task.first_done_at(now), |aside| aside.done);
        let took_us = insurance.map_or(first, |run| run.ran_at(now)) / 1000;
        entry.insured_us = entry.insured_us.saturating_add(task.insurance_us(now));
        task.done = task.first_done_at(now);
        (task.run, task.insurance, task.aside, task.has_spare) = (None, None, None, false);
        let has_output = farm.job(id.job).is_some_and(|job| job.ended.digest(id.index).is_some());
        if took_us > 0 && has_output {
            entry.took_us = entry.took_us.max(Some(took_us));
        }
        !std::mem::replace(&mut task.ended, true)
    }

    /// Tasks of one job are alike: what one of them took, or has taken so far beyond what was
    /// expected, the others are expected to take.
    pub(crate) fn learn(&mut self, now: Time) {
        for entry in self.jobs.values_mut() {
            let so_far = entry.open().map(|(_, task)| task.done_at(now) / 1000).max();
            let beyond = so_far.filter(|so_far| *so_far >= entry.promised_us);
            let beyond = beyond.map(|so_far| so_far + estimate::left_us(entry.promised_us, so_far));
            if let Some(expected_us) = entry.took_us.max(beyond) {
                let open = entry.tasks.iter_mut().filter(|task| !task.ended);
                open.for_each(|task| task.expected_us = expected_us);
            }
        }
    }

    fn add(&mut self, now: Time, farm: &Farm, id: JobId, margin: Margin) -> bool {
        let Some(job) = farm.job(id) else { return false };
        let expected_us = margin.expected_us(&job.spec);
        let task = |index| Task {
            expected_us,
            done: 0,
            run: None,
            insurance: None,
            has_spare: false,
            ended: job.ended.contains(index),
            is_held: false,
            aside: None,
        };
        let entry = Entry {
            due: job.due.unwrap_or(Time::from_micros(u64::MAX)),
            promised_us: expected_us,
            margin_us: expected_us
                - estimate::longest_us(&job.spec).unwrap_or(0).clamp(1, expected_us),
            took_us: None,
            insured_us: 0,
            is_predicted: job.spec.profile.cpu_sigma_permille.is_some(),
            is_forecast: job.spec.profile.promised.is_some(),
            share: job.spec.cores_permille,
            checkpoint: job.spec.profile.checkpoint_ms.map(Span::from_millis),
            tasks: (0..job.workunit_count()).map(task).collect(),
        };
        self.jobs.insert(id, entry);
        let open: Vec<_> = job.open.values().copied().collect();
        for workunit in open {
            self.compare(now, farm, workunit);
        }
        true
    }

    /// Whether and where a workunit runs, when that was not the policy's own doing.
    fn compare(&mut self, now: Time, farm: &Farm, workunit: WorkunitIx) -> bool {
        let unit = farm.workunit(workunit);
        let Some(entry) = self.jobs.get_mut(&unit.id.job) else { return false };
        let Some(task) = entry.tasks.get_mut(unit.id.index as usize) else { return false };
        let slots = slots_of(farm, workunit);
        let before = (task.run, task.insurance, task.is_held);
        task.has_spare = unit.waiting > 0 && !unit.pending.is_empty();
        let has = |run: Run| slots.iter().any(|slot| slot.is(run));
        let is_leased =
            |host, token| unit.pending.iter().any(|of| (of.host, of.token) == (host, token));
        if let Some(run) = task.insurance.filter(|run| !has(*run)) {
            entry.insured_us = entry.insured_us.saturating_add(run.ran_at(now) / 1000);
            task.insurance = None;
        }
        task.is_held = !unit.pending.is_empty() && slots.is_empty();
        if let Some(aside) = task.aside.filter(|aside| !is_leased(aside.host, aside.token)) {
            task.aside = None;
            if task.run.is_none() {
                task.done = kept(aside.done, entry.checkpoint);
            }
        }
        if let Some(run) = task.run.filter(|run| !has(*run)) {
            let done = task.first_done_at(now);
            (task.run, task.done) = if is_leased(run.host, run.token) {
                // What it did is not lost.
                task.aside = task.aside.or(Some(Aside { host: run.host, token: run.token, done }));
                (None, done)
            } else {
                (None, kept(done, entry.checkpoint))
            };
            if let Some(run) = task.insurance.take() {
                // It was for this.
                entry.insured_us = entry.insured_us.saturating_add(run.ran_at(now) / 1000);
                (task.run, task.done) = (Some(run), 0);
            }
        }
        if task.is_held && task.aside.is_none() {
            let first = unit.pending.first();
            let aside = |of: &Pending| Aside { host: of.host, token: of.token, done: task.done };
            task.aside = first.map(aside);
        }
        task.thaw(now, &slots);
        for slot in &slots {
            if task.has(slot) {
                continue;
            }
            let run = Run { host: slot.host, token: slot.token, share: slot.share, since: now };
            match task.run {
                None => task.run = Some(run),
                Some(_) => task.insurance = task.insurance.or(Some(run)),
            }
        }
        before != (task.run, task.insurance, task.is_held)
    }

    /// What is left of each task of a job, in microseconds of a whole core.
    pub(crate) fn all_left_us(&self, now: Time, job: JobId) -> Vec<u64> {
        let open = self.jobs.get(&job).into_iter().flat_map(Entry::open);
        open.map(|(_, task)| task.left_us(now)).collect()
    }

    /// When a job is expected to be done if all cores of now stay: those due before it go first.
    pub(crate) fn expected_end(&self, farm: &Farm, job: JobId) -> Option<Time> {
        let (now, entry) = (farm.now, self.jobs.get(&job)?);
        let before = self.jobs.values().filter(|other| other.due <= entry.due);
        let left = |entry: &Entry| {
            entry.open().fold(0, |sum: u64, (_, task)| sum.saturating_add(task.left_us(now)))
        };
        let all_us = before.map(left).fold(0, u64::saturating_add);
        let cores = u64::from(cores::given(farm));
        let longest_us = entry.open().map(|(_, task)| entry.lasts_us(task.left_us(now))).max()?;
        let shared_us = all_us.checked_div(cores)?;
        Some(now + Span::from_micros(shared_us.max(longest_us)))
    }

    fn task_mut(&mut self, id: WorkunitId) -> Option<&mut Task> {
        self.jobs.get_mut(&id.job)?.tasks.get_mut(id.index as usize)
    }

    /// Has a task run on a core of a host; `false` where a rule forbids it.
    pub(crate) fn start(&mut self, desk: &mut Desk<'_>, id: WorkunitId, host: HostIx) -> bool {
        let Some(workunit) = Self::opened(desk, id) else { return false };
        let (share, started) = (desk.farm().share_of(workunit), desk.start(workunit, host));
        started.is_ok_and(|token| self.note_run(desk, id, host, token, share))
    }

    /// Has a task run on a share of a host's cores; `false` where a rule forbids it.
    pub(crate) fn start_with_share(
        &mut self,
        desk: &mut Desk<'_>,
        id: WorkunitId,
        host: HostIx,
        share: Share,
    ) -> bool {
        let Some(workunit) = Self::opened(desk, id) else { return false };
        let started = desk.start_with_share(workunit, host, share);
        started.is_ok_and(|token| self.note_run(desk, id, host, token, share))
    }

    fn opened(desk: &mut Desk<'_>, id: WorkunitId) -> Option<WorkunitIx> {
        desk.farm().find(id).or_else(|| desk.open_index(id.job, id.index))
    }

    fn note_run(
        &mut self,
        desk: &Desk<'_>,
        id: WorkunitId,
        host: HostIx,
        token: LeaseToken,
        share: Share,
    ) -> bool {
        let since = desk.now();
        let task = self.task_mut(id).expect("a task of a promised job is started");
        task.run = Some(Run { host, token, share, since });
        true
    }

    /// Has a second replica of a task that runs, or stands still, run on another host; `false` where
    /// a rule forbids it.
    pub(crate) fn insure(&mut self, desk: &mut Desk<'_>, id: WorkunitId, host: HostIx) -> bool {
        let Some(workunit) = desk.farm().find(id) else { return false };
        if desk.farm().workunit(workunit).waiting == 0 && desk.duplicate(workunit).is_err() {
            return false;
        }
        let (share, started) = (desk.farm().share_of(workunit), desk.start(workunit, host));
        let since = desk.now();
        let task = self.task_mut(id).expect("a task of a promised job is insured");
        let Ok(token) = started else {
            task.has_spare = true;
            self.drop_spare(desk, id);
            return false;
        };
        let run = Some(Run { host, token, share, since });
        task.has_spare = false;
        match task.run {
            Some(_) => task.insurance = run,
            None => (task.run, task.done, task.is_held) = (run, 0, false),
        }
        true
    }

    /// Takes the insurance replica of a task back.
    pub(crate) fn end_insurance(&mut self, desk: &mut Desk<'_>, id: WorkunitId) {
        let now = desk.now();
        let Some(entry) = self.jobs.get_mut(&id.job) else { return };
        let Some(task) = entry.tasks.get_mut(id.index as usize) else { return };
        let Some(run) = task.insurance.take() else { return };
        let revoked = desk.revoke(run.host, run.token);
        debug_assert!(revoked.is_ok(), "a task is insured here exactly where it has a lease");
        entry.insured_us = entry.insured_us.saturating_add(run.ran_at(now) / 1000);
        task.has_spare = true;
        self.drop_spare(desk, id);
    }

    /// Brings no further replica of a task that runs.
    pub(crate) fn drop_spare(&mut self, desk: &mut Desk<'_>, id: WorkunitId) {
        let Some(workunit) = desk.farm().find(id) else { return };
        let Some(task) = self.task_mut(id).filter(|task| task.has_spare) else { return };
        task.has_spare = false;
        desk.withdraw(workunit);
    }

    /// Takes a task from its host; it waits again.
    pub(crate) fn stop(&mut self, desk: &mut Desk<'_>, id: WorkunitId) {
        self.end_insurance(desk, id);
        let now = desk.now();
        let Some(entry) = self.jobs.get_mut(&id.job) else { return };
        let Some(task) = entry.tasks.get_mut(id.index as usize) else { return };
        let Some(run) = task.run else { return };
        let revoked = desk.revoke(run.host, run.token);
        debug_assert!(revoked.is_ok(), "a task runs here exactly where it has a lease");
        (task.run, task.done) = (None, kept(task.first_done_at(now), entry.checkpoint));
        if let Some(aside) = task.aside {
            // It ran in the place of the one that stands still, which is waited for now.
            (task.done, task.is_held, task.has_spare) = (aside.done, true, true);
            self.drop_spare(desk, id);
        }
    }

    /// Changes the share of a task that runs.
    pub(crate) fn set_share(&mut self, desk: &mut Desk<'_>, id: WorkunitId, share: Share) {
        let now = desk.now();
        let Some(task) = self.task_mut(id) else { return };
        let Some(run) = task.run.filter(|run| run.share != share) else { return };
        if desk.set_share(run.host, run.token, share).is_ok() {
            task.done = task.first_done_at(now);
            task.run = Some(Run { share, since: now, ..run });
        }
    }
}

/// What is left of work once it is interrupted: what was done since the last checkpoint is lost.
fn kept(done: u64, checkpoint: Option<Span>) -> u64 {
    let step = checkpoint.map_or(0, |span| span.as_micros().saturating_mul(1000));
    done.checked_div(step).map_or(0, |steps| steps * step)
}
