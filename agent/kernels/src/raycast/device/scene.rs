//! A scene that is on a GPU.

use std::ops::Range;
use std::sync::Arc;

use super::super::scene::Scene;
use super::caster::{Caster, Room};
use crate::gpu::GpuError;
use crate::plan::{Plan, Slice, phases};
use crate::volume::with_voxels;

/// A scene on a GPU, ready to be looked at from anywhere.
#[derive(Debug)]
pub struct DeviceScene {
    pub(super) caster: Arc<Caster>,
    pub(super) scene: Arc<Scene>,
    pub(super) room: Arc<Room>,
}

/// Sends a scene to a GPU. Its units are layers of voxels, and then of blocks: apart from those of
/// its pictures, as what fits in a slice of the one says nothing of the other.
#[derive(Debug)]
pub struct DeviceScenePlan(DeviceScene);

impl DeviceScenePlan {
    /// Gets ready to send a scene whose voxels are of the caster's type.
    ///
    /// # Errors
    /// The device has no memory left for it, was lost, or refuses.
    pub fn new(caster: Arc<Caster>, scene: Arc<Scene>) -> Result<Box<Self>, GpuError> {
        let room = Arc::new(caster.room(&scene)?);
        Ok(Box::new(Self(DeviceScene { caster, scene, room })))
    }
}

impl DeviceScene {
    pub(super) fn send(&self, is_voxels: bool, layers: Range<usize>) -> Result<(), GpuError> {
        let gpu = self.caster.gpu();
        let (texture, bytes) = if is_voxels {
            let bytes = with_voxels!(self.scene.brick.voxels().voxels(), samples => {
                bytemuck::cast_slice(samples)
            });
            (&self.room.voxels, bytes)
        } else {
            (&self.room.distances, &self.scene.distances[..])
        };
        gpu.checked("voxels", || gpu.upload(texture, layers, bytes))
    }
}

impl Plan for DeviceScenePlan {
    type Output = Arc<DeviceScene>;
    type Error = GpuError;

    fn units(&self) -> u64 {
        (self.0.scene.brick.voxels().size()[2] + self.0.scene.blocks[2]) as u64
    }

    fn run(&mut self, slice: &Slice) -> Result<(), GpuError> {
        let lengths = [self.0.scene.brick.voxels().size()[2], self.0.scene.blocks[2]];
        let mut parts = phases(slice, &lengths).into_iter();
        parts.try_for_each(|(phase, layers)| self.0.send(phase == 0, layers))
    }

    fn finish(self: Box<Self>) -> Result<Arc<DeviceScene>, GpuError> {
        Ok(Arc::new(self.0))
    }
}
