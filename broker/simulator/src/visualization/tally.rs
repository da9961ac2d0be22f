//! What a run is judged by.

use gleaner_protocol::{JobId, Time};

use super::workload::{Frame, Workload};
use crate::scenario::Numbers;

/// When jobs began and ended, and how often a chunk was there.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(super) now: Time,
    /// Tasks that are not rendered, of each job.
    left: Vec<u32>,
    /// The job start times `JS`.
    started: Vec<Time>,
    /// The job finish times `JF`.
    finished: Vec<Time>,
    done: usize,
    ended: Vec<JobId>,
    tasks: u64,
    hits: u64,
}

/// The start of what has not begun, and the end of what was dropped.
const NEVER: Time = Time::from_micros(u64::MAX);

impl Tally {
    pub(crate) fn new(load: &Workload, tasks: u32) -> Self {
        Self::of(load, |_| tasks)
    }

    /// Of a load whose frames have so many tasks each.
    pub(super) fn of(load: &Workload, tasks: impl Fn(&Frame) -> u32) -> Self {
        let jobs = load.frames.len();
        Self {
            now: Time::ZERO,
            left: load.frames.iter().map(tasks).collect(),
            started: vec![NEVER; jobs],
            finished: vec![Time::ZERO; jobs],
            done: 0,
            ended: Vec::new(),
            tasks: 0,
            hits: 0,
        }
    }

    pub(crate) fn jobs_done(&self) -> usize {
        self.done
    }

    /// A task began.
    pub(crate) fn started(&mut self, now: Time, frame: usize) {
        self.started[frame] = self.started[frame].min(now);
    }

    /// A task was rendered, with a chunk that was there or was loaded for it.
    pub(crate) fn rendered(&mut self, has_loaded: bool) {
        self.tasks += 1;
        self.hits += u64::from(!has_loaded);
    }

    /// The report of a task of a frame's job was accepted, which happens once. Returns how many are left.
    pub(crate) fn accepted(&mut self, now: Time, frame: usize, job: JobId) -> u32 {
        self.left[frame] -= 1;
        if self.left[frame] == 0 {
            self.finished[frame] = now;
            self.done += 1;
            self.ended.push(job);
        }
        self.left[frame]
    }

    /// A frame is not asked for any more, before anything was done for it.
    pub(super) fn dropped(&mut self, frame: usize) {
        self.finished[frame] = NEVER;
        self.done += 1;
    }

    /// When a frame was there; `None` where it was dropped.
    pub(super) fn finished(&self, frame: usize) -> Option<Time> {
        Some(self.finished[frame]).filter(|at| *at != NEVER)
    }

    /// Tasks that found their chunk, in percent.
    pub(super) fn hit_rate_percent(&self) -> f64 {
        100.0 * (self.hits as f64 / (self.tasks.max(1)) as f64)
    }

    /// A job that ended since.
    pub(crate) fn pop_ended(&mut self) -> Option<JobId> {
        self.ended.pop()
    }

    /// The metrics.
    pub(crate) fn numbers(&self, load: &Workload) -> Numbers {
        let (mut interactive, mut batch, mut working) =
            (Mean::default(), Mean::default(), Mean::default());
        for (at, frame) in load.frames.iter().enumerate() {
            let latency = self.finished[at].since(frame.at).as_secs_f64();
            if frame.action.is_some() {
                interactive.add(latency);
            } else {
                batch.add(latency);
                working.add(self.finished[at].since(self.started[at]).as_secs_f64());
            }
        }
        let mut numbers = Numbers::from([
            ("framerate_fps", self.framerate(load)),
            ("interactive_latency_s", interactive.value()),
            ("hit_rate_percent", self.hit_rate_percent()),
        ]);
        if batch.count > 0.0 {
            numbers.insert("batch_latency_s", batch.value());
            numbers.insert("batch_working_s", working.value());
        }
        numbers
    }

    /// The frame rate over the finish times of an action's frames, averaged over the actions. An
    /// action counts as no faster than its frames were asked for: where the first of them came
    /// late and the others in a burst, nobody saw more frames a second than that.
    ///
    /// Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
    /// Visualization Services using GPU Clusters", 2012, Definition 4.
    fn framerate(&self, load: &Workload) -> f64 {
        let target = 1e6 / load.interval.as_micros().max(1) as f64;
        let mut actions = vec![(0_u32, Time::ZERO, Time::ZERO); load.actions];
        for (at, frame) in load.frames.iter().enumerate() {
            let Some(action) = frame.action else { continue };
            let (count, first, last) = &mut actions[action as usize];
            if *count == 0 {
                *first = self.finished[at];
            }
            *count += 1;
            *last = (*last).max(self.finished[at]);
        }
        let mut mean = Mean::default();
        for (count, first, last) in actions {
            let took = last.since(first).as_secs_f64();
            if count > 1 {
                mean.add((f64::from(count - 1) / took).min(target));
            }
        }
        mean.value()
    }
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, number: f64) {
        self.sum += number;
        self.count += 1.0;
    }

    fn value(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}
