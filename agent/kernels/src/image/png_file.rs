//! PNG files.

use std::io::Write;

use thiserror::Error;

use super::{ByteImage, Image};

/// Why a picture is not written.
#[derive(Debug, Error)]
pub enum ImageError {
    /// As PNG.
    #[error("write a picture as PNG: {0}")]
    Png(#[from] png::EncodingError),
    /// As OpenEXR.
    #[error("write a picture as OpenEXR: {0}")]
    Exr(#[from] exr::error::Error),
    /// It has no pixels, or more than the file can say.
    #[error("a picture of {width} x {height} pixels cannot be written")]
    Size {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

/// Writes a picture as PNG of eight bits a channel. PNG's colours are not premultiplied, so they
/// are divided by opacity.
///
/// # Errors
/// It has no pixels, or `file` cannot be written.
pub fn write_png(image: &Image, file: impl Write) -> Result<(), ImageError> {
    write_byte_png(&ByteImage::of(image), file)
}

/// Writes a picture of eight bits a channel as PNG.
///
/// # Errors
/// As [`write_png`].
pub fn write_byte_png(image: &ByteImage, file: impl Write) -> Result<(), ImageError> {
    let (width, height) = (image.width(), image.height());
    let size = |side: usize| u32::try_from(side).ok().filter(|side| *side > 0);
    let (Some(columns), Some(rows)) = (size(width), size(height)) else {
        return Err(ImageError::Size { width, height });
    };
    let mut encoder = png::Encoder::new(file, columns, rows);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image.bytes())?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_picture_is_read_back_with_its_opacity() {
        let mut image = Image::transparent(2, 1);
        image.pixels_mut()[1] = [0.5, 0.25, 0.0, 0.5];
        let mut file = Vec::new();
        write_png(&image, &mut file).expect("memory");
        let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a picture");
        let mut bytes = vec![0; reader.output_buffer_size().expect("small")];
        reader.next_frame(&mut bytes).expect("a frame");
        assert_eq!(bytes, [0, 0, 0, 0, 255, 128, 0, 128]);
    }

    #[test]
    fn a_picture_without_pixels_is_refused() {
        let error = write_png(&Image::transparent(0, 4), Vec::new());
        assert!(matches!(error, Err(ImageError::Size { width: 0, .. })));
    }
}
