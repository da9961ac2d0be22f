//! Frames that say which state they are of, and show nothing else.

use gleaner_protocol::{SYNTHETIC_BITS, SYNTHETIC_SQUARES};

use super::picture::RgbPicture;
use super::{ViewError, checked};

/// Paints the lowest bits of a state's number over a plain gradient, as squares along the top of the
/// picture.
///
/// # Errors
/// There are too many pixels.
pub fn synthetic(seq: u64, size: [u32; 2]) -> Result<RgbPicture, ViewError> {
    let [width, height] = checked(size)?;
    let mut picture = RgbPicture::plain(size, [0.0; 3]);
    let along: Vec<u8> = (0..width).map(|x| (x * 200 / width) as u8).collect();
    for y in 0..height {
        let down = (y * 200 / height) as u8;
        for (x, along) in along.iter().enumerate() {
            picture.pixel_mut(x, y).copy_from_slice(&[*along, down, 128]);
        }
    }
    for (bit, [from, to]) in squares(width) {
        let shade = if seq >> bit & 1 == 1 { u8::MAX } else { 0 };
        for y in 0..side(width).min(height) {
            for x in from..to.min(width) {
                picture.pixel_mut(x, y).fill(shade);
            }
        }
    }
    Ok(picture)
}

/// The number that is painted in a picture's red, green and blue, as it is after a codec.
#[must_use]
pub fn painted_number(bytes: &[u8], width: usize) -> u64 {
    let row = side(width) / 2 * width;
    let is_white = |[from, to]: [usize; 2]| {
        let middle = 3 * (row + from.midpoint(to));
        bytes.get(middle).is_some_and(|red| *red >= 128)
    };
    squares(width).map(|(bit, square)| u64::from(is_white(square)) << bit).sum()
}

/// Where the square of each bit begins and ends in a row.
fn squares(width: usize) -> impl Iterator<Item = (u32, [usize; 2])> {
    (0..SYNTHETIC_BITS).map(move |bit| {
        let first = bit as usize * side(width);
        (bit, [first, first + side(width)])
    })
}

/// Pixels along a square's side.
fn side(width: usize) -> usize {
    (width / SYNTHETIC_SQUARES as usize).max(1)
}
