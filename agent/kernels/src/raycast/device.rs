//! Pictures of scenes on a GPU.
//!
//! The rays are those of the processor, with the same samples in the same order: the device makes
//! them from [what those of a tile have in common](tile), in single precision, and leaves the few
//! for which that is too coarse to the processor. So a picture differs from the processor's by less
//! than 1/255 in each channel, except where the look jumps from one value to the next, or nearly
//! (`Look::is_sure`): there a sample that stands on the jump may be taken for one on
//! either side.
//!
//! ```text
//! Scene ──DeviceScenePlan, layers──► DeviceScene, textures ─┐
//! Camera ── some tiles, and what they saw so far ───────────┴─► march.wgsl ──► what they see now
//!                                                 a few rays ◄──┘
//! ```
//!
//! A volume that is too large for a device goes there brick by brick, the nearest first, and each
//! goes on with the picture of those before it.

mod bricks;
mod caster;
mod frame;
mod limit;
mod resident;
mod scene;
mod tile;

#[cfg(test)]
mod tests;

pub(crate) use bricks::bricks;
pub use caster::Caster;
pub use frame::{Cast, DeviceFramePlan};
pub(crate) use resident::ResidentBrick;
pub use scene::{DeviceScene, DeviceScenePlan};
