//! What is submitted to the studio, and when: the loads of all lanes.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Lane, OnRelease, Task, WasmTask, Workunits};
use gleaner_protocol::limits::LEASE_S_MAX;
use gleaner_protocol::{
    DatasetId, Digest, KernelName, OwnerName, Profile, Reads, Share, Span, Time, Trust,
};

use super::farm::{Kind, span_s};
use crate::deadline::tables;
use crate::deadline::workload::{DeadlineJob, Recipe};
use crate::dice::Dice;
use crate::mixed::npairs::{Npairs, published_s};
use crate::parameters::{Settings, Value};
use crate::replication::servers::{Draw, Servers};
use crate::replication::world as dataset;
use crate::scenario::Scenario as _;
use crate::visualization::workload::{Demand, Frame, Lengths, Workload};

/// Purpose of chance: jobs with deadlines.
const DEADLINES: u64 = 301;
/// Volumes that users turn have numbers from here on.
const VOLUMES: u64 = 1_000;
/// Workunits of each of the jobs that are the background.
pub(super) const BACKGROUND_WORKUNITS: u32 = 1_000;

/// What runs on hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Volume,
    Visualize,
    Pca,
    Gametree,
}

impl Kernel {
    pub(super) const ALL: [Self; 4] = [Self::Volume, Self::Visualize, Self::Pca, Self::Gametree];

    /// Its name as the core knows it: that of its family's scenario where that has one.
    pub(super) fn name(self) -> KernelName {
        let name = match self {
            Self::Volume => "volume",
            Self::Visualize => return dataset::kernel(),
            Self::Pca => "pca",
            Self::Gametree => "gametree",
        };
        KernelName::new(name).expect("a plain name")
    }

    /// Whether desktops run it, which have neither the memory nor the data of the farm.
    pub(super) const fn is_on_desktops(self) -> bool {
        matches!(self, Self::Pca | Self::Gametree)
    }
}

/// What a job is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A frame of an action, or of an animation, by its place.
    Frame(usize),
    /// A job that is due, by its place.
    Deadline(usize),
    /// The dataset.
    Dataset,
    /// A job of the batch, by its place.
    Batch(usize),
    /// The background.
    Background,
}

impl Source {
    pub(super) const fn lane(self) -> Lane {
        match self {
            Self::Frame(_) => Lane::Rendering,
            Self::Deadline(_) => Lane::Deadline,
            Self::Dataset => Lane::Dataset,
            Self::Batch(_) => Lane::Batch,
            Self::Background => Lane::Background,
        }
    }
}

/// The dataset that is worked through.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) at: Time,
    pub(super) task: dataset::Task,
    /// Where copies of its chunks lie, and the paths between hosts.
    pub(super) servers: Servers,
}

/// The batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) at: Time,
    /// How long each job takes on a core of each kind of host.
    pub(super) times: Vec<BTreeMap<Kind, Span>>,
}

/// The loads of all lanes.
#[derive(Debug)]
pub(super) struct Loads {
    pub(super) frames: Workload,
    /// Tasks of a frame: chunks of a volume.
    pub(super) tasks: u32,
    pub(super) chunk_bytes: u64,
    pub(super) deadline: Vec<DeadlineJob>,
    /// Work that a job with a deadline does again at most after it was stopped.
    pub(super) checkpoint: Span,
    pub(super) dataset: Dataset,
    pub(super) batch: Batch,
    /// How long a workunit of the background takes on a core of a render host.
    pub(super) workunit: Span,
    pub(super) replication: u8,
    /// Users ask, and jobs come, until then.
    pub(super) until: Time,
}

impl Loads {
    /// Draws them for so many render hosts with so many cores together.
    pub(super) fn draw(
        settings: &Settings,
        seed: u64,
        (render_hosts, cores): (usize, u32),
    ) -> Result<Self, String> {
        let until = Time::ZERO + span_s(settings, "length_s");
        let chunk_mib = settings.count("chunk_mib");
        let tasks = settings.count("volume_mib").div_ceil(chunk_mib);
        Ok(Self {
            frames: Workload::draw(&demand(settings), seed),
            tasks: u32::try_from(tasks).map_err(|_| "a volume has too many chunks".to_owned())?,
            chunk_bytes: chunk_mib << 20,
            deadline: deadlines(settings, seed, cores, until)?,
            checkpoint: span_s(settings, "checkpoint_s"),
            dataset: draw_dataset(settings, seed, render_hosts)?,
            batch: batch(settings),
            workunit: span_s(settings, "workunit_s"),
            replication: u8::try_from(settings.count("replication")).expect("within its range"),
            until,
        })
    }

    /// All jobs of a lane that come at some time, with that time: none for a dataset without chunks.
    pub(super) fn arrivals(&self, lane: Lane) -> Vec<(Time, Source)> {
        match lane {
            Lane::Rendering => {
                let frames = self.frames.frames.iter().enumerate();
                frames.map(|(at, frame)| (frame.at, Source::Frame(at))).collect()
            }
            Lane::Deadline => {
                let jobs = self.deadline.iter().enumerate();
                jobs.map(|(at, job)| (job.arrival, Source::Deadline(at))).collect()
            }
            Lane::Dataset if self.chunks() == 0 => Vec::new(),
            Lane::Dataset => vec![(self.dataset.at, Source::Dataset)],
            Lane::Batch => {
                let jobs = 0..self.batch.times.len();
                jobs.map(|job| (self.batch.at, Source::Batch(job))).collect()
            }
            Lane::Background => vec![(Time::ZERO, Source::Background)],
        }
    }

    /// How many chunks the dataset has.
    pub(super) fn chunks(&self) -> usize {
        self.dataset.servers.copies.len()
    }

    /// What becomes of a job's replicas that a render drives out.
    pub(super) fn on_release(&self, source: Source) -> OnRelease {
        match source {
            // Begun anew elsewhere they are done before they could go on here.
            Source::Frame(_) | Source::Dataset | Source::Batch(_) => OnRelease::Kill,
            Source::Deadline(_) => OnRelease::Checkpoint { within_s: OnRelease::SAVE_S },
            Source::Background => OnRelease::Keep { for_s: OnRelease::KEEP_S },
        }
    }

    /// What its submitter says of a job.
    pub(super) fn spec(&self, source: Source) -> JobSpec {
        let spec = match source {
            Source::Frame(frame) => self.frame(self.frames.frames[frame]),
            Source::Deadline(job) => {
                let job = &self.deadline[job];
                let mut spec = job.spec(Some(self.checkpoint));
                let kinds = [Kind::Fat, Kind::Light].map(Kind::name);
                let predicted = job.predicted.as_micros();
                spec.profile.run_time_us =
                    kinds.into_iter().map(|kind| (kind, predicted)).collect();
                // Kernels cannot save where they are; modules can.
                spec.task = Task::Wasm(WasmTask::new(Digest::of(b"segmentation")));
                spec
            }
            Source::Dataset => dataset::job(self.chunks(), self.dataset.task),
            Source::Batch(job) => {
                let times = self.batch.times[job].iter();
                let run_time_us = times.map(|(kind, time)| (kind.name(), time.as_micros()));
                let profile = Profile { run_time_us: run_time_us.collect(), ..Profile::default() };
                plain(Lane::Batch, Kernel::Pca, 1, profile)
            }
            Source::Background => {
                let (lane, kernel) = (Lane::Background, Kernel::Gametree);
                let spec = plain(lane, kernel, BACKGROUND_WORKUNITS, Profile::default());
                JobSpec { replication: self.replication, ..spec }
            }
        };
        JobSpec { on_release: self.on_release(source), ..spec }
    }

    fn frame(&self, frame: Frame) -> JobSpec {
        let reads =
            Some(Reads { dataset: volume(frame.dataset), chunk_bytes: self.chunk_bytes, first: 0 });
        let session = frame.action.map(u64::from);
        let profile = Profile { reads, session, ..Profile::default() };
        plain(Lane::Rendering, Kernel::Volume, self.tasks, profile)
    }
}

/// The dataset that a volume is.
pub(super) fn volume(number: u32) -> DatasetId {
    DatasetId::new(VOLUMES + u64::from(number))
}

fn plain(lane: Lane, kernel: Kernel, workunits: u32, profile: Profile) -> JobSpec {
    JobSpec {
        name: String::new(),
        owner: OwnerName::new("studio").expect("a plain name"),
        project: None,
        lane,
        task: Task::Kernel(kernel.name()),
        workunits: Workunits::Count(workunits),
        replication: 1,
        quorum: None,
        max_replicas: None,
        lease_s: LEASE_S_MAX,
        profile,
        trust: Trust::Fixed,
        on_release: OnRelease::Kill,
        attempts: Default::default(),
        on: None,
        cores_permille: Share::WHOLE,
        gpus: 0,
    }
}

fn demand(settings: &Settings) -> Demand {
    let length = span_s(settings, "length_s");
    let interval = span_s(settings, "interval_s");
    let size = |name| usize::try_from(settings.count(name)).expect("within its range");
    let frames_each = length.as_micros() / interval.as_micros().max(1);
    Demand {
        length,
        interactive_jobs: size("users") * usize::try_from(frames_each).expect("a day at most"),
        batch_jobs: size("animation_frames"),
        datasets: size("volumes"),
        interval,
        action_s: settings.number("action_s"),
        lengths: Lengths::Exponential,
        zipf: 0.0,
        batch_frames: size("animation_frames_at_once"),
    }
}

/// Jobs of the published shapes, made shorter: all their times by the same factor.
fn deadlines(
    settings: &Settings,
    seed: u64,
    cores: u32,
    until: Time,
) -> Result<Vec<DeadlineJob>, String> {
    let runs = tables::runs(None)?;
    let rows = tables::jobs(None, &runs)?;
    let load = settings.number("deadline_load_percent") / 100.0;
    let recipe = Recipe::new(&rows, &runs, (load, cores.max(1)), false)?;
    let shorter = settings.number("deadline_shorter");
    let span = |span: Span| Span::from_micros((span.as_micros() as f64 / shorter) as u64);
    let time = |time: Time| Time::ZERO + span(time.since(Time::ZERO));
    let most = usize::try_from(settings.count("deadline_jobs_max")).expect("within its range");
    let drawn = recipe.draw(most, &mut Dice::new(seed, DEADLINES));
    let jobs = drawn.into_iter().map(|job| DeadlineJob {
        arrival: time(job.arrival),
        due: time(job.due),
        takes: span(job.takes),
        predicted: span(job.predicted),
        ..job
    });
    Ok(jobs.filter(|job| job.arrival < until).collect())
}

fn draw_dataset(settings: &Settings, seed: u64, hosts: usize) -> Result<Dataset, String> {
    let size = |name| usize::try_from(settings.count(name)).expect("within its range");
    let copies = size("copies");
    if copies > hosts {
        return Err(format!(
            "copies is {copies} and there are {hosts} render hosts; expected no more copies than \
             hosts"
        ));
    }
    let draw = Draw {
        servers: hosts,
        chunks: size("chunks"),
        copies,
        speed: 1.0,
        speed_sigma: 0.0,
        overloaded: 0.0,
        overloaded_speed: 1.0,
        least_share: 1.0,
        server_mb_s: settings.number("link_mb_s"),
        server_sigma: 0.0,
        client_mb_s: settings.number("link_mb_s"),
        client_sigma: 0.0,
        trace: None,
    };
    let task = dataset::Task {
        work_s: settings.number("chunk_work_s"),
        output_mb: 0.0,
        chunk_mb: settings.number("chunk_mb"),
    };
    let at = Time::ZERO + span_s(settings, "dataset_at_s");
    Ok(Dataset { at, task, servers: Servers::draw(seed, &draw) })
}

/// The published study, with other times for its first job and for desktops.
fn batch(settings: &Settings) -> Batch {
    let mut study = Settings::defaults(&Npairs.parameters());
    study.set("light_s", Value::Number(settings.number("batch_light_s")));
    let speed = settings.number("desktop_speed");
    let time = |kind: Kind, components| {
        let seconds = match kind {
            Kind::Desktop => published_s(&study, Kind::Light.as_str(), components) / speed,
            farm => published_s(&study, farm.as_str(), components),
        };
        Span::from_micros((seconds * 1e6) as u64)
    };
    let kinds = [Kind::Fat, Kind::Light, Kind::Desktop];
    let of = |components| kinds.map(|kind| (kind, time(kind, components))).into();
    let first = study.count("components_min");
    let times = (first..first + settings.count("batch_jobs")).map(of).collect();
    Batch { at: Time::ZERO + span_s(settings, "batch_at_s"), times }
}
