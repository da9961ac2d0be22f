//! Layers that a GPU draws, of bricks that stay in its memory.
//!
//! ```text
//!              voxels, once                       a look, when it changes
//! ViewScene ─────────────────► DeviceBricks ◄───────────────────────────── ViewScene
//!                                    │ draw: a camera
//!                                    └──────────────► Layer
//! ```
//!
//! # Invariants
//! - What stays there takes no more of the device's memory than its data may take.
//! - Voxels are sent once for as long as they stay, from wherever and as whatever they are looked at.
//! - No more than a slice is beyond recall, as of any other work on a device.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use gleaner_protocol::{GpuKind, Time, ViewState};

use super::{Layer, ViewError, ViewScene};
use crate::gpu::{Gpu, GpuError};
use crate::limits::DEVICE_VIEW_SAMPLES_MIN;
use crate::raycast::{
    Caster, Depth, DeviceFramePlan, DeviceScene, DeviceScenePlan, ResidentBrick, Scene, Shown,
    Window,
};
use crate::{Outcome, Pace, Plan, Preempt, run};

impl ViewScene {
    /// Whether a GPU draws the same of it, within what pictures may differ by: where a look jumps from one
    /// value to the next, or nearly, a sample that stands there may be taken for one on either side.
    #[must_use]
    pub fn is_alike_on_gpus(&self) -> bool {
        let brick = self.scene.brick();
        let spacing = brick.voxels().spacing();
        *self.is_alike.get_or_init(|| self.look.is_sure(brick.whole_size(), spacing))
    }

    /// Bytes that it takes of a device's memory.
    #[must_use]
    pub fn device_bytes(&self) -> usize {
        Caster::scene_bytes(&self.scene)
    }

    /// Whether a GPU may be done sooner than a processor with what [`ViewScene::draw`] draws: where rays
    /// have more samples to take than go by while a device is told what to do, and brings it back.
    ///
    /// # Errors
    /// As [`ViewScene::draw`].
    pub fn is_sooner_on_gpus(&self, state: &ViewState, size: [u32; 2]) -> Result<bool, ViewError> {
        let (camera, clip) = self.placed(state, size)?;
        let shown = Shown::of(&self.scene, &camera, &clip);
        Ok(shown.is_some_and(|shown| shown.samples_max(&self.scene) >= DEVICE_VIEW_SAMPLES_MIN))
    }
}

/// Bricks in the memory of a GPU, by what the caller knows them by; those used last at the end.
#[derive(Debug)]
pub struct DeviceBricks<K> {
    gpu: Arc<Gpu>,
    /// Bytes that they may take together.
    bytes_max: usize,
    kept: Vec<Kept<K>>,
    /// What cast rays last, which is worth keeping where no brick is.
    caster: Option<Arc<Caster>>,
    /// Of pictures.
    pace: Pace,
    /// How many were sent so far.
    sent: u64,
}

#[derive(Debug)]
struct Kept<K> {
    key: K,
    brick: ResidentBrick,
    bytes: usize,
}

impl<K: PartialEq> DeviceBricks<K> {
    /// None yet, and room for as many as take what the device's memory has left. Where it has none of its
    /// own, they take half of `shared_bytes`.
    #[must_use]
    pub fn new(gpu: Arc<Gpu>, shared_bytes: u64) -> Self {
        let most = match has_own_memory(&gpu) {
            true => usize::MAX,
            false => usize::try_from(shared_bytes / 2).unwrap_or(usize::MAX),
        };
        let bytes_max = most.min(gpu.data_bytes_max());
        let (kept, caster, pace) = (Vec::new(), None, Pace::new());
        Self { gpu, bytes_max, kept, caster, pace, sent: 0 }
    }

    /// The device.
    #[must_use]
    pub const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Whether they take nothing of this machine's memory.
    #[must_use]
    pub fn has_own_memory(&self) -> bool {
        has_own_memory(&self.gpu)
    }

    /// How many bricks were sent there so far.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes of the device's memory that those take which are there.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// Whether none is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether the device has room for a brick, where need be in the place of all others.
    #[must_use]
    pub fn has_room_for(&self, scene: &ViewScene) -> bool {
        self.fits(&scene.scene)
    }

    fn fits(&self, scene: &Scene) -> bool {
        let voxels = scene.brick().voxels();
        let (side_max, voxels_max) = Caster::brick_max(&self.gpu, voxels.voxels());
        let sides = voxels.size();
        sides.iter().all(|side| *side <= side_max)
            && sides.iter().product::<usize>() <= voxels_max
            && Caster::scene_bytes(scene) <= self.bytes_max
    }

    /// Draws what [`ViewScene::draw`] does, of the brick that is known by this key; none where the device
    /// [has no room](Self::has_room_for) for it. What is to make way for it goes before it comes.
    ///
    /// # Errors
    /// As [`ViewScene::draw`], and the device's own, after which nothing is to be expected of it.
    pub fn draw(
        &mut self,
        key: K,
        scene: &ViewScene,
        state: &ViewState,
        size: [u32; 2],
        clock: &dyn Fn() -> Time,
    ) -> Result<Option<Layer>, ViewError> {
        let (camera, clip) = scene.placed(state, size)?;
        let scene = &scene.scene;
        let depth = Depth::of(scene.brick(), &camera);
        let Some(shown) = Shown::of(scene, &camera, &clip) else {
            return Ok(Some(Layer::new(Window::nothing(depth), size)));
        };
        if !self.fits(scene) {
            return Ok(None);
        }
        let there = self.bring(key, scene, Caster::scene_bytes(scene), clock)?;
        let plan = DeviceFramePlan::of_shown(there, camera, &shown);
        let cast = performed(plan, &mut self.pace, clock)?;
        self.pace.ease();
        let Shown { columns, rows, .. } = shown;
        let pixels = cast.picture.into_pixels().expect("it is taken in single precision");
        let window = Window { columns, rows, pixels, depth };
        Ok(Some(Layer::new(window, size)))
    }

    /// A scene on the device. Its brick is the last one then.
    fn bring(
        &mut self,
        key: K,
        scene: &Arc<Scene>,
        bytes: usize,
        clock: &dyn Fn() -> Time,
    ) -> Result<Arc<DeviceScene>, GpuError> {
        if let Some(at) = self.kept.iter().position(|kept| kept.key == key) {
            let mut kept = self.kept.remove(at);
            // Another look has another table.
            kept.bytes = bytes;
            self.shrink(self.bytes_max - bytes)?;
            let there = kept.brick.scene(scene)?;
            self.kept.push(kept);
            return Ok(there);
        }
        self.shrink(self.bytes_max - bytes)?;
        let plan = DeviceScenePlan::new(self.caster_of(scene)?, Arc::clone(scene))?;
        let there = performed(plan, &mut Pace::new(), clock)?;
        self.sent += 1;
        self.kept.push(Kept { key, brick: ResidentBrick::of(&there), bytes });
        Ok(there)
    }

    /// What casts rays through voxels of a scene's type.
    fn caster_of(&mut self, scene: &Scene) -> Result<Arc<Caster>, GpuError> {
        let voxels = scene.brick().voxels().voxels();
        let of_bricks = self.kept.iter().map(|kept| kept.brick.caster());
        let mut known = self.caster.iter().chain(of_bricks);
        let caster = match known.find(|caster| caster.is_for(voxels)) {
            Some(caster) => Arc::clone(caster),
            None => Caster::of_largest(Arc::clone(&self.gpu), voxels)?,
        };
        self.caster = Some(Arc::clone(&caster));
        Ok(caster)
    }

    /// Forgets those used longest ago, until the rest takes no more than so many bytes.
    fn shrink(&mut self, bytes_max: usize) -> Result<(), GpuError> {
        let mut bytes = self.bytes();
        let over = self.kept.iter().take_while(|kept| {
            let is_over = bytes > bytes_max;
            bytes -= kept.bytes;
            is_over
        });
        let over = over.count();
        if over == 0 {
            return Ok(());
        }
        self.kept.drain(..over);
        // The device gives their memory back when it is looked after.
        self.gpu.checked("bricks", || Ok(()))
    }
}

fn has_own_memory(gpu: &Gpu) -> bool {
    matches!(gpu.info().kind, GpuKind::Discrete | GpuKind::Virtual)
}

/// What comes of a plan that nobody stops but by ending this process.
fn performed<P: Plan<Error = GpuError>>(
    plan: Box<P>,
    pace: &mut Pace,
    clock: &dyn Fn() -> Time,
) -> Result<P::Output, GpuError> {
    match run(plan, &Preempt::new(), pace, clock, &mut |_| ())? {
        Outcome::Done(output) => Ok(output),
        Outcome::Stopped { .. } => unreachable!("nobody asks it to stop"),
    }
}
