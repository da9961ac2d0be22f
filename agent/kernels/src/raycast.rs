//! Pictures of volumes by ray casting.
//!
//! A ray takes samples of the volume at whole multiples of the step from the eye, looks up each
//! one's colour and opacity, and puts them one behind the other until nothing shines through.
//! Where a block of cells has no value that can be seen, the ray passes to the other side in one
//! go; it still meets the very same samples after it.
//!
//! A [`Scene`] is a brick made ready to be looked at; a [`FramePlan`] takes its picture.
//!
//! ```text
//! Brick + Transfer + Look ──ScenePlan──► Scene + Camera ──FramePlan──► Frame (picture, depth)
//! ```
//!
//! # Invariants
//! A sample on the border of two bricks is taken by exactly one of them, so that pictures of
//! bricks, put behind each other [in order](nearest_first), are the picture of the whole volume.

mod camera;
mod depth;
#[cfg(feature = "gpu")]
mod device;
mod frame;
mod grid;
mod march;
mod orbit;
mod scene;
mod transfer;
mod window;

#[cfg(test)]
pub(crate) mod tests;

pub use camera::{Camera, CameraError, Projection};
pub use depth::{Depth, nearest_first};
#[cfg(feature = "gpu")]
pub use device::{Cast, Caster, DeviceFramePlan, DeviceScene, DeviceScenePlan};
#[cfg(feature = "gpu")]
pub(crate) use device::{ResidentBrick, bricks};
pub use frame::{Frame, FramePlan};
pub(crate) use orbit::Pose;
pub(crate) use scene::Borders;
pub use scene::{Look, Scene, SceneError, ScenePlan, Shading};
pub use transfer::{ControlPoint, Transfer, TransferError};
#[cfg(feature = "gpu")]
pub(crate) use window::Shown;
pub(crate) use window::{Window, cast};
