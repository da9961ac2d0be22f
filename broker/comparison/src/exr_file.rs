//! OpenEXR files of one layer in one resolution.

use std::collections::HashSet;
use std::io::Cursor;

use exr::block::chunk::CompressedBlock;
use exr::image::{AnyChannel, FlatSamples};
use exr::math::Vec2;
use exr::meta::attribute::LevelMode;
use exr::meta::header::Header;
use exr::meta::{BlockDescription, MetaData};
use exr::prelude::{ReadChannels, ReadLayers};

use crate::kind::CHANNEL;
use crate::limits::UNPACKED_BYTES_MAX;

/// Files are held to all that their format asks for.
const PEDANTIC: bool = true;

/// Whether two files are alike.
pub(crate) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let about = readable(one);
    if about.is_none() || about != readable(other) || !is_whole(one) || !is_whole(other) {
        return false;
    }
    let (Some(one), Some(other)) = (channels(one), channels(other)) else { return false };
    let near = |(one, other): (&AnyChannel<_>, &AnyChannel<_>)| {
        one.name == other.name && are_near(&one.sample_data, &other.sample_data)
    };
    one.len() == other.len() && one.iter().zip(&other).all(near)
}

/// All that a file says beside its pixels, if these can be compared.
fn readable(file: &[u8]) -> Option<MetaData> {
    let about = MetaData::read_from_buffered(Cursor::new(file), PEDANTIC).ok()?;
    let [header] = about.headers.as_slice() else { return None };
    let pixels = header.layer_size.width().checked_mul(header.layer_size.height())?;
    let bytes = pixels.checked_mul(header.channels.bytes_per_pixel)?;
    let is_one_picture = !header.deep
        && match header.blocks {
            BlockDescription::ScanLines => true,
            BlockDescription::Tiles(tiles) => tiles.level_mode == LevelMode::Singular,
        };
    (is_one_picture && bytes <= UNPACKED_BYTES_MAX).then_some(about)
}

/// Whether each block of pixels is there, once, and nothing behind them: a reader may take what is
/// missing for black.
fn is_whole(file: &[u8]) -> bool {
    let mut at = Cursor::new(file);
    let mut blocks = || {
        let reader = exr::block::read(&mut at, PEDANTIC).ok()?;
        let header = reader.headers().first()?.clone();
        let grid = grid_of(&header);
        let mut places = HashSet::new();
        for chunk in reader.all_chunks(PEDANTIC).ok()? {
            let place = place_of(&header, &chunk.ok()?.compressed_block)?;
            let is_inside = place.x() < grid.x() && place.y() < grid.y();
            if !is_inside || !places.insert(place) {
                return None;
            }
        }
        Some(places.len() == grid.x().checked_mul(grid.y())?)
    };
    blocks().unwrap_or(false) && at.position() == file.len() as u64
}

/// How many blocks the picture has from left to right, and from top to bottom.
fn grid_of(header: &Header) -> Vec2<usize> {
    let block = header.max_block_pixel_size();
    let Vec2(width, height) = header.layer_size;
    Vec2(width.div_ceil(block.width().max(1)), height.div_ceil(block.height().max(1)))
}

/// The place of a block as a reader takes it; none where it would take it for more or less of the
/// picture than stands there.
fn place_of(header: &Header, block: &CompressedBlock) -> Option<Vec2<usize>> {
    let taken = header.get_block_data_indices(block).ok()?;
    let is_exact = match block {
        CompressedBlock::ScanLine(lines) => {
            let top = i64::from(header.own_attributes.layer_position.y());
            let above = i64::from(lines.y_coordinate) - top;
            above % i64::try_from(header.compression.scan_lines_per_block()).ok()? == 0
        }
        CompressedBlock::Tile(_) => taken.level_index == Vec2(0, 0),
        CompressedBlock::DeepScanLine(_) | CompressedBlock::DeepTile(_) => false,
    };
    is_exact.then_some(taken.tile_index)
}

fn channels(file: &[u8]) -> Option<Vec<AnyChannel<FlatSamples>>> {
    let read = exr::prelude::read()
        .no_deep_data()
        .largest_resolution_level()
        .all_channels()
        .first_valid_layer()
        .all_attributes()
        .pedantic()
        .non_parallel()
        .from_buffered(Cursor::new(file));
    Some(read.ok()?.layer_data.channel_data.list.into_vec())
}

fn are_near(one: &FlatSamples, other: &FlatSamples) -> bool {
    match (one, other) {
        (FlatSamples::F32(one), FlatSamples::F32(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_near(*a, *b))
        }
        (FlatSamples::F16(one), FlatSamples::F16(other)) => {
            let near = |(a, b): (&exr::prelude::f16, &exr::prelude::f16)| {
                a.to_bits() == b.to_bits() || is_near(a.to_f32(), b.to_f32())
            };
            one.len() == other.len() && one.iter().zip(other).all(near)
        }
        (FlatSamples::U32(one), FlatSamples::U32(other)) => one == other,
        _ => false,
    }
}

fn is_near(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits() || (one - other).abs() <= CHANNEL
}

#[cfg(test)]
mod tests {
    use exr::image::{Blocks, Encoding, Layer};
    use exr::meta::attribute::LineOrder;
    use exr::meta::header::LayerAttributes;
    use exr::prelude::{Compression, SpecificChannels, WritableImage};

    use super::*;

    fn exr(width: usize, channels: &[[f32; 4]], aspect: f32) -> Vec<u8> {
        let pixels = SpecificChannels::rgba(|at: Vec2<usize>| {
            let [r, g, b, a] = channels[at.y() * width + at.x()];
            (r, g, b, a)
        });
        let size = (width, channels.len() / width);
        let mut file = Cursor::new(Vec::new());
        let mut picture = exr::image::Image::from_channels(size, pixels);
        picture.attributes.pixel_aspect = aspect;
        picture.write().non_parallel().to_buffered(&mut file).expect("memory");
        file.into_inner()
    }

    #[test]
    fn a_picture_is_like_one_that_no_channel_of_which_differs_by_more() {
        let one = exr(2, &[[0.5, 2.0, f32::INFINITY, 1.0], [0.0; 4]], 1.0);
        let with = |red: f32| exr(2, &[[red, 2.0, f32::INFINITY, 1.0], [0.0; 4]], 1.0);
        assert!(are_alike(&one, &with(0.5 + 0.9 * CHANNEL)));
        assert!(!are_alike(&one, &with(0.5 + 1.1 * CHANNEL)));
        assert!(!are_alike(&one, &with(f32::NAN)));
        assert!(!are_alike(&one, &with(f32::INFINITY)));
        assert!(!are_alike(&one, &exr(1, &[[0.5, 2.0, f32::INFINITY, 1.0], [0.0; 4]], 1.0)));
        assert!(!are_alike(&one, &one[..one.len() / 2]), "half of it");
    }

    #[test]
    fn numbers_that_are_none_are_like_themselves() {
        let with = |red: f32, green| exr(1, &[[red, green, 0.0, 1.0]], 1.0);
        assert!(are_alike(&with(f32::NAN, 0.5), &with(f32::NAN, 0.501)));
        assert!(!are_alike(&with(f32::INFINITY, 0.5), &with(f32::NEG_INFINITY, 0.5)));
    }

    #[test]
    fn another_attribute_is_another_picture() {
        let with = |red, aspect| exr(1, &[[red, 0.0, 0.0, 1.0]], aspect);
        assert!(are_alike(&with(0.5, 1.0), &with(0.501, 1.0)));
        assert!(!are_alike(&with(0.5, 1.0), &with(0.501, 1.5)));
    }

    #[test]
    fn a_picture_that_promises_more_than_memory_is_not_read() {
        let file = exr(1, &[[0.0; 4]], 1.0);
        assert!(readable(&file).is_some());
        assert_eq!(readable(&huge(&file)), None);
    }

    #[test]
    fn a_picture_with_a_block_too_few_or_anything_more_is_like_nothing() {
        // Two tiles, one below the other; the second one's place is given to the first.
        let one = exr(1, &[[0.5, 0.0, 0.0, 1.0]; 100], 1.0);
        assert!(is_whole(&one));
        let place = |y: u32| [0, y, 0, 0].map(u32::to_le_bytes).concat();
        let at = one.windows(16).rposition(|at| at == place(1)).expect("it begins with its place");
        let mut twice = one.clone();
        twice[at..at + 16].copy_from_slice(&place(0));
        assert!(!is_whole(&twice));
        assert!(!are_alike(&one, &twice) && !are_alike(&twice, &one));
        let longer = [&one[..], b"and more"].concat();
        assert!(!is_whole(&longer));
    }

    #[test]
    fn lines_in_anothers_place_and_tiles_of_another_resolution_are_like_nothing() {
        let lines = lines_of_32(0);
        assert!(is_whole(&lines) && is_whole(&lines_of_32(-5)));
        // Their second half says that it begins elsewhere.
        for y in [0_i32, 5, 15, 17, 32, -1, -16, i32::MIN, i32::MAX] {
            let mut moved = lines.clone();
            let at = second_block(&moved);
            assert_eq!(moved[at..][..4], 16_i32.to_le_bytes());
            moved[at..][..4].copy_from_slice(&y.to_le_bytes());
            assert!(!is_whole(&moved) && !are_alike(&moved, &moved), "{y}");
        }
        let tiles = exr(1, &[[0.5, 0.0, 0.0, 1.0]; 100], 1.0);
        let at = second_block(&tiles);
        assert_eq!(tiles[at..][..16], [0_u32, 1, 0, 0].map(u32::to_le_bytes).concat());
        for (x, y) in [(1_u32, 1_u32), (0, 1), (1, 0)] {
            let mut smaller = tiles.clone();
            smaller[at + 8..][..4].copy_from_slice(&x.to_le_bytes());
            smaller[at + 12..][..4].copy_from_slice(&y.to_le_bytes());
            assert!(!is_whole(&smaller) && !are_alike(&smaller, &smaller), "level ({x}, {y})");
        }
    }

    /// Two blocks of 16 lines each, the first of which is the picture's `top`.
    fn lines_of_32(top: i32) -> Vec<u8> {
        let encoding = Encoding {
            compression: Compression::ZIP16,
            blocks: Blocks::ScanLines,
            line_order: LineOrder::Increasing,
        };
        let pixels = SpecificChannels::rgb(|at: Vec2<usize>| (at.y() as f32, 0.5_f32, 0.0_f32));
        let mut layer = Layer::new((3, 32), LayerAttributes::named(""), encoding, pixels);
        layer.attributes.layer_position = Vec2(0, top);
        let mut file = Cursor::new(Vec::new());
        let picture = exr::image::Image::from_layer(layer);
        picture.write().non_parallel().to_buffered(&mut file).expect("memory");
        file.into_inner()
    }

    /// Where the second of two blocks begins.
    fn second_block(file: &[u8]) -> usize {
        let number = |at: usize| u64::from_le_bytes(file[at..][..8].try_into().expect("eight"));
        // The table of both stands before the first.
        let table =
            (0..file.len() - 16).find(|at| number(*at) == *at as u64 + 16).expect("a table");
        usize::try_from(number(table + 8)).expect("within the file")
    }

    /// The same with windows of two thousand million pixels a side.
    fn huge(file: &[u8]) -> Vec<u8> {
        let mut huge = file.to_vec();
        for name in ["dataWindow\0box2i\0", "displayWindow\0box2i\0"] {
            let at = huge.windows(name.len()).position(|at| at == name.as_bytes());
            // Behind its name and kind stand its length, then its least and its largest corner.
            let corner = at.expect("it has one") + name.len() + 4 + 8;
            huge[corner..][..4].copy_from_slice(&0x3fff_0000_i32.to_le_bytes());
            huge[corner + 4..][..4].copy_from_slice(&0x3fff_0000_i32.to_le_bytes());
        }
        huge
    }
}
