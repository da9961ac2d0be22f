//! Pictures of bricks, on their way to where they are put behind each other.
//!
//! A layer in bytes, numbers with their little end first; none at all where nothing shows:
//!
//! ```text
//! "GLL1"                what it is
//! 1 byte                bytes of a channel, 1 or 2
//! 2 × 2 bytes           pixels in a row of the picture, and its rows
//! 2 × 2 bytes           the first row that follows, and how many do
//! 3 × 8 bytes           how deep it is, as floating-point numbers
//! for each row
//!     2 bytes           spans of pixels that are not clear
//!     for each span
//!         2 × 2 bytes   its first column, and its pixels
//!         channels      red, green, blue, each times opacity, and opacity of each pixel
//! ```

use std::ops::Range;

use thiserror::Error;

use super::picture::RgbPicture;
use super::{ViewError, checked};
use crate::image::{Rgba, under};
use crate::raycast::{Depth, Window};

const MAGIC: [u8; 4] = *b"GLL1";

/// What shows of a brick in a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    size: [u32; 2],
    window: Window,
}

/// Why bytes are no layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LayerError {
    /// They begin with something else.
    #[error("it is no layer, or one of another release")]
    Unknown,
    /// It is of another picture.
    #[error("it is of a picture of {} x {} pixels, not of {} x {}", .0[0], .0[1], .1[0], .1[1])]
    Size([u32; 2], [u32; 2]),
    /// A row or a column that the picture, or the strip of it that is joined, does not have, or one that
    /// comes twice.
    #[error("it has pixels where its picture, or this strip of it, has none")]
    Place,
    /// Its depth is no number.
    #[error("its depth is no number")]
    Depth,
    /// Its end is missing, or something follows.
    #[error("it has {0} bytes, and says that it has more, or fewer")]
    Length(usize),
}

/// A layer in bytes that were checked.
#[derive(Debug, Clone, Copy)]
pub struct PackedLayer<'a> {
    depth: Depth,
    channel_bytes: usize,
    first_row: usize,
    rows: usize,
    /// The rows, one after the other.
    content: &'a [u8],
}

impl Layer {
    pub(super) const fn new(window: Window, size: [u32; 2]) -> Self {
        Self { size, window }
    }

    #[cfg(all(test, feature = "gpu"))]
    pub(super) const fn window(&self) -> &Window {
        &self.window
    }

    /// In bytes, what it has in these rows of the picture; none where nothing shows there. Of two bytes a
    /// channel or one: half of what a picture of eight bits tells apart is lost then with each layer.
    #[must_use]
    pub fn encode(&self, is_deep: bool, strip: Range<u32>) -> Vec<u8> {
        let strip = strip.start as usize..strip.end as usize;
        match is_deep {
            true => self.encode_by(2, strip, |of| ((of * 65535.0 + 0.5) as u16).to_le_bytes()),
            false => self.encode_by(1, strip, |of| [(of * 255.0 + 0.5) as u8]),
        }
    }

    fn encode_by<const N: usize>(
        &self,
        bytes: u8,
        strip: Range<usize>,
        channel: impl Fn(f32) -> [u8; N],
    ) -> Vec<u8> {
        let Window { columns, rows, pixels, depth } = &self.window;
        let width = columns.len().max(1);
        let mut packed = vec![[[0; N]; 4]; columns.len()];
        let clear = [[0; N]; 4];
        // Sides fit in two bytes: there are no more than 4096.
        let short = |number: usize| (number as u16).to_le_bytes();
        let mut out = vec![0; HEAD_BYTES];
        let (mut first, mut end, mut end_bytes) = (None, 0, HEAD_BYTES);
        let in_strip = rows.clone().zip(pixels.chunks(width));
        let in_strip = in_strip.skip(strip.start.saturating_sub(rows.start));
        for (y, row) in in_strip.take_while(|(y, _)| *y < strip.end) {
            for (packed, pixel) in packed.iter_mut().zip(row) {
                *packed = pixel.map(|of| channel(of.clamp(0.0, 1.0)));
            }
            let count_at = out.len();
            out.extend(short(0));
            let (mut spans, mut x) = (0, 0);
            while let Some(from) = packed[x..].iter().position(|pixel| *pixel != clear) {
                let from = x + from;
                let length = packed[from..].iter().position(|pixel| *pixel == clear);
                x = length.map_or(packed.len(), |length| from + length);
                spans += 1;
                out.extend(short(columns.start + from));
                out.extend(short(x - from));
                out.extend_from_slice(packed[from..x].as_flattened().as_flattened());
            }
            if spans > 0 {
                out[count_at..count_at + 2].copy_from_slice(&short(spans));
                first.get_or_insert(y);
                (end, end_bytes) = (y + 1, out.len());
            } else if first.is_none() {
                out.truncate(count_at);
            }
        }
        let Some(first) = first else { return Vec::new() };
        out.truncate(end_bytes);
        let [wide, high] = self.size.map(|side| side as usize);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend(MAGIC);
        head.push(bytes);
        [wide, high, first, end - first].iter().for_each(|number| head.extend(short(*number)));
        depth.numbers().iter().for_each(|number| head.extend(number.to_le_bytes()));
        out[..HEAD_BYTES].copy_from_slice(&head);
        out
    }

    /// The picture that it is by itself, over a background.
    #[must_use]
    pub fn over(&self, background: [f32; 3]) -> RgbPicture {
        let mut picture = RgbPicture::plain(self.size, background);
        let Window { columns, rows, pixels, .. } = &self.window;
        if !columns.is_empty() {
            for (y, row) in rows.clone().zip(pixels.chunks(columns.len())) {
                picture.put(y, columns.clone(), row, background);
            }
        }
        picture
    }
}

/// Bytes before the first row.
const HEAD_BYTES: usize = 4 + 1 + 4 * 2 + 3 * 8;

/// What is left of bytes that are read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn short(&mut self) -> Option<usize> {
        self.take().map(|bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    fn number(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> PackedLayer<'a> {
    /// Checks that bytes are a layer of a picture of this size.
    ///
    /// # Errors
    /// They are not.
    pub fn read(bytes: &'a [u8], size: [u32; 2]) -> Result<Self, LayerError> {
        let short = LayerError::Length(bytes.len());
        let mut left = Reader(bytes);
        if left.take() != Some(MAGIC) {
            return Err(LayerError::Unknown);
        }
        let channel_bytes = match left.take().ok_or(short)? {
            [bytes @ 1..=2] => usize::from(bytes),
            _ => return Err(LayerError::Unknown),
        };
        let [width, height, first_row, rows] = [(); 4].map(|()| left.short());
        let (width, height) = (width.ok_or(short)?, height.ok_or(short)?);
        let (first_row, rows) = (first_row.ok_or(short)?, rows.ok_or(short)?);
        let found = [width as u32, height as u32];
        if found != size {
            return Err(LayerError::Size(found, size));
        }
        if first_row + rows > height {
            return Err(LayerError::Place);
        }
        let [x, y, z] = [(); 3].map(|()| left.number());
        let depth = [x.ok_or(short)?, y.ok_or(short)?, z.ok_or(short)?];
        let depth = Depth::of_numbers(depth).ok_or(LayerError::Depth)?;
        let content = left.0;
        for _ in 0..rows {
            let mut free = 0;
            for _ in 0..left.short().ok_or(short)? {
                let (from, length) = (left.short().ok_or(short)?, left.short().ok_or(short)?);
                if from < free || length == 0 || from + length > width {
                    return Err(LayerError::Place);
                }
                left.slice(length * 4 * channel_bytes).ok_or(short)?;
                free = from + length;
            }
        }
        match left.0.is_empty() {
            true => Ok(Self { depth, channel_bytes, first_row, rows, content }),
            false => Err(short),
        }
    }

    /// Whether all that it has is in these rows of the picture.
    fn is_within(&self, strip: &Range<usize>) -> bool {
        strip.start <= self.first_row && self.first_row + self.rows <= strip.end
    }

    /// Puts it behind what is seen, in pixels of the rows of a picture `width` wide from `first` on.
    fn put_behind(&self, first: usize, width: usize, pixels: &mut [Rgba]) {
        let mut left = Reader(self.content);
        let above = self.first_row.saturating_sub(first);
        for row in pixels.chunks_exact_mut(width).skip(above).take(self.rows) {
            for _ in 0..left.short().unwrap_or(0) {
                let (from, length) = (left.short().unwrap_or(0), left.short().unwrap_or(0));
                let colours = left.slice(length * 4 * self.channel_bytes).unwrap_or(&[]);
                let Some(front) = row.get_mut(from..from + length) else { continue };
                match self.channel_bytes {
                    1 => put_each(front, colours.as_chunks::<4>().0, |colour| {
                        colour.map(|channel| f32::from(channel) * (1.0 / 255.0))
                    }),
                    _ => put_each(front, colours.as_chunks::<8>().0, |colour| {
                        let channel = |at: usize| u16::from_le_bytes([colour[at], colour[at + 1]]);
                        [0, 2, 4, 6].map(|at| f32::from(channel(at)) * (1.0 / 65535.0))
                    }),
                }
            }
        }
    }
}

#[inline(always)]
fn put_each<const N: usize>(
    front: &mut [Rgba],
    colours: &[[u8; N]],
    colour: impl Fn([u8; N]) -> Rgba,
) {
    for (front, bytes) in front.iter_mut().zip(colours) {
        under(front, &colour(*bytes));
    }
}

/// Puts layers behind each other, the nearest first, over a background: these rows of the picture of that
/// size, and the layers have nothing in others.
///
/// # Errors
/// There are too many pixels, no rows, or one of the layers is none of such a picture.
pub fn join(
    layers: &[&[u8]],
    background: [f32; 3],
    size: [u32; 2],
    strip: Range<u32>,
) -> Result<RgbPicture, ViewError> {
    checked(size)?;
    let of_strip = [size[0], strip.end.min(size[1]).saturating_sub(strip.start)];
    let [width, height] = checked(of_strip)?;
    let strip = strip.start as usize..strip.start as usize + height;
    let mut read = Vec::with_capacity(layers.len());
    for (index, bytes) in layers.iter().copied().enumerate().filter(|(_, bytes)| !bytes.is_empty())
    {
        let layer =
            PackedLayer::read(bytes, size).and_then(|layer| match layer.is_within(&strip) {
                true => Ok(layer),
                false => Err(LayerError::Place),
            });
        read.push(layer.map_err(|source| ViewError::Layer { index, source })?);
    }
    read.sort_by_key(|layer| layer.depth);
    let mut pixels = vec![[0.0; 4]; width * height];
    for layer in &read {
        layer.put_behind(strip.start, width, &mut pixels);
    }
    let mut picture = RgbPicture::plain(of_strip, background);
    let columns = 0..width;
    for (y, row) in pixels.chunks_exact(width).enumerate() {
        picture.put(y, columns.clone(), row, background);
    }
    Ok(picture)
}
