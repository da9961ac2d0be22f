//! Which voxels are inside of a surface, for the rows that cells lie between.

use crate::limits::CELL_RUN;
use crate::volume::Voxel;

/// Which voxels of two neighbouring layers are inside: each is compared once, and not for each of
/// the cells around it. The layer of an even number comes first.
#[derive(Debug)]
pub(super) struct Inside {
    /// Voxels of a row.
    width: usize,
    /// One for each voxel that is inside, else zero.
    layers: [Vec<u8>; 2],
    /// Four voxels each, of the rows around a row of cells: bits 0, 2, 4 and 6.
    columns: Vec<u8>,
}

/// A column whose voxels are all inside.
const ALL: u8 = 0b0101_0101;

impl Inside {
    /// Bytes of memory for each voxel of a layer.
    pub(super) const VOXEL_BYTES: usize = size_of::<u8>();

    /// For layers of so many voxels, of which none is known.
    pub(super) fn new(width: usize, height: usize) -> Self {
        let layer = || vec![0; width * height];
        Self { width, layers: [layer(), layer()], columns: vec![0; width] }
    }

    /// Looks at a row of voxels.
    pub(super) fn look<T: Voxel>(&mut self, y: usize, z: usize, row: &[T], value: f32) {
        let known = &mut self.layers[z % 2][y * self.width..(y + 1) * self.width];
        for (inside, voxel) in known.iter_mut().zip(row) {
            *inside = u8::from(voxel.value() >= value);
        }
    }

    /// Gathers the voxels around a row of cells, which were all looked at.
    pub(super) fn gather(&mut self, y: usize, z: usize) {
        let row = |dy: usize, dz: usize| {
            let first = (y + dy) * self.width;
            self.layers[(z + dz) % 2][first..first + self.width].iter()
        };
        let lower = row(0, 0).zip(row(1, 0));
        let around = lower.zip(row(0, 1).zip(row(1, 1)));
        for (column, ((a, b), (c, d))) in self.columns.iter_mut().zip(around) {
            *column = a | b << 2 | c << 4 | d << 6;
        }
    }

    /// Cells of the row that the surface goes through, from this one on: the next one, and which of
    /// its corners are inside, the corner of x, y, z as bit x + 2 y + 4 z.
    pub(super) fn next(&self, mut x: usize) -> Option<(usize, u8)> {
        let cells = self.width - 1;
        while x < cells {
            let run = &self.columns[x..(x + CELL_RUN).min(cells) + 1];
            let first = run[0];
            let differs = run.iter().fold(0, |differs, column| differs | (column ^ first));
            if differs == 0 && (first == 0 || first == ALL) {
                x += run.len() - 1;
                continue;
            }
            for (at, pair) in run.windows(2).enumerate() {
                let case = pair[0] | pair[1] << 1;
                if case != 0 && case != u8::MAX {
                    return Some((x + at, case));
                }
            }
            x += run.len() - 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_the_surface_goes_through_are_found_one_by_one() {
        for width in [2, CELL_RUN, CELL_RUN + 1, 3 * CELL_RUN + 7] {
            let mut inside = Inside::new(width, 2);
            let voxel = |x: usize, row: usize| u8::from((x * 7 + row * 3) % 41 < 20 + row);
            let rows: Vec<Vec<u8>> =
                (0..4).map(|row| (0..width).map(|x| 9 * voxel(x, row)).collect()).collect();
            for (row, voxels) in rows.iter().enumerate() {
                // Layers 3 and 4.
                inside.look(row % 2, 3 + row / 2, voxels, 9.0);
            }
            inside.gather(0, 3);
            let mut found = Vec::new();
            let mut from = 0;
            while let Some((x, case)) = inside.next(from) {
                found.push((x, case));
                from = x + 1;
            }
            let case = |x: usize| {
                (0..8).fold(0, |case, corner| case | voxel(x + corner % 2, corner / 2) << corner)
            };
            let all = (0..width - 1).map(|x| (x, case(x)));
            let expected: Vec<_> = all.filter(|(_, case)| *case != 0 && *case != 255).collect();
            assert_eq!(found, expected, "{width}");
        }
    }
}
