//! Boxes of cells that are worked on by themselves.

use std::ops::Range;
use std::sync::Arc;

use super::brick_file::BrickPlace;
use super::{Volume, Voxels};

/// A box of a volume's cells, with the voxels that it takes to interpolate values and gradients
/// anywhere in it: one voxel more before it and two after it, where there are any. What is one voxel
/// after its last border is so still between two, and is the same there as in the whole volume.
///
/// # Invariants
/// The voxels cover all cells and their rim; positions are those of the whole volume.
#[derive(Debug, Clone)]
pub struct Brick {
    voxels: Arc<Volume>,
    first: [usize; 3],
    cells: [Range<usize>; 3],
    whole: [usize; 3],
}

impl Brick {
    /// The brick that is a whole volume.
    #[must_use]
    pub fn whole(volume: Arc<Volume>) -> Self {
        let whole = volume.size();
        Self { voxels: volume, first: [0; 3], cells: whole.map(|side| 0..side - 1), whole }
    }

    /// Cuts a volume into `counts` bricks along x, y, z (x fastest); fewer where there are fewer
    /// cells than that, and never less than one.
    #[must_use]
    pub fn cut(volume: &Volume, counts: [usize; 3]) -> Vec<Self> {
        let cells = Self::shares(volume.size(), counts);
        cells.into_iter().map(|cells| Self::cut_out(volume, cells)).collect()
    }

    /// The cells of each brick that a volume of `whole` voxels is cut into.
    pub(crate) fn shares(whole: [usize; 3], counts: [usize; 3]) -> Vec<[Range<usize>; 3]> {
        let cuts: [Vec<Range<usize>>; 3] = [0, 1, 2].map(|axis| {
            let cells = whole[axis] - 1;
            let count = counts[axis].clamp(1, cells.max(1));
            (0..count).map(|i| i * cells / count..(i + 1) * cells / count).collect()
        });
        let mut bricks = Vec::new();
        for z in &cuts[2] {
            for y in &cuts[1] {
                for x in &cuts[0] {
                    bricks.push([x.clone(), y.clone(), z.clone()]);
                }
            }
        }
        bricks
    }

    /// Voxels of a brick of these cells along each side, rim included.
    pub(crate) fn sides(whole: [usize; 3], cells: &[Range<usize>; 3]) -> [usize; 3] {
        // Voxels of the last cell are up to its end.
        [0, 1, 2].map(|axis| {
            (cells[axis].end + 3).min(whole[axis]) - cells[axis].start.saturating_sub(1)
        })
    }

    /// The brick of these cells, with its own copy of their voxels.
    pub(crate) fn cut_out(volume: &Volume, cells: [Range<usize>; 3]) -> Self {
        let whole = volume.size();
        let first = [0, 1, 2].map(|axis| cells[axis].start.saturating_sub(1));
        let size = Self::sides(whole, &cells);
        fn copy<T: Copy>(
            from: &[T],
            whole: [usize; 3],
            first: [usize; 3],
            size: [usize; 3],
        ) -> Vec<T> {
            let mut voxels = Vec::with_capacity(size.iter().product());
            for z in first[2]..first[2] + size[2] {
                for y in first[1]..first[1] + size[1] {
                    let row = first[0] + whole[0] * (y + whole[1] * z);
                    voxels.extend_from_slice(&from[row..row + size[0]]);
                }
            }
            voxels
        }
        let voxels = match volume.voxels() {
            Voxels::U8(from) => Voxels::U8(copy(from, whole, first, size)),
            Voxels::U16(from) => Voxels::U16(copy(from, whole, first, size)),
            Voxels::F32(from) => Voxels::F32(copy(from, whole, first, size)),
        };
        let voxels = Volume { size, spacing: volume.spacing(), voxels, missing: None };
        Self { voxels: Arc::new(voxels), first, cells, whole }
    }

    /// A brick that was read, where it is in its volume.
    pub(crate) fn placed(voxels: Arc<Volume>, place: &BrickPlace) -> Self {
        let BrickPlace { whole, cells, .. } = place.clone();
        debug_assert_eq!(Self::sides(whole, &cells), voxels.size(), "its header was checked");
        let first = [0, 1, 2].map(|axis| cells[axis].start.saturating_sub(1));
        Self { voxels, first, cells, whole }
    }

    /// Its voxels, rim included.
    #[must_use]
    pub fn voxels(&self) -> &Volume {
        &self.voxels
    }

    /// Where its first voxel is in the whole volume.
    #[must_use]
    pub const fn first(&self) -> [usize; 3] {
        self.first
    }

    /// Its cells in the whole volume.
    #[must_use]
    pub const fn cells(&self) -> &[Range<usize>; 3] {
        &self.cells
    }

    /// Voxels of the whole volume along x, y, z.
    #[must_use]
    pub const fn whole_size(&self) -> [usize; 3] {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bricks_share_out_all_cells_and_know_their_rim() {
        let size = [7, 5, 4];
        let voxels = (0..140).collect();
        let volume = Volume::new(size, [1.0; 3], Voxels::U16(voxels)).expect("a volume");
        let bricks = Brick::cut(&volume, [3, 2, 9]);
        assert_eq!(bricks.len(), 3 * 2 * 3);
        let mut owned = 0;
        for brick in &bricks {
            let cells = brick.cells();
            owned += cells.iter().map(ExactSizeIterator::len).product::<usize>();
            let (first, held) = (brick.first(), brick.voxels().size());
            for axis in 0..3 {
                assert_eq!(first[axis], cells[axis].start.saturating_sub(1));
                assert_eq!(first[axis] + held[axis], (cells[axis].end + 3).min(size[axis]));
            }
            let last = [0, 1, 2].map(|axis| held[axis] - 1);
            let there = [0, 1, 2].map(|axis| first[axis] + last[axis]);
            assert_eq!(brick.voxels().at(last), volume.at(there));
        }
        assert_eq!(owned, 6 * 4 * 3);
    }

    #[test]
    fn a_sheet_of_voxels_has_no_cells() {
        let volume = Volume::new([4, 4, 1], [1.0; 3], Voxels::U8(vec![0; 16])).expect("a volume");
        let bricks = Brick::cut(&volume, [2, 2, 2]);
        assert!(bricks.iter().all(|brick| brick.cells()[2].is_empty()));
    }
}
