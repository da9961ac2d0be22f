//! How fast a device takes samples at best.

use gleaner_protocol::Time;
use wgpu::{BindingResource, BufferUsages, TextureViewDescriptor};

use super::caster::{VoxelType, texture};
use super::scene::DeviceScene;
use crate::gpu::{GpuError, Program, UNIFORM, WRITTEN};
use crate::limits::{DEVICE_GROUPS_MAX, TILE};

/// How often it is tried, the first time to get the device ready.
const TRIES: usize = 4;

impl DeviceScene {
    /// Samples a second that the device takes of this scene at best: by rays beside each other along
    /// its last axis, a sample in each voxel, and without anything else that a picture needs. None
    /// where a side of the scene is shorter than a tile.
    ///
    /// # Errors
    /// The device has no memory left, was lost, or refuses.
    pub fn samples_per_second(&self, clock: &dyn Fn() -> Time) -> Result<Option<f64>, GpuError> {
        let voxels = self.scene.brick.voxels();
        let [width, height, depth] = voxels.size();
        let groups = ((width / TILE) * (height / TILE)).min(DEVICE_GROUPS_MAX);
        let samples = groups * TILE * TILE * depth.saturating_sub(1);
        if samples == 0 {
            return Ok(None);
        }
        let gpu = self.caster.gpu();
        gpu.checked("samples", || {
            let of = VoxelType::of(voxels.voxels());
            let source = format!("{}{}", of.source(), include_str!("limit.wgsl"));
            let bindings = [UNIFORM, WRITTEN, texture(of.sampled)];
            let program = Program::new(gpu, "limit", &source, &bindings);
            let sums = gpu.buffer("sums", groups * TILE * TILE * 4, BufferUsages::STORAGE);
            let view = self.room.voxels.create_view(&TextureViewDescriptor::default());
            let bound = program.bind(
                gpu,
                [
                    BindingResource::Buffer(self.room.look.as_entire_buffer_binding()),
                    BindingResource::Buffer(sums.as_entire_buffer_binding()),
                    BindingResource::TextureView(&view),
                ],
            );
            let mut best = 0.0_f64;
            for _ in 0..TRIES {
                let began = clock();
                gpu.wait(gpu.submitted("samples", |commands| {
                    program.dispatch(commands, &bound, groups);
                }))?;
                let took = clock().since(began).as_secs_f64().max(1e-6);
                best = best.max(samples as f64 / took);
            }
            Ok(Some(best))
        })
    }
}
