//! The parts of a frame, as jobs of the rendering lane.
//!
//! ```text
//! one brick, coarse level, synthetic:   Whole or Coarse ──► picture
//! bricks:                               Layer of each brick ──► Join of each strip ──► picture
//! ```
//! Layers are put together by direct send: each host that joins a strip gets that strip of all layers, from the
//! hosts that drew them. Source: Eilemann, Pajarola: Direct Send Compositing for Parallel Sort-Last Rendering,
//! 2007. Schemes with more rounds (binary swap, 2-3 swap) send as many pixels in fewer messages, but each of
//! their rounds would wait for leases of its own.

use gleaner_protocol::job::{Attempts, JobSpec, Lane, OnRelease, RunsOn, Task, Workunits};
use gleaner_protocol::limits::FRAME_STRIPS_MAX;
use gleaner_protocol::{
    DatasetId, DatasetKind, DatasetManifest, FrameStage, FrameTask, OwnerName, PictureCodec,
    Profile, ProjectName, Reads, Share, Trust, ViewKernel, ViewState, strips_max,
};
use gleaner_scheduling::visualization::Grade;

use super::ForWhom;
use crate::limits::FRAME_LEASE_S;

/// What a view is of, and whose.
#[derive(Debug, Clone)]
pub struct Scene {
    pub(super) name: String,
    /// Tells its frames apart from those of others.
    pub(super) session: u64,
    pub(super) owner: OwnerName,
    pub(super) project: Option<ProjectName>,
    pub(super) on: RunsOn,
    pub(super) kernel: ViewKernel,
    pub(super) dataset: DatasetId,
    /// Bricks of one step.
    pub(super) bricks: u32,
    pub(super) steps: u32,
    /// The longest brick, and the longest coarse volume.
    pub(super) brick_bytes: u64,
    pub(super) coarse_bytes: u64,
}

/// Pixels of all layers together that a strip more is worth: joining takes as long then as having another
/// host do it.
const STRIP_PIXELS: u64 = 1 << 20;
/// Quality of pictures that change, of those that stay, from 1 to 100.
const MOVING_QUALITY: u8 = 75;
const STILL_QUALITY: u8 = 90;

impl Scene {
    /// Of a dataset that is shown by a kernel; nothing where it is no volume in bricks. The session tells the
    /// frames of one view apart from those of others.
    #[must_use]
    pub fn new(
        name: String,
        session: u64,
        ForWhom { owner, project }: ForWhom,
        on: RunsOn,
        (kernel, dataset): (ViewKernel, DatasetId),
        manifest: &DatasetManifest,
    ) -> Option<Self> {
        let (bricks, steps) = Self::shape(manifest)?;
        let work = manifest.work_chunks() as usize;
        let coarse_bytes = manifest.chunks[work..].iter().map(|chunk| chunk.bytes).max();
        Some(Self {
            name,
            session,
            owner,
            project,
            on,
            kernel,
            dataset,
            bricks,
            steps,
            brick_bytes: manifest.longest(),
            coarse_bytes: coarse_bytes.unwrap_or(0),
        })
    }

    /// Bricks of one step and steps; none where it is no volume in bricks.
    pub(super) fn shape(manifest: &DatasetManifest) -> Option<(u32, u32)> {
        let DatasetKind::Bricks(volume) = &manifest.kind else { return None };
        Some((u32::try_from(volume.bricks_of_step()).ok()?, volume.steps))
    }

    /// Whether a coarse level is of use.
    pub(super) fn has_coarse(&self) -> bool {
        self.kernel == ViewKernel::Volume
    }

    /// In how many strips the layers of a picture are joined, where so many hosts drew the last one.
    pub(super) fn strips(&self, hosts: usize, size: [u32; 2]) -> u8 {
        if self.kernel != ViewKernel::Volume || self.bricks == 1 {
            return 1;
        }
        let [width, height] = size.map(u64::from);
        let worth = width * height * u64::from(self.bricks) / STRIP_PIXELS;
        let hosts = worth.min(hosts as u64).clamp(1, strips_max(size[1]).into());
        u8::try_from(hosts).unwrap_or(FRAME_STRIPS_MAX)
    }

    /// The first part of a frame, and the job that draws it.
    pub(super) fn first(
        &self,
        frame: u64,
        of: &ViewState,
        grade: Grade,
        size: [u32; 2],
        strips: u8,
    ) -> (FrameTask, JobSpec) {
        let step = of.step.min(self.steps.saturating_sub(1));
        let (stage, first, count, chunk_bytes) = match (self.kernel, grade) {
            (ViewKernel::Synthetic, _) => (FrameStage::Whole, None, 1, 0),
            (ViewKernel::Volume, Grade::Coarse) => {
                let first = self.bricks * self.steps + step;
                (FrameStage::Coarse, Some(first), 1, self.coarse_bytes)
            }
            (ViewKernel::Volume | ViewKernel::Paced { .. }, _) => {
                let stage = if self.bricks == 1 { FrameStage::Whole } else { FrameStage::Layer };
                (stage, Some(step * self.bricks), self.bricks, self.brick_bytes)
            }
        };
        let reads = first.map(|first| Reads { dataset: self.dataset, chunk_bytes, first });
        let strips = if stage == FrameStage::Layer { strips } else { 1 };
        let codec = match grade {
            Grade::Lossless => PictureCodec::Png,
            _ if of.moving => PictureCodec::Jpeg(MOVING_QUALITY),
            _ => PictureCodec::Jpeg(STILL_QUALITY),
        };
        let (kernel, state) = (self.kernel, of.clone());
        let task = FrameTask { frame, stage, kernel, state, size, codec, strips };
        (task.clone(), self.job(task, count, reads))
    }

    /// The job that puts the layers of a frame together, a strip by each of its tasks.
    pub(super) fn join(&self, layers: &FrameTask) -> JobSpec {
        let task = FrameTask { stage: FrameStage::Join, ..layers.clone() };
        self.job(task, layers.strips.into(), None)
    }

    fn job(&self, task: FrameTask, count: u32, reads: Option<Reads>) -> JobSpec {
        let profile = Profile { reads, session: Some(self.session), ..Profile::default() };
        JobSpec {
            name: self.name.clone(),
            owner: self.owner.clone(),
            project: self.project.clone(),
            lane: Lane::Rendering,
            task: Task::Frame(Box::new(task)),
            workunits: Workunits::Count(count),
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: FRAME_LEASE_S,
            profile,
            trust: Trust::default(),
            on_release: OnRelease::Kill,
            // What failed fails again on another host; what was lost does not.
            attempts: Attempts { failed: 1, timed_out: 1, lost: Attempts::default().lost },
            on: Some(self.on),
            cores_permille: Share::WHOLE,
            gpus: 0,
        }
    }
}

/// How large moving pictures are, so that they come in time: a part of the sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    part: f64,
    /// What is the most of all pictures, those that stay too: their layers are too large beyond.
    part_max: f64,
    /// The size that this holds for.
    asked: [u32; 2],
}

/// What a moving picture may take, in microseconds.
const MOVING_US: f64 = 30_000.0;
/// The smallest part of the sides.
const PART_MIN: f64 = 0.25;
/// What stays of the sides of what is too large: half of its bytes.
const TOO_LARGE_SHRINKS: f64 = 0.7;
/// How much of a step is taken to smaller pictures, which is urgent, and to larger ones.
const SHRINKS: f64 = 0.6;
const GROWS: f64 = 0.1;
/// Sides of moving pictures are multiples of this: a look at a few sizes, and whole blocks of JPEG.
const STEP: f64 = 16.0;

impl Default for Pace {
    fn default() -> Self {
        Self { part: 1.0, part_max: 1.0, asked: [0; 2] }
    }
}

impl Pace {
    /// The size of a picture of a state.
    pub(super) fn size(&mut self, state: &ViewState) -> [u32; 2] {
        if self.asked != state.size {
            (self.asked, self.part_max) = (state.size, 1.0);
        }
        let part = if state.moving { self.part.min(self.part_max) } else { self.part_max };
        state.size.map(|side| {
            let wanted = ((f64::from(side) * part / STEP).round() * STEP).max(STEP);
            if part < 1.0 { (wanted as u32).min(side) } else { side }
        })
    }

    /// The layers of a picture have more bytes than are joined.
    pub(super) fn note_too_large(&mut self) {
        self.part_max = (self.part_max * TOO_LARGE_SHRINKS).max(PART_MIN);
    }

    /// A moving picture took so long: time goes with the number of pixels.
    pub(super) fn note(&mut self, took_us: u64) {
        let took = (took_us as f64).max(1_000.0);
        let wanted = self.part * (MOVING_US / took).sqrt();
        let damping = if wanted < self.part { SHRINKS } else { GROWS };
        self.part = (self.part + damping * (wanted - self.part)).clamp(PART_MIN, 1.0);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gleaner_protocol::{TransferPoint, ViewCamera};

    use super::*;

    pub(in crate::views) fn state(seq: u64, moving: bool) -> ViewState {
        ViewState {
            seq,
            camera: ViewCamera {
                eye: [9.0, 0.0, 0.0],
                target: [0.0; 3],
                up: [0.0, 1.0, 0.0],
                fov_degrees: 30.0,
            },
            transfer: vec![TransferPoint { value: 1.0, colour: [1.0; 3], opacity: 0.5 }],
            opacity_unit: 1.0,
            shading: None,
            clip: [[0.0, 1.0]; 3],
            background: [0.0; 3],
            step: 0,
            size: [64, 48],
            moving,
        }
    }

    pub(in crate::views) fn scene() -> Scene {
        Scene {
            name: "view".into(),
            session: 7,
            owner: OwnerName::new("anna").expect("a plain name"),
            project: None,
            on: RunsOn::Any,
            kernel: ViewKernel::Volume,
            dataset: DatasetId::new(3),
            bricks: 8,
            steps: 2,
            brick_bytes: 100,
            coarse_bytes: 10,
        }
    }

    fn read(spec: &JobSpec) -> (u32, Option<u32>, FrameStage) {
        let Task::Frame(task) = &spec.task else { panic!("a frame") };
        (spec.workunits.len(), spec.profile.reads.map(|reads| reads.first), task.stage)
    }

    #[test]
    fn each_grade_reads_the_chunks_of_its_step() {
        let at = |step| ViewState { step, ..state(1, false) };
        let of =
            |scene: &Scene, step, grade| read(&scene.first(1, &at(step), grade, [64, 48], 2).1);
        let many = scene();
        assert_eq!(of(&many, 1, Grade::Full), (8, Some(8), FrameStage::Layer));
        assert_eq!(of(&many, 1, Grade::Coarse), (1, Some(17), FrameStage::Coarse));
        assert_eq!(of(&many, 9, Grade::Full), (8, Some(8), FrameStage::Layer), "the last step");
        let one = Scene { bricks: 1, ..scene() };
        assert_eq!(of(&one, 0, Grade::Full), (1, Some(0), FrameStage::Whole));
        let paced = ViewKernel::Paced { load_us: 1, render_us: 1 };
        let paced = Scene { kernel: paced, ..scene() };
        assert_eq!(of(&paced, 1, Grade::Full), (8, Some(8), FrameStage::Layer));
        assert!(!paced.has_coarse());
        let none = Scene { kernel: ViewKernel::Synthetic, ..scene() };
        assert_eq!(of(&none, 0, Grade::Full), (1, None, FrameStage::Whole));
        let (layers, drawn) = many.first(1, &at(0), Grade::Full, [64, 48], 2);
        let joined = many.join(&layers);
        assert_eq!(read(&joined), (2, None, FrameStage::Join));
        for spec in [drawn, joined] {
            assert_eq!(spec.check(), Ok(()));
        }
    }

    #[test]
    fn a_large_picture_is_joined_by_as_many_hosts_as_drew_the_last() {
        let many = scene();
        let strips = |scene: &Scene, hosts, size| scene.strips(hosts, size);
        assert_eq!([0, 1, 4].map(|hosts| strips(&many, hosts, [1024, 768])), [1, 1, 4]);
        assert_eq!(strips(&many, 100, [1024, 768]), 6, "more are not worth it");
        assert_eq!(strips(&Scene { bricks: 512, ..scene() }, 100, [1024, 768]), FRAME_STRIPS_MAX);
        assert_eq!(
            strips(&Scene { bricks: 512, ..scene() }, 100, [4096, 16]),
            1,
            "a row of blocks"
        );
        assert_eq!(strips(&many, 4, [64, 48]), 1);
        assert_eq!(strips(&Scene { bricks: 1, ..scene() }, 4, [4096, 1024]), 1);
        let paced = ViewKernel::Paced { load_us: 1, render_us: 1 };
        assert_eq!(strips(&Scene { kernel: paced, ..scene() }, 4, [1024, 768]), 1);
    }

    #[test]
    fn what_takes_long_becomes_smaller_and_what_stays_is_whole() {
        let mut pace = Pace::default();
        let moving = ViewState { size: [512, 384], ..state(1, true) };
        assert_eq!(pace.size(&moving), [512, 384]);
        (0..40).for_each(|_| pace.note(120_000));
        assert_eq!(pace.size(&moving), [128, 96], "no smaller than a quarter");
        assert_eq!(pace.size(&ViewState { moving: false, ..moving.clone() }), [512, 384]);
        (0..40).for_each(|_| pace.note(5_000));
        assert_eq!(pace.size(&moving), [512, 384]);
        pace.note_too_large();
        let still = ViewState { moving: false, ..moving };
        assert_eq!(pace.size(&still), [352, 272]);
        (0..40).for_each(|_| pace.note_too_large());
        assert_eq!(pace.size(&still), [128, 96]);
        assert_eq!(pace.size(&ViewState { size: [256, 192], ..still }), [256, 192], "it may fit");
    }
}
