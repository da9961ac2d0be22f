//! The GPU that draws layers, where an order gives one and it is sooner done there.
//!
//! # Invariants
//! - The agent hears of it before it is opened. Once a brick was sent to it it stays open, until its bricks are
//!   forgotten or its process ends.

use gleaner_kernels::view::{Layer, Level, ViewScene};
use gleaner_protocol::Digest;

use super::super::FrameOrder;
use super::super::application::News;
use super::Trouble;

/// A GPU, open or not.
#[derive(Debug, Default)]
pub(super) struct FrameDevice {
    #[cfg(feature = "gpu")]
    bricks: Option<gleaner_kernels::view::DeviceBricks<(Digest, Level)>>,
    /// The bytes of the smallest brick that it had no room for.
    #[cfg(feature = "gpu")]
    too_large: Option<usize>,
}

#[cfg(feature = "gpu")]
impl FrameDevice {
    /// Draws the layer of a brick; none where the processor is to.
    pub(super) fn draw(
        &mut self,
        order: &FrameOrder,
        key: (Digest, Level),
        scene: &ViewScene,
        tell: &mut dyn FnMut(News),
    ) -> Result<Option<Layer>, Trouble> {
        use gleaner_kernels::view::DeviceBricks;
        use gleaner_protocol::boottime;

        let Some(gpu) = &order.gpu else { return Ok(None) };
        let (state, size) = (&order.task.state, order.task.size);
        let bytes = scene.device_bytes();
        if self.too_large.is_some_and(|too_large| bytes >= too_large)
            || !scene.is_sooner_on_gpus(state, size)?
            || !scene.is_alike_on_gpus()
        {
            self.leave(tell);
            return Ok(None);
        }
        let bricks = match &mut self.bricks {
            Some(bricks) => bricks,
            none => {
                tell(News::OpensGpu);
                none.insert(DeviceBricks::new(opened(gpu)?, order.bricks_mib << 20))
            }
        };
        if !bricks.has_room_for(scene) {
            self.too_large = Some(bytes);
            self.leave(tell);
            return Ok(None);
        }
        tell(News::ComputedBy(Some(bricks.gpu().name().to_owned())));
        let drawn = bricks.draw(key, scene, state, size, &boottime);
        if drawn.as_ref().is_err_and(|error| error.of_device().is_some()) {
            // To let go of one that hangs may never end.
            std::mem::forget(self.bricks.take());
        }
        Ok(drawn?)
    }

    /// The processor draws. Where nothing is there another replica may have the GPU.
    fn leave(&mut self, tell: &mut dyn FnMut(News)) {
        if self.bricks.as_ref().is_none_or(gleaner_kernels::view::DeviceBricks::is_empty) {
            self.bricks = None;
            tell(News::ComputedBy(None));
        }
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.bricks = None;
        self.too_large = None;
    }

    /// The part of the memory for bricks that is left to those which are not there: where a GPU has none
    /// of its own they share it.
    pub(super) fn share_left(&self, bytes: u64) -> u64 {
        match &self.bricks {
            Some(bricks) if !bricks.has_own_memory() => bytes / 2,
            _ => bytes,
        }
    }
}

#[cfg(feature = "gpu")]
fn opened(
    order: &super::super::GpuOrder,
) -> Result<std::sync::Arc<gleaner_kernels::gpu::Gpu>, Trouble> {
    let gpu =
        gleaner_kernels::gpu::Gpu::open_beside(order.name.as_deref(), order.pci, order.reserve_mib);
    gpu.map_err(|error| gleaner_kernels::view::ViewError::from(error).into())
}

#[cfg(not(feature = "gpu"))]
impl FrameDevice {
    /// Leaves the layer of a brick to the processor.
    pub(super) fn draw(
        &mut self,
        _: &FrameOrder,
        _: (Digest, Level),
        _: &ViewScene,
        _: &mut dyn FnMut(News),
    ) -> Result<Option<Layer>, Trouble> {
        Ok(None)
    }

    /// Does nothing.
    pub(super) fn close(&mut self) {}

    /// All of it.
    pub(super) const fn share_left(&self, bytes: u64) -> u64 {
        bytes
    }
}
