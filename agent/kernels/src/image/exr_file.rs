//! OpenEXR files.

use std::io::{Seek, Write};

use exr::prelude::{SpecificChannels, WritableImage};

use super::{Image, ImageError};

/// Writes a picture as OpenEXR in single precision; its colours are premultiplied, as ours are.
///
/// # Errors
/// It has no pixels, or `file` cannot be written.
pub fn write_exr(image: &Image, file: impl Write + Seek) -> Result<(), ImageError> {
    let (width, height) = (image.width(), image.height());
    if width == 0 || height == 0 {
        return Err(ImageError::Size { width, height });
    }
    let channels = SpecificChannels::rgba(|at: exr::math::Vec2<usize>| {
        let [red, green, blue, alpha] = image.pixels()[at.y() * width + at.x()];
        (red, green, blue, alpha)
    });
    let picture = exr::image::Image::from_channels((width, height), channels);
    Ok(picture.write().non_parallel().to_buffered(file)?)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use exr::prelude::{ReadChannels, ReadLayers};

    use super::*;

    #[test]
    fn a_picture_is_read_back_bit_by_bit() {
        let mut image = Image::transparent(3, 2);
        for (at, pixel) in image.pixels_mut().iter_mut().enumerate() {
            *pixel = [at as f32 * 0.1, 2.5, -0.125, 1.0];
        }
        let mut file = Cursor::new(Vec::new());
        write_exr(&image, &mut file).expect("memory");
        file.set_position(0);
        let read = exr::prelude::read()
            .no_deep_data()
            .largest_resolution_level()
            .rgba_channels(
                |size, _| vec![vec![[0.0_f32; 4]; size.width()]; size.height()],
                |rows, at, (r, g, b, a): (f32, f32, f32, f32)| rows[at.y()][at.x()] = [r, g, b, a],
            )
            .first_valid_layer()
            .all_attributes()
            .from_buffered(file)
            .expect("a picture");
        let pixels: Vec<_> = read.layer_data.channel_data.pixels.concat();
        assert_eq!(pixels, image.pixels());
    }
}
