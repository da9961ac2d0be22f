//! Values between voxels, eight at a time.

use crate::volume::Voxel;

/// Samples that are taken at once.
pub(super) const LANES: usize = 8;
/// One number for each.
pub(super) type Lanes = [f32; LANES];

/// A number so large that single precision has nothing after its point, and small ones that are
/// added to it stand in its low bits.
const WHOLE: f32 = 12_582_912.0;
const WHOLE_BITS: u32 = WHOLE.to_bits();

/// Samples on a grid.
pub(super) struct Grid<'a, T> {
    samples: &'a [T],
    row: usize,
    layer: usize,
    /// The last position along each axis that still has a voxel after it.
    pub(super) last: [f32; 3],
}

impl<'a, T: Voxel> Grid<'a, T> {
    /// A grid of at least two voxels along each axis.
    pub(super) fn new(samples: &'a [T], size: [usize; 3]) -> Self {
        let last = size.map(|side| ((side - 1) as f32).next_down());
        Self { samples, row: size[0], layer: size[0] * size[1], last }
    }

    /// Values at eight positions, trilinear between voxels; what is outside is moved to the rim.
    #[inline(always)]
    pub(super) fn values(&self, x: &Lanes, y: &Lanes, z: &Lanes) -> Lanes {
        let (xs, fx) = split(x, self.last[0]);
        let (ys, fy) = split(y, self.last[1]);
        let (zs, fz) = split(z, self.last[2]);
        let (row, layer) = (self.row as u32, self.layer as u32);
        let mut first = [0_u32; LANES];
        for l in 0..LANES {
            first[l] = xs[l] + ys[l] * row + zs[l] * layer;
        }
        let highest = first.iter().copied().fold(0, u32::max) as usize;
        assert!(highest + self.layer + self.row + 1 < self.samples.len(), "a cell is in its grid");
        let rows = [0, self.row, self.layer, self.layer + self.row];
        let mut pairs = [[T::Pair::default(); LANES]; 4];
        for (pairs, row) in pairs.iter_mut().zip(rows) {
            for (pair, first) in pairs.iter_mut().zip(first) {
                let at = first as usize + row;
                // A check for each of 64 loads is a third of the time of a picture.
                // SAFETY: `first` is at most `highest` and `row` at most `layer + row`, and so
                // `at + 1` is below the length that was just asserted.
                #[expect(unsafe_code, reason = "one check for all 64 loads, just above")]
                let both = unsafe {
                    [*self.samples.get_unchecked(at), *self.samples.get_unchecked(at + 1)]
                };
                *pair = T::pair(both);
            }
        }
        let mut corners = [[0.0_f32; LANES]; 8];
        for pair in 0..4 {
            for l in 0..LANES {
                let [low, high] = T::values(pairs[pair][l]);
                corners[2 * pair][l] = low;
                corners[2 * pair + 1][l] = high;
            }
        }
        let mut values = [0.0; LANES];
        for l in 0..LANES {
            let mix = |from: f32, to: f32, share: f32| from + share * (to - from);
            let near_low = mix(corners[0][l], corners[1][l], fx[l]);
            let near_high = mix(corners[2][l], corners[3][l], fx[l]);
            let far_low = mix(corners[4][l], corners[5][l], fx[l]);
            let far_high = mix(corners[6][l], corners[7][l], fx[l]);
            let near = mix(near_low, near_high, fy[l]);
            let far = mix(far_low, far_high, fy[l]);
            values[l] = mix(near, far, fz[l]);
        }
        values
    }
}

/// The voxel before each position, and the share of the way to the next one. A position on a
/// voxel may be said to be at the end of the cell before it: its value is the same.
#[inline(always)]
fn split(positions: &Lanes, last: f32) -> ([u32; LANES], Lanes) {
    let (mut voxels, mut shares) = ([0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let position = positions[l].max(0.0).min(last);
        let whole = (position - 0.5) + WHOLE;
        voxels[l] = whole.to_bits() - WHOLE_BITS;
        shares[l] = position - (whole - WHOLE);
    }
    (voxels, shares)
}

/// Whole numbers nearest to what is from 0 to two million.
#[inline(always)]
pub(super) fn nearest(values: &Lanes) -> [u32; LANES] {
    let mut nearest = [0; LANES];
    for l in 0..LANES {
        nearest[l] = (values[l] + WHOLE).to_bits() - WHOLE_BITS;
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_field_is_met_exactly_and_kept_at_its_rim() {
        let size = [5, 4, 3];
        let field = |x: f32, y: f32, z: f32| 3.0 * x - 2.0 * y + 5.0 * z;
        let samples: Vec<f32> = (0..60)
            .map(|at| field((at % 5) as f32, (at / 5 % 4) as f32, (at / 20) as f32))
            .collect();
        let grid = Grid::new(&samples, size);
        let x = [0.0, 1.0, 2.0, 3.0, 4.0, 0.25, 3.75, -3.0];
        let y = [0.0, 1.0, 2.0, 3.0, 0.5, 2.25, 9.0, 1.5];
        let z = [0.0, 1.0, 2.0, 0.5, 1.5, 0.75, 2.0, 1.0];
        let values = grid.values(&x, &y, &z);
        for l in 0..LANES {
            let expected = field(x[l].clamp(0.0, 4.0), y[l].clamp(0.0, 3.0), z[l]);
            assert!((values[l] - expected).abs() < 1e-5, "{l}: {} {expected}", values[l]);
        }
    }

    #[test]
    fn the_end_of_a_long_row_has_a_voxel_after_it() {
        for side in [2_usize, 3, 4, 5, 255, 256, 257, 4097, 65_536] {
            let last = ((side - 1) as f32).next_down();
            let (voxels, shares) = split(&[side as f32; LANES], last);
            assert_eq!(voxels[0] as usize, side - 2);
            assert!(shares[0] > 0.99 && shares[0] <= 1.0);
        }
    }
}
