//! Values between voxels, some at a time.

use std::borrow::Cow;

use crate::volume::Voxel;

/// One number for each of some samples that are taken at once.
pub(super) type Lanes<const N: usize> = [f32; N];

/// A number so large that single precision has nothing after its point, and small ones that are
/// added to it stand in its low bits.
const WHOLE: f32 = 12_582_912.0;
const WHOLE_BITS: u32 = WHOLE.to_bits();

/// Samples on a grid.
///
/// # Invariants
/// From `from_max` on there are `LOADED` samples in each of the four rows that are around a cell.
pub(super) struct Grid<'a, T> {
    samples: &'a [T],
    row: usize,
    layer: usize,
    /// The last position along each axis that still has a voxel after it.
    pub(super) last: [f32; 3],
    from_max: u32,
}

impl<'a, T: Voxel> Grid<'a, T> {
    /// A grid of at least two voxels along each axis, of samples that are [long enough](padded).
    pub(super) fn new(samples: &'a [T], size: [usize; 3]) -> Self {
        let last = size.map(|side| ((side - 1) as f32).next_down());
        let (row, layer) = (size[0], size[0] * size[1]);
        let from_max = samples.len().checked_sub(T::LOADED + layer + row);
        let from_max = from_max.and_then(|most| u32::try_from(most).ok());
        Self { samples, row, layer, last, from_max: from_max.expect("samples are long enough") }
    }

    /// Values at some positions, trilinear between voxels; what is outside is moved to the rim.
    #[inline(always)]
    pub(super) fn values<const N: usize>(
        &self,
        x: &Lanes<N>,
        y: &Lanes<N>,
        z: &Lanes<N>,
    ) -> Lanes<N> {
        let (xs, fx) = split(x, self.last[0]);
        let (ys, fy) = split(y, self.last[1]);
        let (zs, fz) = split(z, self.last[2]);
        let (row, layer) = (self.row as u32, self.layer as u32);
        let (mut from, mut before) = ([0_u32; N], [0_u32; N]);
        for l in 0..N {
            let first = xs[l] + ys[l] * row + zs[l] * layer;
            from[l] = first.min(self.from_max);
            before[l] = first - from[l];
        }
        let rows = [0, self.row, self.layer, self.layer + self.row];
        let mut pairs = [[T::Pair::default(); N]; 4];
        for (pairs, row) in pairs.iter_mut().zip(rows) {
            for (pair, from) in pairs.iter_mut().zip(from) {
                let at = from as usize + row;
                // A check for each load is a third of the time of a picture.
                // SAFETY: `from` is at most `from_max` and `row` at most `layer + row`, and the sum
                // of these and of `LOADED` is at most the length, as `new` has seen to.
                #[expect(unsafe_code, reason = "no check for any load")]
                let loaded = unsafe { self.samples.get_unchecked(at..at + T::LOADED) };
                *pair = T::pair(loaded);
            }
        }
        let mut corners = [[0.0_f32; N]; 8];
        for pair in 0..4 {
            for l in 0..N {
                let [low, high] = T::values(pairs[pair][l], before[l]);
                corners[2 * pair][l] = low;
                corners[2 * pair + 1][l] = high;
            }
        }
        let mut values = [0.0; N];
        for l in 0..N {
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

/// Samples of a grid of at least two along each axis, with some more at their end where there are
/// so few that what is loaded in one go is not there.
pub(super) fn padded<T: Voxel>(samples: &[T], size: [usize; 3]) -> Cow<'_, [T]> {
    let least = T::LOADED + size[0] * (size[1] + 1);
    if samples.len() >= least {
        return Cow::Borrowed(samples);
    }
    let mut longer = samples.to_vec();
    longer.resize(least, T::default());
    Cow::Owned(longer)
}

/// The voxel before each position, and the share of the way to the next one. A position on a
/// voxel may be said to be at the end of the cell before it: its value is the same.
#[inline(always)]
fn split<const N: usize>(positions: &Lanes<N>, last: f32) -> ([u32; N], Lanes<N>) {
    let (mut voxels, mut shares) = ([0; N], [0.0; N]);
    for l in 0..N {
        let position = positions[l].max(0.0).min(last);
        let whole = (position - 0.5) + WHOLE;
        voxels[l] = whole.to_bits() - WHOLE_BITS;
        shares[l] = position - (whole - WHOLE);
    }
    (voxels, shares)
}

/// Whole numbers nearest to what is from 0 to two million.
#[inline(always)]
pub(super) fn nearest<const N: usize>(values: &Lanes<N>) -> [u32; N] {
    let mut nearest = [0; N];
    for l in 0..N {
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
        for l in 0..8 {
            let expected = field(x[l].clamp(0.0, 4.0), y[l].clamp(0.0, 3.0), z[l]);
            assert!((values[l] - expected).abs() < 1e-5, "{l}: {} {expected}", values[l]);
        }
    }

    #[test]
    fn a_voxel_that_is_no_number_is_met_in_its_own_cells_only() {
        let size = [9, 3, 3];
        let samples: Vec<f32> = (0..81).map(|at| (at * at % 17) as f32).collect();
        let clean = Grid::new(&samples, size);
        // A lane beside the other, from cell to cell: some meet it, and the others never hear of it.
        let x: Lanes<16> = std::array::from_fn(|l| 0.25 + 0.5 * l as f32);
        for none in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 4, 8, 9 + 4, 9 * (3 + 1) + 4, 80] {
                let place = [at % 9, at / 9 % 3, at / 27].map(|place| place as f32);
                let mut spoilt = samples.clone();
                spoilt[at] = none;
                let spoilt = Grid::new(&spoilt, size);
                for (y, z) in [(0.25, 0.75), (1.5, 0.5), (0.75, 1.25), (1.25, 1.75)] {
                    let [values, expected] =
                        [&spoilt, &clean].map(|grid| grid.values(&x, &[y; 16], &[z; 16]));
                    for l in 0..16 {
                        let meets =
                            [x[l], y, z].iter().zip(place).all(|(on, at)| (on - at).abs() < 1.0);
                        match meets {
                            true => assert!(!values[l].is_finite(), "{none} {at}: {}", values[l]),
                            false => assert_eq!(values[l], expected[l], "{none} {at}: lane {l}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_cells_of_the_smallest_grids_are_whole() {
        for size in [[2, 2, 2], [3, 2, 2], [2, 3, 2], [2, 2, 3], [5, 4, 3]] {
            let field = |at: usize| {
                let (x, y, z) = (at % size[0], at / size[0] % size[1], at / (size[0] * size[1]));
                (1 + 3 * x + 7 * y + 20 * z) as u8
            };
            let samples: Vec<u8> = (0..size.iter().product()).map(field).collect();
            let padded = padded(&samples, size);
            let grid = Grid::new(&padded, size);
            for z in 0..size[2] {
                for y in 0..size[1] {
                    let x: Lanes<8> = std::array::from_fn(|l| 0.25 * l as f32);
                    let values = grid.values(&x, &[y as f32; 8], &[z as f32; 8]);
                    for (x, value) in x.iter().zip(values) {
                        let x = x.min((size[0] - 1) as f32);
                        let expected = 1.0 + 3.0 * x + (7 * y + 20 * z) as f32;
                        assert!((value - expected).abs() < 1e-4, "{size:?}: {value} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_long_row_has_a_voxel_after_it() {
        for side in [2_usize, 3, 4, 5, 255, 256, 257, 4097, 65_536] {
            let last = ((side - 1) as f32).next_down();
            let (voxels, shares) = split(&[side as f32; 8], last);
            assert_eq!(voxels[0] as usize, side - 2);
            assert!(shares[0] > 0.99 && shares[0] <= 1.0);
        }
    }
}
