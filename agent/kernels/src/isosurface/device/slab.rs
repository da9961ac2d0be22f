//! The layers of a volume that are on a device at once.

use std::ops::Range;

/// Layers of cells that are cut, with those of voxels that it takes for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) cells: Range<usize>,
    /// One more before them and one more after them, where there is any, as normals need; the one
    /// before is also that of the cells whose vertices are shared with the slab before.
    pub(super) voxels: Range<usize>,
}

impl Slab {
    /// The slabs of a volume of so many layers, of which a device holds `held`; none where it holds
    /// too few to go on.
    pub(super) fn all(layers: usize, held: usize) -> Option<Vec<Self>> {
        let mut slabs = Vec::new();
        let mut start = 0;
        while start + 1 < layers {
            let first = start.saturating_sub(1);
            let end = (first + held).min(layers);
            let cut = if end == layers { layers - 1 } else { end.saturating_sub(2) };
            if cut <= start {
                return None;
            }
            slabs.push(Self { cells: start..cut, voxels: first..end });
            start = cut;
        }
        Some(slabs)
    }

    /// Layers of cells that are there: those that are cut, and the one before them.
    pub(super) const fn cell_layers(&self) -> usize {
        self.cells.end - self.voxels.start
    }

    /// Layers of cells before those that are cut.
    pub(super) const fn layers_before(&self) -> usize {
        self.cells.start - self.voxels.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_share_out_all_layers_of_cells_and_hold_what_these_take() {
        for (layers, held) in [(2, 2), (9, 9), (9, 100), (9, 8), (10, 4), (1000, 7), (3, 3)] {
            let slabs = Slab::all(layers, held).expect("enough");
            assert_eq!(slabs.len() == 1, held >= layers, "{layers} of {held}");
            let mut next = 0;
            for Slab { cells, voxels } in &slabs {
                assert_eq!(cells.start, next);
                assert_eq!(voxels.start, cells.start.saturating_sub(1));
                assert_eq!(voxels.end, (cells.end + 2).min(layers));
                assert!(voxels.len() <= held && !cells.is_empty());
                next = cells.end;
            }
            assert_eq!(next, layers - 1);
        }
    }

    #[test]
    fn a_device_that_holds_fewer_layers_than_a_normal_needs_is_none() {
        assert_eq!(Slab::all(9, 3), None);
        assert_eq!(Slab::all(9, 0), None);
        assert_eq!(Slab::all(1, 0), Some(Vec::new()));
    }
}
