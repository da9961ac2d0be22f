//! Pictures of eight bits a channel.

use super::{Image, Rgba};

/// Red, green, blue, not times opacity, and opacity: from none, 0, to all, 255.
pub(crate) type RgbaBytes = [u8; 4];

/// A picture of eight bits a channel, rows from the top.
///
/// # Invariants
/// There are width × height pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteImage {
    width: usize,
    pixels: Vec<RgbaBytes>,
}

impl ByteImage {
    /// A picture in which nothing is to be seen.
    #[must_use]
    pub fn transparent(width: usize, height: usize) -> Self {
        Self { width, pixels: vec![[0; 4]; width * height] }
    }

    /// The same picture in fewer bits.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        Self { width: image.width(), pixels: image.pixels().iter().map(byte_pixel).collect() }
    }

    /// Pixels in a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.pixels.len().checked_div(self.width).unwrap_or(0)
    }

    /// All channels of all pixels, row by row from the top.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.pixels.as_flattened()
    }

    #[cfg(feature = "gpu")]
    pub(crate) fn pixels_mut(&mut self) -> &mut [RgbaBytes] {
        &mut self.pixels
    }
}

/// A pixel in fewer bits. What is beyond the range is at its end.
pub(crate) fn byte_pixel([red, green, blue, alpha]: &Rgba) -> RgbaBytes {
    let byte = |value: f32| (value.clamp(0.0, 1.0) * 255.0).round() as u8;
    let straight = |colour: &f32| if *alpha > 0.0 { byte(colour / alpha) } else { 0 };
    [straight(red), straight(green), straight(blue), byte(*alpha)]
}
