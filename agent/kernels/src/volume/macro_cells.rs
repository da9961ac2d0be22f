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
        // Only the first one may stand there and be none.
        let is_none = |sample: T| sample.partial_cmp(&sample).is_none();
        let mut ranges = Vec::with_capacity(self.size[0] * self.size[1]);
        for y in 0..self.size[1] {
            for x in 0..self.size[0] {
                let xs = span(x, size[0]);
                let first = xs.start + size[0] * (y * MACRO_CELL + size[1] * (layer * MACRO_CELL));
                let (mut low, mut high) = (samples[first], samples[first]);
                for z in span(layer, size[2]) {
                    for y in span(y, size[1]) {
                        let row = size[0] * (y + size[1] * z);
                        for sample in &samples[row + xs.start..row + xs.end] {
                            low = if *sample < low || is_none(low) { *sample } else { low };
                            high = if *sample > high || is_none(high) { *sample } else { high };
                        }
                    }
                }
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
    /// sweep goes forward through all layers, the second one backward.
    pub(crate) fn sweep(&self, distances: &mut [u8], layer: usize, is_backward: bool) {
        let [nx, ny, nz] = self.size;
        let sign = if is_backward { -1 } else { 1 };
        for step in 0..nx * ny {
            let at = nx * ny * layer + if is_backward { nx * ny - 1 - step } else { step };
            if distances[at] == 0 {
                continue;
            }
            let (x, y) = (at % nx, at / nx % ny);
            let mut nearest = distances[at];
            for (dx, dy, dz) in BEHIND {
                let (Some(x), Some(y), Some(z)) = (
                    x.checked_add_signed(sign * dx).filter(|x| *x < nx),
                    y.checked_add_signed(sign * dy).filter(|y| *y < ny),
                    layer.checked_add_signed(sign * dz).filter(|z| *z < nz),
                ) else {
                    continue;
                };
                nearest = nearest.min(distances[x + nx * (y + ny * z)].saturating_add(1));
            }
            distances[at] = nearest;
        }
    }
}

/// The neighbours that a sweep in order of memory has passed.
const BEHIND: [(isize, isize, isize); 13] = [
    (-1, 0, 0),
    (-1, -1, 0),
    (0, -1, 0),
    (1, -1, 0),
    (-1, -1, -1),
    (0, -1, -1),
    (1, -1, -1),
    (-1, 0, -1),
    (0, 0, -1),
    (1, 0, -1),
    (-1, 1, -1),
    (0, 1, -1),
    (1, 1, -1),
];

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
