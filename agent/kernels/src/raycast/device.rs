//! Pictures of scenes on a GPU.
//!
//! The rays are those of the processor: their first sample in a brick and its place are found
//! there, in double precision. The device then takes the samples, in single precision and in the
//! same order. So a picture differs from the processor's by less than 1/255 in each channel,
//! except where the look jumps from one value to the next: there a sample that stands on the jump
//! may be taken for one on either side.
//!
//! ```text
//! Scene ──DeviceScenePlan, layers──► DeviceScene, textures ─┐
//! Camera ── rays of some tiles, and what they saw so far ───┴─► march.wgsl ──► what they see now
//! ```
//!
//! A volume that is too large for a device goes there brick by brick, the nearest first, and each
//! goes on with the picture of those before it.

mod bricks;
mod caster;
mod frame;
mod limit;
mod scene;

#[cfg(test)]
mod tests;

pub(crate) use bricks::bricks;
pub use caster::Caster;
pub use frame::{Cast, DeviceFramePlan};
pub use scene::{DeviceScene, DeviceScenePlan};
