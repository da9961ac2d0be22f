//! How a matrix is laid out on a device.

use std::ops::Range;

use crate::gpu::Gpu;
use crate::limits::{
    DEVICE_MATRIX_BYTES_MAX, DEVICE_PRODUCT_DEPTH, DEVICE_PRODUCT_TILE, DEVICE_PRODUCT_TILES_FULL,
    DEVICE_PRODUCT_TILES_MAX, DEVICE_SLAB_BYTES_MAX, DEVICE_SLAB_SIDE_MAX,
    DEVICE_SOLUTION_PRODUCTS_MAX, DEVICE_SOLUTION_SIDE_MIN, DEVICE_SUMMED_MAX,
};

/// Bytes of a number: two halves of 32 bits.
pub(super) const NUMBER_BYTES: usize = 8;

/// What a device is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Bytes of a slab.
    pub(super) slab_bytes: usize,
    /// Bytes of all slabs that are there at once.
    pub(super) matrix_bytes: usize,
    /// Tiles of sums that are there at once.
    pub(super) tiles: usize,
    /// Sums of fewer rows than this are solved on the processor.
    pub(super) solved_side: usize,
    /// Products that are tried for those of more.
    pub(super) solved_products: usize,
}

impl Budget {
    /// What a device can be asked for.
    pub(super) fn of(gpu: &Gpu) -> Self {
        let bound = gpu.device().limits().max_storage_buffer_binding_size;
        let bound = usize::try_from(bound).unwrap_or(usize::MAX);
        let room = gpu.data_bytes_max();
        Self {
            slab_bytes: DEVICE_SLAB_BYTES_MAX.min(bound).min(room),
            matrix_bytes: DEVICE_MATRIX_BYTES_MAX.min(room),
            tiles: DEVICE_PRODUCT_TILES_MAX,
            solved_side: DEVICE_SOLUTION_SIDE_MIN,
            solved_products: DEVICE_SOLUTION_PRODUCTS_MAX,
        }
    }

    /// What is left of it beside so many bytes.
    pub(super) const fn beside(self, taken: usize) -> Self {
        Self { matrix_bytes: self.matrix_bytes.saturating_sub(taken), ..self }
    }

    /// The same with a slab at a time.
    pub(super) const fn streaming(self) -> Self {
        Self { matrix_bytes: 0, ..self }
    }
}

/// Sums that are on a device: those of a block of rows with a block of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) row: usize,
    pub(super) column: usize,
    /// Which part of what is summed up this one has.
    pub(super) layer: usize,
}

/// A matrix in slabs of its longer side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) short_side: usize,
    pub(super) long_side: usize,
    pub(super) is_upright: bool,
    /// Of the longer side, what is in each slab but the last.
    pub(super) slab_side: usize,
    /// Slabs that are on the device at once: all, or one.
    pub(super) held: usize,
    /// Tiles of sums that are there at once.
    pub(super) tiles: usize,
    /// Parts that the sums of squares and products are summed up in, next to each other: where
    /// these have few tiles, a device would have nothing else to do.
    pub(super) layers: usize,
}

impl Layout {
    pub(super) fn new(
        short_side: usize,
        long_side: usize,
        is_upright: bool,
        budget: &Budget,
    ) -> Self {
        let side = budget.slab_bytes / NUMBER_BYTES / short_side;
        let side = side.clamp(1, DEVICE_SLAB_SIDE_MAX);
        // Whole dispatches, where there are several.
        let whole = side - side % DEVICE_PRODUCT_DEPTH;
        let slab_side = if whole > 0 { whole } else { side }.min(long_side);
        let slabs = long_side.div_ceil(slab_side);
        let blocks = [short_side, slab_side].map(|side| side.div_ceil(DEVICE_PRODUCT_TILE));
        let triangle = blocks[0] * (blocks[0] + 1) / 2;
        let depths = slab_side.div_ceil(DEVICE_PRODUCT_DEPTH);
        let most = (DEVICE_PRODUCT_TILES_FULL.min(budget.tiles) / triangle).clamp(1, depths);
        // No more than have something to do.
        let layers = depths.div_ceil(depths.div_ceil(most));
        let sums = triangle * layers;
        let weighed = if is_upright { blocks[1] } else { 0 };
        let tiles = sums.max(weighed).min(budget.tiles);
        // A slab that nothing else is multiplied with is not missed.
        let is_used_again = is_upright || sums > tiles;
        let bytes = slabs.saturating_mul(slab_side * short_side * NUMBER_BYTES);
        let held = if is_used_again && bytes <= budget.matrix_bytes { slabs } else { 1 };
        Self { short_side, long_side, is_upright, slab_side, held, tiles, layers }
    }

    /// Bytes of the slabs that are on the device at once.
    pub(super) const fn held_bytes(&self) -> usize {
        self.slab_numbers() * NUMBER_BYTES * self.held
    }

    /// How many slabs there are.
    pub(super) const fn slabs(&self) -> usize {
        self.long_side.div_ceil(self.slab_side)
    }

    /// Where a slab is among those that are there at once.
    pub(super) const fn place(&self, slab: usize) -> usize {
        slab % self.held
    }

    /// How many slabs are summed up before the sums come back.
    pub(super) fn slabs_summed(&self) -> usize {
        let is_there_for_all = self.held == self.slabs() || self.gram_tiles().len() <= self.tiles;
        if is_there_for_all { (DEVICE_SUMMED_MAX / self.slab_side).max(1) } else { 1 }
    }

    /// What a slab has of the longer side.
    pub(super) fn of_slab(&self, slab: usize) -> Range<usize> {
        slab * self.slab_side..((slab + 1) * self.slab_side).min(self.long_side)
    }

    /// Numbers of the largest slab.
    pub(super) const fn slab_numbers(&self) -> usize {
        self.slab_side * self.short_side
    }

    /// Lines of a slab, each a part of a row of the matrix, and numbers of each.
    pub(super) fn lines(&self, slab: usize) -> (usize, usize) {
        let side = self.of_slab(slab).len();
        if self.is_upright { (side, self.short_side) } else { (self.short_side, side) }
    }

    /// From one number to the next in a slab: along the shorter side, and along the longer one.
    pub(super) fn strides(&self, slab: usize) -> [usize; 2] {
        if self.is_upright { [1, self.short_side] } else { [self.of_slab(slab).len(), 1] }
    }

    /// Dispatches that each layer takes for a slab.
    pub(super) fn depths_of_layer(&self, slab: usize) -> usize {
        self.of_slab(slab).len().div_ceil(DEVICE_PRODUCT_DEPTH).div_ceil(self.layers)
    }

    /// Dispatches that a slab's products with some eigenvectors take.
    pub(super) const fn depths_weighed(&self) -> usize {
        self.short_side.div_ceil(DEVICE_PRODUCT_DEPTH)
    }

    /// The tiles of the sums' lower triangle, layer by layer.
    pub(super) fn gram_tiles(&self) -> Vec<Tile> {
        let blocks = self.short_side.div_ceil(DEVICE_PRODUCT_TILE);
        let of_column =
            move |layer, column| (column..blocks).map(move |row| Tile { row, column, layer });
        let layers = 0..self.layers;
        layers
            .flat_map(|layer| (0..blocks).flat_map(move |column| of_column(layer, column)))
            .collect()
    }

    /// The tiles of a slab's products with some eigenvectors.
    pub(super) fn weighed_tiles(&self, slab: usize) -> Vec<Tile> {
        let blocks = self.of_slab(slab).len().div_ceil(DEVICE_PRODUCT_TILE);
        (0..blocks).map(|row| Tile { row, column: 0, layer: 0 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_fit_and_cover_the_longer_side() {
        let budget = Budget {
            slab_bytes: 1 << 20,
            matrix_bytes: 3 << 20,
            tiles: 4,
            solved_side: 0,
            solved_products: 0,
        };
        for (short, long, slabs, held) in [
            (1, 9, 1, 1),
            (100, 1310, 2, 2),
            (100, 1280, 1, 1),
            (100, 3840, 3, 3),
            (100, 3841, 4, 1),
            (16_384, 20, 3, 3),
            (1 << 18, 2, 2, 1),
        ] {
            let layout = Layout::new(short, long, true, &budget);
            assert_eq!((layout.slabs(), layout.held), (slabs, held), "{short} {long}");
            let all = (0..slabs).flat_map(|slab| layout.of_slab(slab));
            assert!(all.eq(0..long), "{layout:?}");
            let is_least = layout.slab_side == 1;
            assert!(layout.slab_numbers() * NUMBER_BYTES <= 1 << 20 || is_least, "{layout:?}");
            assert_eq!(Layout::new(short, long, true, &budget.streaming()).held, 1);
        }
        // Rows' sums in one group of tiles: each slab is needed once.
        assert_eq!(Layout::new(100, 3840, false, &budget).held, 1);
        assert_eq!(Layout::new(300, 1100, false, &budget).held, 3);
    }

    #[test]
    fn tiles_cover_the_lower_triangle() {
        let budget = Budget {
            slab_bytes: 1 << 20,
            matrix_bytes: 1 << 20,
            tiles: 4,
            solved_side: 0,
            solved_products: 0,
        };
        let layout = Layout::new(2 * DEVICE_PRODUCT_TILE + 1, 300, false, &budget);
        let places: Vec<_> =
            layout.gram_tiles().iter().map(|tile| [tile.row, tile.column, tile.layer]).collect();
        let triangle = [[0, 0, 0], [1, 0, 0], [2, 0, 0], [1, 1, 0], [2, 1, 0], [2, 2, 0]];
        assert_eq!(places, triangle);
        assert_eq!(layout.weighed_tiles(0).len(), 300_usize.div_ceil(DEVICE_PRODUCT_TILE));
    }

    #[test]
    fn few_tiles_are_summed_up_in_layers_that_fill_a_device_and_cover_all() {
        let budget = Budget {
            slab_bytes: DEVICE_SLAB_BYTES_MAX,
            matrix_bytes: DEVICE_MATRIX_BYTES_MAX,
            tiles: DEVICE_PRODUCT_TILES_MAX,
            solved_side: 0,
            solved_products: 0,
        };
        for (short, long) in [(120, 107_520), (1, 1 << 20), (500, 4000), (2000, 2000), (60, 70)] {
            let layout = Layout::new(short, long, false, &budget);
            let tiles = layout.gram_tiles().len();
            let depths = layout.slab_side.div_ceil(DEVICE_PRODUCT_DEPTH);
            let is_full = tiles > DEVICE_PRODUCT_TILES_FULL / 2;
            assert!(is_full || layout.layers == depths, "{tiles} of {layout:?}");
            assert!(layout.layers == 1 || tiles <= DEVICE_PRODUCT_TILES_FULL, "{layout:?}");
            for slab in 0..layout.slabs() {
                let covered = layout.layers * layout.depths_of_layer(slab) * DEVICE_PRODUCT_DEPTH;
                assert!(covered >= layout.of_slab(slab).len(), "{layout:?}");
            }
        }
        // A brain's scans: seven dispatches a slab in the place of 512.
        let layout = Layout::new(120, 107_520, false, &budget);
        assert_eq!((layout.slabs(), layout.layers, layout.depths_of_layer(0)), (2, 74, 7));
        assert_eq!((layout.held, layout.slabs_summed()), (1, 64));
    }
}
