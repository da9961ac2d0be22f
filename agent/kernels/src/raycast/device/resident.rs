//! A brick that stays on a GPU from one picture to the next, whatever it looks like there.

use std::sync::{Arc, Weak};

use super::super::scene::Scene;
use super::caster::{Caster, Room};
use super::scene::DeviceScene;
use crate::gpu::GpuError;

/// The voxels of a brick on a GPU, with the look that they had last. Nothing of the brick is kept here
/// for it.
#[derive(Debug)]
pub(crate) struct ResidentBrick {
    caster: Arc<Caster>,
    room: Arc<Room>,
    /// What it was looked at as last.
    scene: Weak<Scene>,
}

impl ResidentBrick {
    /// That of a scene which is there.
    pub(crate) fn of(there: &DeviceScene) -> Self {
        let DeviceScene { caster, scene, room } = there;
        Self { caster: Arc::clone(caster), room: Arc::clone(room), scene: Arc::downgrade(scene) }
    }

    /// What casts rays through it.
    pub(crate) const fn caster(&self) -> &Arc<Caster> {
        &self.caster
    }

    /// A scene of the same brick there: of voxels none is sent.
    ///
    /// # Errors
    /// The device has no memory left for another look, was lost, or refuses.
    pub(crate) fn scene(&mut self, scene: &Arc<Scene>) -> Result<Arc<DeviceScene>, GpuError> {
        // While the weak one lives no other scene is where that one was.
        let is_known = std::ptr::eq(self.scene.as_ptr(), Arc::as_ptr(scene));
        if !is_known {
            self.room = Arc::new(self.caster.room_beside(scene, &self.room.voxels)?);
            // Until its blocks are there, it is of no scene.
            self.scene = Weak::new();
        }
        let there = DeviceScene {
            caster: Arc::clone(&self.caster),
            scene: Arc::clone(scene),
            room: Arc::clone(&self.room),
        };
        if !is_known {
            there.send(false, 0..scene.blocks[2])?;
            self.scene = Arc::downgrade(scene);
        }
        Ok(Arc::new(there))
    }
}
