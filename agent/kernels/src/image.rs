//! Pictures.

mod bytes;
mod exr_file;
mod png_file;

pub use bytes::ByteImage;
#[cfg(feature = "gpu")]
pub(crate) use bytes::{RgbaBytes, byte_pixel};
pub use exr_file::write_exr;
pub use png_file::{ImageError, write_byte_png, write_png};

/// Red, green, blue, each times opacity, and opacity.
pub type Rgba = [f32; 4];

/// A picture of premultiplied colours, rows from the top.
///
/// # Invariants
/// There are width × height pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    width: usize,
    pixels: Vec<Rgba>,
}

/// A picture in as many bits as are asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// In single precision.
    Full(Image),
    /// In eight bits a channel, as [`ByteImage::of`] has it.
    Bytes {
        /// The picture.
        image: ByteImage,
        /// Pixels that show something, however little.
        seen: usize,
    },
}

impl Picture {
    /// Pixels that show something.
    #[must_use]
    pub fn seen(&self) -> usize {
        match self {
            Self::Full(image) => image.pixels().iter().filter(|pixel| pixel[3] > 0.0).count(),
            Self::Bytes { seen, .. } => *seen,
        }
    }

    /// Its pixels, where it is in single precision.
    #[cfg(feature = "gpu")]
    pub(crate) fn into_pixels(self) -> Option<Vec<Rgba>> {
        match self {
            Self::Full(image) => Some(image.pixels),
            Self::Bytes { .. } => None,
        }
    }

    /// The greatest opacity of a pixel, from 0 to 1.
    #[must_use]
    pub fn greatest_opacity(&self) -> f32 {
        match self {
            Self::Full(image) => image.pixels().iter().map(|pixel| pixel[3]).fold(0.0, f32::max),
            Self::Bytes { image, .. } => {
                let opacities = image.bytes().iter().skip(3).step_by(4);
                opacities.max().map_or(0.0, |most| f32::from(*most) / 255.0)
            }
        }
    }
}

impl Image {
    /// A picture in which nothing is to be seen.
    #[must_use]
    pub fn transparent(width: usize, height: usize) -> Self {
        Self { width, pixels: vec![[0.0; 4]; width * height] }
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

    /// All pixels, row by row from the top.
    #[must_use]
    pub fn pixels(&self) -> &[Rgba] {
        &self.pixels
    }

    pub(crate) fn pixels_mut(&mut self) -> &mut [Rgba] {
        &mut self.pixels
    }

    /// The largest difference between two pictures of one size, over all pixels and channels.
    /// `None` where their sizes differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<f32> {
        (self.width == other.width && self.pixels.len() == other.pixels.len()).then(|| {
            let pairs = self.pixels.iter().flatten().zip(other.pixels.iter().flatten());
            let apart = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
            // What is no number is as far from any as can be.
            let apart = pairs.map(apart).map(|by| if by.is_nan() { f32::INFINITY } else { by });
            apart.fold(0.0, f32::max)
        })
    }
}

/// Puts `back` behind `front`: what shines through `front` of it is added.
#[inline(always)]
pub fn under(front: &mut Rgba, back: &Rgba) {
    let through = 1.0 - front[3];
    for (front, back) in front.iter_mut().zip(back) {
        *front += through * back;
    }
}
