//! The bricks that a volume goes to a device in.

use std::ops::Range;

use super::super::camera::Camera;
use super::super::depth::Depth;
use crate::volume::{Brick, Volume};

/// The cells of the bricks, the nearest first, each of at most `side_max` voxels along each side
/// and `voxels_max` in all, where it can be cut into such: a cell has five voxels along each side.
pub(crate) fn bricks(
    volume: &Volume,
    camera: &Camera,
    side_max: usize,
    voxels_max: usize,
) -> Vec<[Range<usize>; 3]> {
    let (whole, spacing) = (volume.size(), volume.spacing());
    let mut bricks = Brick::shares(whole, counts(whole, side_max, voxels_max));
    bricks.sort_by_key(|cells| Depth::of_cells(cells, whole, spacing, camera));
    bricks
}

/// How many bricks there are along each side.
fn counts(whole: [usize; 3], side_max: usize, voxels_max: usize) -> [usize; 3] {
    let mut counts = [1; 3];
    loop {
        // Cells, the voxel after the last one, and the rim.
        let sides = [0, 1, 2].map(|axis| {
            let cells = (whole[axis] - 1).div_ceil(counts[axis]);
            (cells + 4).min(whole[axis])
        });
        let voxels = sides.iter().fold(1_usize, |voxels, side| voxels.saturating_mul(*side));
        let is_cut = |axis: &usize| counts[*axis] < whole[*axis] - 1;
        let longest = (0..3).filter(is_cut).max_by_key(|axis| sides[*axis]);
        match longest {
            Some(axis) if voxels > voxels_max || sides[axis] > side_max => counts[axis] += 1,
            _ => return counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_not_cut_and_what_does_not_is_cut_along_its_longest_side() {
        assert_eq!(counts([100, 80, 60], 100, 480_000), [1, 1, 1]);
        assert_eq!(counts([100, 80, 60], 99, 480_000), [2, 1, 1]);
        assert_eq!(counts([100, 80, 60], 100, 479_999), [2, 1, 1]);
        assert_eq!(counts([4096, 2, 1], 2048, usize::MAX), [3, 1, 1]);
    }

    #[test]
    fn bricks_are_as_small_as_was_asked_down_to_a_cell() {
        for (whole, side_max, voxels_max) in [
            ([50, 40, 30], 12, 1000),
            ([1000, 3, 7], 64, 512),
            ([9, 9, 9], 1, 1),
            ([5, 1, 1], 4, 9),
        ] {
            let counts = counts(whole, side_max, voxels_max);
            for cells in Brick::shares(whole, counts) {
                let sides = Brick::sides(whole, &cells);
                let is_least = |axis: usize| cells[axis].len() <= 1;
                assert!((0..3).all(|axis| sides[axis] <= side_max || is_least(axis)), "{sides:?}");
                let voxels: usize = sides.iter().product();
                assert!(voxels <= voxels_max || (0..3).all(is_least), "{sides:?}");
            }
        }
    }
}
