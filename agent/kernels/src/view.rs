//! Frames of views: pictures of volumes that people turn, drawn brick by brick.
//!
//! A [`ViewBrick`] is a brick that was read, with what does not depend on how it is looked at; a
//! [`ViewScene`] is one made ready for a look. Both are worth keeping from one frame to the next.
//!
//! ```text
//! file ──read──► ViewBrick ──scene──► ViewScene ──draw──► Layer ──encode──► … ──join──► RgbPicture
//!                                                            └─────────over───────────────┘   │
//!                                                                        file ◄──picture_file─┘
//! ```
//!
//! All of it is done in one go by one thread: whoever wants to end it ends its process. A GPU may draw
//! layers too, of bricks that stay there.
//!
//! # Invariants
//! What comes over the network, layers of other hosts among it, is refused where it is malformed, and
//! nothing here panics on it.

mod brick;
#[cfg(feature = "gpu")]
mod device;
mod layer;
mod picture;
mod synthetic;

#[cfg(test)]
mod tests;

pub use brick::{Level, ViewBrick, ViewScene};
#[cfg(feature = "gpu")]
pub use device::DeviceBricks;
pub use layer::{Layer, LayerError, PackedLayer, join};
pub use picture::{RgbPicture, picture_file};
pub use synthetic::{painted_number, synthetic};

use gleaner_protocol::limits::{VIEW_PIXELS_MAX, VIEW_SIDES_MAX};
use thiserror::Error;

use crate::raycast::{CameraError, SceneError, TransferError};
use crate::volume::ReadError;

/// Why a part of a frame is not drawn.
#[derive(Debug, Error)]
pub enum ViewError {
    /// Too few or too many pixels.
    #[error(
        "{} x {} pixels: each side from 1 to {VIEW_SIDES_MAX}, and {VIEW_PIXELS_MAX} pixels at most",
        .0[0], .0[1]
    )]
    Size([u32; 2]),
    /// The brick cannot be read.
    #[error("the brick cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The transfer function is none.
    #[error("transfer: {0}")]
    Transfer(#[from] TransferError),
    /// There is no picture from there.
    #[error(transparent)]
    Camera(#[from] CameraError),
    /// The brick cannot be looked at.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A layer that was to be joined is none.
    #[error("layer {index}: {source}")]
    Layer {
        /// Which one, in the order in which they came.
        index: usize,
        /// What is wrong with it.
        source: LayerError,
    },
    /// It cannot be written as JPEG.
    #[error("write a picture as JPEG: {0}")]
    Jpeg(#[from] jpeg_encoder::EncodingError),
    /// The GPU does not draw it.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Gpu(#[from] crate::gpu::GpuError),
    /// It cannot be written as PNG.
    #[error("write a picture as PNG: {0}")]
    Png(#[from] png::EncodingError),
}

#[cfg(feature = "gpu")]
impl ViewError {
    /// What a GPU says, where it is one that does not draw it.
    #[must_use]
    pub const fn of_device(&self) -> Option<&crate::gpu::GpuError> {
        match self {
            Self::Gpu(error) => Some(error),
            _ => None,
        }
    }
}

/// Sides of a picture that is drawn, in memory's numbers.
fn checked([width, height]: [u32; 2]) -> Result<[usize; 2], ViewError> {
    let side = |side: u32| (1..=VIEW_SIDES_MAX).contains(&side);
    match side(width) && side(height) && width * height <= VIEW_PIXELS_MAX {
        true => Ok([width as usize, height as usize]),
        false => Err(ViewError::Size([width, height])),
    }
}
