//! Pictures as people see them, and their files.

use std::ops::Range;

use gleaner_protocol::PictureCodec;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{ViewError, checked};
use crate::image::Rgba;

/// A picture of eight bits a channel that nothing shines through, rows from the top.
///
/// # Invariants
/// There are width × height pixels, of red, green and blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbPicture {
    size: [u32; 2],
    bytes: Vec<u8>,
}

impl RgbPicture {
    /// A picture of one colour.
    pub(super) fn plain(size: [u32; 2], colour: [f32; 3]) -> Self {
        let pixel = colour.map(byte);
        let count = size[0] as usize * size[1] as usize;
        Self { size, bytes: pixel.repeat(count) }
    }

    /// Pixels in a row, and rows.
    #[must_use]
    pub const fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Red, green and blue of all pixels, row by row from the top.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The pixel at a place.
    pub(super) fn pixel_mut(&mut self, x: usize, y: usize) -> &mut [u8] {
        let at = 3 * (y * self.size[0] as usize + x);
        &mut self.bytes[at..at + 3]
    }

    /// Puts a run of a row over a background.
    pub(super) fn put(
        &mut self,
        y: usize,
        columns: Range<usize>,
        row: &[Rgba],
        background: [f32; 3],
    ) {
        let first = y * self.size[0] as usize;
        let bytes = &mut self.bytes[3 * (first + columns.start)..3 * (first + columns.end)];
        let [red, green, blue] = background;
        for (pixel, colour) in bytes.as_chunks_mut::<3>().0.iter_mut().zip(row) {
            let through = 1.0 - colour[3];
            *pixel = [
                byte(colour[0] + through * red),
                byte(colour[1] + through * green),
                byte(colour[2] + through * blue),
            ];
        }
    }
}

#[inline(always)]
fn byte(channel: f32) -> u8 {
    // What is beyond its ends is at its ends.
    (channel * 255.0 + 0.5) as u8
}

/// From this quality on colours are written at full size.
const FULL_COLOURS: u8 = 90;

/// Writes a picture's file.
///
/// # Errors
/// It cannot be written so.
pub fn picture_file(picture: &RgbPicture, codec: PictureCodec) -> Result<Vec<u8>, ViewError> {
    let [width, height] = checked(picture.size)?;
    let mut file = Vec::with_capacity(picture.bytes.len() / 8);
    match codec {
        PictureCodec::Jpeg(quality) => {
            let quality = quality.clamp(1, 100);
            let mut encoder = Encoder::new(&mut file, quality);
            encoder.set_sampling_factor(match quality < FULL_COLOURS {
                true => SamplingFactor::R_4_2_0,
                false => SamplingFactor::R_4_4_4,
            });
            // There are no more than 4096.
            encoder.encode(&picture.bytes, width as u16, height as u16, ColorType::Rgb)?;
        }
        PictureCodec::Png => {
            let [columns, rows] = picture.size;
            let mut encoder = png::Encoder::new(&mut file, columns, rows);
            encoder.set_color(png::ColorType::Rgb);
            encoder.set_depth(png::BitDepth::Eight);
            encoder.set_compression(png::Compression::Fast);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&picture.bytes)?;
            writer.finish()?;
        }
    }
    Ok(file)
}
