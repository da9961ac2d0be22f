//! Where in a brick there is anything to see.

use super::{Brick, Voxel, with_voxels};
use crate::limits::MACRO_CELL;

/// Blocks of [`MACRO_CELL`]³ cells of a brick's voxels.
#[derive(Debug)]
pub(crate) struct MacroCells {
    size: [usize; 3],
}

impl MacroCells {
    /// Those of a brick's voxels.
    pub(crate) fn new(brick: &Brick) -> Self {
        let size = brick.voxels().size().map(|side| (side - 1).div_ceil(MACRO_CELL).max(1));
        Self { size }
    }

    /// Smallest and largest sample of each block of a layer along z: whatever is interpolated in a block
    /// is between its two. A sample that is no number, which a volume has none of, would change nothing
    /// for the others of its block.
    pub(crate) fn ranges(&self, layer: usize, brick: &Brick) -> Vec<(f32, f32)> {
        let voxels = brick.voxels();
        with_voxels!(voxels.voxels(), samples => self.ranges_of(layer, samples, voxels.size()))
    }

    fn ranges_of<T: Voxel>(
        &self,
        layer: usize,
        samples: &[T],
        size: [usize; 3],
    ) -> Vec<(f32, f32)> {
        let span = |block: usize, side: usize| {
            block * MACRO_CELL..((block + 1) * MACRO_CELL + 1).min(side)
        };
        let row = |y: usize, z: usize| &samples[size[0] * (y + size[1] * z)..][..size[0]];
        let mut ranges = Vec::with_capacity(self.size[0] * self.size[1]);
        // Of each column of a row of blocks first, for a processor compares many of them at once.
        let (mut lows, mut highs): (Vec<T>, Vec<T>) = (Vec::new(), Vec::new());
        for block in 0..self.size[1] {
            let ys = span(block, size[1]);
            let first = row(ys.start, layer * MACRO_CELL);
            for columns in [&mut lows, &mut highs] {
                columns.clear();
                columns.extend_from_slice(first);
            }
            for z in span(layer, size[2]) {
                for y in ys.clone() {
                    for ((low, high), sample) in lows.iter_mut().zip(&mut highs).zip(row(y, z)) {
                        (*low, *high) = (lower(*low, *sample), higher(*high, *sample));
                    }
                }
            }
            for x in 0..self.size[0] {
                let xs = span(x, size[0]);
                let low = lows[xs.clone()].iter().copied().reduce(lower);
                let high = highs[xs].iter().copied().reduce(higher);
                let (low, high) = low.zip(high).expect("a block has samples");
                ranges.push((low.value(), high.value()));
            }
        }
        ranges
    }

    /// Blocks along x, y, z.
    pub(crate) const fn size(&self) -> [usize; 3] {
        self.size
    }

    /// One layer of one of the two sweeps that turn what is seen, zero for a block that is and 255 for one
    /// that is not, into distances: zero for a block that is seen, and otherwise one more than the number of
    /// blocks between, along the axis where these are most (Chebyshev's distance), up to 255. The first
    /// sweep goes forward through all layers, the second one backward: each takes the least of the 13 neighbours
    /// that it has passed, of a row of blocks at once.
    pub(crate) fn sweep(&self, distances: &mut [u8], layer: usize, is_backward: bool) {
        let [nx, ny, _] = self.size;
        let plane = nx * ny;
        let (before, rest) = distances.split_at_mut(plane * layer);
        let (layer, after) = rest.split_at_mut(plane);
        // The layer that was swept before this one, where there is one.
        let behind = match is_backward {
            false => before.rchunks(plane).next(),
            true => after.chunks(plane).next(),
        };
        let mut nearest = vec![u8::MAX; nx];
        for step in 0..ny {
            let y = if is_backward { ny - 1 - step } else { step };
            nearest.fill(u8::MAX);
            let mut note = |row: &[u8]| {
                nearest.iter_mut().zip(row).for_each(|(least, of)| *least = (*least).min(*of));
            };
            if step > 0 {
                let before = if is_backward { y + 1 } else { y - 1 };
                note(&layer[nx * before..][..nx]);
            }
            if let Some(behind) = behind {
                for y in y.saturating_sub(1)..(y + 2).min(ny) {
                    note(&behind[nx * y..][..nx]);
                }
            }
            let row = &mut layer[nx * y..][..nx];
            for (x, distance) in row.iter_mut().enumerate() {
                let around = &nearest[x.saturating_sub(1)..(x + 2).min(nx)];
                let least = around.iter().copied().min().unwrap_or(u8::MAX);
                *distance = (*distance).min(least.saturating_add(1));
            }
            let mut last = u8::MAX;
            let mut pass = |distance: &mut u8| {
                *distance = (*distance).min(last.saturating_add(1));
                last = *distance;
            };
            match is_backward {
                false => row.iter_mut().for_each(&mut pass),
                true => row.iter_mut().rev().for_each(&mut pass),
            }
        }
    }
}

/// The smaller one. Only the first may be no number: then it is the other.
fn lower<T: Voxel>(first: T, other: T) -> T {
    if other < first || is_none(first) { other } else { first }
}

/// The larger one, likewise.
fn higher<T: Voxel>(first: T, other: T) -> T {
    if other > first || is_none(first) { other } else { first }
}

fn is_none<T: Voxel>(sample: T) -> bool {
    sample.partial_cmp(&sample).is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Volume, Voxels};
    use super::*;

    fn brick(volume: Volume) -> Brick {
        Brick::whole(Arc::new(volume))
    }

    fn distances(brick: &Brick, above: f32) -> Vec<u8> {
        let cells = MacroCells::new(brick);
        let layers = cells.size()[2];
        let ranges = (0..layers).flat_map(|layer| cells.ranges(layer, brick));
        let mut distances: Vec<u8> =
            ranges.map(|(_, high)| if high > above { 0 } else { u8::MAX }).collect();
        (0..layers).for_each(|layer| cells.sweep(&mut distances, layer, false));
        (0..layers).rev().for_each(|layer| cells.sweep(&mut distances, layer, true));
        distances
    }

    #[test]
    fn blocks_know_their_range_and_their_distance_from_what_is_seen() {
        let side = 5 * MACRO_CELL + 2;
        let mut samples = vec![10; side * side * side];
        // In the second block along each axis, and not on its border.
        let seen = MACRO_CELL + 1;
        samples[seen + side * (seen + side * seen)] = 200;
        let volume = Volume::new([side; 3], [1.0; 3], Voxels::U8(samples)).expect("a volume");
        let brick = brick(volume);
        let cells = MacroCells::new(&brick);
        assert_eq!(cells.size(), [6; 3]);
        assert_eq!(cells.ranges(1, &brick)[1 + 6], (10.0, 200.0));
        let found = distances(&brick, 100.0);
        for (at, distance) in found.iter().enumerate() {
            let place = [at % 6, at / 6 % 6, at / 36];
            let expected = place.iter().map(|i| i.abs_diff(1)).max().expect("three");
            assert_eq!(usize::from(*distance), expected, "{place:?}");
        }
        let none = distances(&brick, 201.0);
        assert!(none.iter().all(|distance| *distance == u8::MAX));
    }

    #[test]
    fn each_block_is_as_far_as_the_nearest_one_that_is_seen() {
        let cells = MacroCells { size: [7, 5, 4] };
        let places =
            || (0..4).flat_map(|z| (0..5).flat_map(move |y| (0..7).map(move |x| [x, y, z])));
        for seed in 0..40_usize {
            // From none to about a quarter of them.
            let is_seen = |[x, y, z]: [usize; 3]| {
                let mixed =
                    (x * 37 + y * 101 + z * 211 + 1).wrapping_mul(seed * 2_654_435_761 + 97);
                mixed >> 7 & 63 < seed.saturating_sub(2) / 2
            };
            let mut distances: Vec<u8> =
                places().map(|place| if is_seen(place) { 0 } else { u8::MAX }).collect();
            (0..4).for_each(|layer| cells.sweep(&mut distances, layer, false));
            (0..4).rev().for_each(|layer| cells.sweep(&mut distances, layer, true));
            for (place, found) in places().zip(&distances) {
                let apart = |other: [usize; 3]| {
                    let along = [0, 1, 2].map(|axis| place[axis].abs_diff(other[axis]));
                    along.into_iter().max().expect("three")
                };
                let nearest = places().filter(|of| is_seen(*of)).map(apart).min();
                let expected = nearest.unwrap_or(usize::from(u8::MAX));
                assert_eq!(usize::from(*found), expected, "{place:?} of seed {seed}");
            }
        }
    }

    #[test]
    fn samples_that_are_no_numbers_hide_no_others_of_their_block() {
        let size = [2 * MACRO_CELL + 1, 2, 2];
        let count = size.iter().product();
        let voxels = Voxels::F32(vec![0.0; count]);
        let volume = Volume::new(size, [1.0; 3], voxels).expect("a volume");
        let cells = MacroCells::new(&brick(volume));
        for places in [&[0][..], &[3, 7], &[count - 1], &[0, 1, 2, 3, 4]] {
            let mut samples: Vec<f32> = (0..count).map(|at| (at % size[0]) as f32).collect();
            places.iter().for_each(|at| samples[*at] = f32::NAN);
            let ends = [0, MACRO_CELL, 2 * MACRO_CELL].map(|at| at as f32);
            let found = cells.ranges_of(0, &samples, size);
            assert_eq!(found, [(ends[0], ends[1]), (ends[1], ends[2])], "{places:?}");
        }
        // What is infinite is beyond all others, and seen wherever these are.
        let mut samples = vec![1.0; count];
        (samples[0], samples[2 * MACRO_CELL]) = (f32::NEG_INFINITY, f32::INFINITY);
        let found = cells.ranges_of(0, &samples, size);
        assert_eq!(found, [(f32::NEG_INFINITY, 1.0), (1.0, f32::INFINITY)]);
    }

    #[test]
    fn a_sample_on_a_border_belongs_to_both_blocks() {
        let side = 2 * MACRO_CELL + 1;
        let mut samples = vec![0.0; side];
        samples[MACRO_CELL] = 1.0;
        let volume = Volume::new([side, 1, 1], [1.0; 3], Voxels::F32(samples)).expect("a volume");
        let brick = brick(volume);
        assert_eq!(MacroCells::new(&brick).ranges(0, &brick), vec![(0.0, 1.0); 2]);
    }
}
