//! Principal components on a GPU, slice by slice.

use std::ops::Range;
use std::sync::Arc;

use faer::Mat;

use super::fixed::{self, Fixed, factor, fixed, power_above};
use super::layout::{Budget, Layout, NUMBER_BYTES, Tile};
use super::multiplier::{Depths, Multiplier, Place, Rows, TILE_SUMS};
use super::schedule::{Group, Schedule, Work};
use crate::gpu::{Gpu, GpuError};
use crate::limits::{
    DEVICE_FETCH_TILES_MAX, DEVICE_PRODUCT_DEPTH, DEVICE_PRODUCT_TILE, DEVICE_STAGING_BYTES,
};
use crate::pca::error::PcaError;
use crate::pca::found::Pca;
use crate::pca::matrix::Matrix;
use crate::pca::observations::Observations;
use crate::plan::{Plan, Slice, Stretch};
use crate::threads;

/// Finds principal components on a GPU. Its units are runs of rows that are averaged, the same that
/// are centred, lines that are sent, tiles that are multiplied or come back, one solution of the
/// eigenproblem, on the processor, and eigenvectors that are sent; or, where there are more columns
/// than rows, runs of columns that are multiplied with these on the processor.
///
/// The solution is one unit, however long it takes: it is ended with its process.
#[derive(Debug)]
pub struct DevicePcaPlan {
    observations: Observations,
    count: usize,
    layout: Layout,
    schedule: Schedule,
    multiplier: Multiplier,
    /// Tiles of the sums of squares and products.
    gram_tiles: Vec<Tile>,
    /// The largest centred numbers along the longer side, for each place of the shorter one.
    largest: Vec<f64>,
    /// The powers of two that these are below, once scaled.
    powers: Vec<f64>,
    /// What numbers are multiplied with to be whole ones.
    factors: Vec<f64>,
    gram: Mat<f64>,
    eigenvalues: Vec<f64>,
    vectors: Mat<f64>,
    /// The powers of two that the eigenvectors of a strip on the device are below.
    vector_powers: Vec<f64>,
    /// Components or scores, whichever are not eigenvectors of `gram`.
    products: Mat<f64>,
}

impl DevicePcaPlan {
    /// Gets ready to find the first `count` components of a matrix whose rows are observations.
    ///
    /// # Errors
    /// The matrix is too small or too large, or cannot have so many; the device has no memory left
    /// for it, was lost, or refuses.
    pub fn new(gpu: Arc<Gpu>, data: Matrix, count: usize) -> Result<Box<Self>, PcaError> {
        let budget = Budget::of(&gpu);
        Self::within(gpu, data, count, &budget)
    }

    pub(super) fn within(
        gpu: Arc<Gpu>,
        data: Matrix,
        count: usize,
        budget: &Budget,
    ) -> Result<Box<Self>, PcaError> {
        let observations = Observations::new(data, count)?;
        let (short_side, long_side) = (observations.short_side(), observations.long_side());
        let (layout, multiplier) = fitting(*budget, |budget| {
            let layout = Layout::new(short_side, long_side, observations.is_upright(), budget);
            Ok((layout, Multiplier::new(gpu.clone(), &layout)?))
        })?;
        let (runs, projections) = (observations.runs(), observations.projections());
        Ok(Box::new(Self {
            multiplier,
            schedule: Schedule::new(&layout, runs, count, projections),
            gram_tiles: layout.gram_tiles(),
            layout,
            largest: vec![0.0; short_side],
            powers: Vec::new(),
            factors: Vec::new(),
            gram: Mat::zeros(short_side, short_side),
            eigenvalues: Vec::new(),
            vectors: Mat::new(),
            vector_powers: Vec::new(),
            products: Mat::new(),
            observations,
            count,
        }))
    }

    fn centre(&mut self, run: usize) -> Result<(), PcaError> {
        self.observations.centre(run)?;
        for row in self.observations.rows_of(run) {
            let numbers = self.observations.data.row(row);
            if self.layout.is_upright {
                let pairs = self.largest.iter_mut().zip(numbers);
                pairs.for_each(|(largest, number)| *largest = largest.max(number.abs()));
            } else {
                self.largest[row] = numbers.iter().fold(0.0, |most, number| most.max(number.abs()));
            }
        }
        if run + 1 == self.observations.runs() {
            let scale = self.observations.scale;
            self.powers = self.largest.iter().map(|most| power_above(most * scale)).collect();
            self.factors = self.powers.iter().map(|power| scale * factor(*power)).collect();
        }
        Ok(())
    }

    /// Where a slab is on the device.
    const fn place(&self, slab: usize) -> usize {
        slab % self.layout.held
    }

    /// Sends lines of a slab.
    fn send(&self, slab: usize, lines: Range<usize>) -> Result<(), GpuError> {
        let line_numbers = self.layout.lines(slab).1;
        let at_once = (DEVICE_STAGING_BYTES / NUMBER_BYTES / line_numbers).max(1);
        for first in lines.clone().step_by(at_once) {
            let end = (first + at_once).min(lines.end);
            let numbers = threads::map(first..end, |line| self.line(slab, line)).concat();
            let place = Place::Slab(self.place(slab));
            self.multiplier.send(place, first * line_numbers, &numbers)?;
        }
        Ok(())
    }

    /// A line of a slab, as whole numbers.
    fn line(&self, slab: usize, line: usize) -> Vec<Fixed> {
        let (data, of_slab) = (&self.observations.data, self.layout.of_slab(slab));
        if self.layout.is_upright {
            let numbers = data.row(of_slab.start + line).iter();
            numbers.zip(&self.factors).map(|(number, factor)| fixed(number * factor)).collect()
        } else {
            let factor = self.factors[line];
            data.row(line)[of_slab].iter().map(|number| fixed(number * factor)).collect()
        }
    }

    /// Sends some eigenvectors of a strip, each with the powers of what it is multiplied with.
    fn weigh(&mut self, strip: usize, vectors: Range<usize>) -> Result<(), GpuError> {
        let (of_strip, side) = (self.of_strip(strip), self.layout.short_side);
        self.vector_powers.resize(DEVICE_PRODUCT_TILE, 1.0);
        for (at, i) in of_strip.enumerate().take(vectors.end).skip(vectors.start) {
            let vector = self.vectors.col_as_slice(i).iter().zip(&self.powers);
            let weights: Vec<f64> = vector.map(|(part, power)| part * power).collect();
            let largest = weights.iter().fold(0.0_f64, |most, weight| most.max(weight.abs()));
            self.vector_powers[at] = power_above(largest);
            let factor = factor(self.vector_powers[at]);
            let numbers: Vec<Fixed> = weights.iter().map(|weight| fixed(weight * factor)).collect();
            self.multiplier.send(Place::Strip, at * side, &numbers)?;
        }
        Ok(())
    }

    /// The eigenvectors of a strip; none where there are fewer than were asked for.
    fn of_strip(&self, strip: usize) -> Range<usize> {
        let rank = self.vectors.ncols();
        (strip * DEVICE_PRODUCT_TILE).min(rank)..((strip + 1) * DEVICE_PRODUCT_TILE).min(rank)
    }

    /// Multiplies tiles of a group: all of them for the first numbers, all for the next.
    fn multiply(&self, group: &Group, units: Range<usize>) -> Result<(), GpuError> {
        let slab = group.slab;
        if units.start == 0 {
            let of_group = group.first..group.first + group.count;
            match group.strip {
                None => self.multiplier.place_tiles(&self.gram_tiles[of_group])?,
                Some(_) => {
                    self.multiplier.place_tiles(&self.layout.weighed_tiles(slab)[of_group])?;
                }
            }
        }
        let ([short, long], place) = (self.layout.strides(slab), self.place(slab));
        let of_slab = self.layout.of_slab(slab).len();
        let (left, right, layer, end) = match group.strip {
            None => {
                let rows = Rows { count: self.layout.short_side, strides: [short, long] };
                let layer = self.layout.depths_of_layer(slab) * DEVICE_PRODUCT_DEPTH;
                (rows, (Place::Slab(place), rows), layer, of_slab)
            }
            Some(strip) => {
                let (count, side) = (self.of_strip(strip).len(), self.layout.short_side);
                let rows = Rows { count: of_slab, strides: [long, short] };
                (rows, (Place::Strip, Rows { count, strides: [side, 1] }), side, side)
            }
        };
        let mut unit = units.start;
        while unit < units.end {
            let (depth, first) = (unit / group.count, unit % group.count);
            let count = (group.count - first).min(units.end - unit);
            let begin = depth * DEVICE_PRODUCT_DEPTH;
            let range = begin..begin + DEVICE_PRODUCT_DEPTH;
            let depths = Depths { range, layer, end, begins: group.begins && depth == 0 };
            self.multiplier.multiply((place, left), right, &depths, first..first + count)?;
            unit += count;
        }
        Ok(())
    }

    /// Adds tiles of a group that come back to what they are of.
    fn fetch(&mut self, group: &Group, tiles: Range<usize>) -> Result<(), GpuError> {
        for first in tiles.clone().step_by(DEVICE_FETCH_TILES_MAX) {
            let end = (first + DEVICE_FETCH_TILES_MAX).min(tiles.end);
            let sums = self.multiplier.fetch(first..end)?;
            for (tile, sums) in (first..end).zip(sums.chunks_exact(2 * TILE_SUMS)) {
                let (upper, lower) = sums.split_at(TILE_SUMS);
                let sum = |at: usize| fixed::sum(upper[at], lower[at]);
                match group.strip {
                    None => self.add(self.gram_tiles[group.first + tile], sum),
                    Some(strip) => self.keep(group, strip, group.first + tile, sum),
                }
            }
        }
        Ok(())
    }

    /// Adds a tile to the sums of squares and products.
    fn add(&mut self, tile: Tile, sum: impl Fn(usize) -> f64) {
        let [rows, columns] = [tile.row, tile.column].map(|block| {
            let first = block * DEVICE_PRODUCT_TILE;
            first..(first + DEVICE_PRODUCT_TILE).min(self.layout.short_side)
        });
        for (j, column) in columns.enumerate() {
            for (i, row) in rows.clone().enumerate() {
                let scale = self.powers[row] * self.powers[column];
                self.gram[(row, column)] += sum(i * DEVICE_PRODUCT_TILE + j) * scale;
            }
        }
    }

    /// Keeps a tile of a slab's products with a strip of eigenvectors.
    fn keep(&mut self, group: &Group, strip: usize, block: usize, sum: impl Fn(usize) -> f64) {
        let of_slab = self.layout.of_slab(group.slab);
        let first = of_slab.start + block * DEVICE_PRODUCT_TILE;
        let rows = first..(first + DEVICE_PRODUCT_TILE).min(of_slab.end);
        for (j, i) in self.of_strip(strip).enumerate() {
            let scale = self.vector_powers[j] / self.observations.scale;
            for (at, row) in rows.clone().enumerate() {
                self.products[(row, i)] = sum(at * DEVICE_PRODUCT_TILE + j) * scale;
            }
        }
    }

    fn solve(&mut self) -> Result<(), PcaError> {
        let gram = std::mem::replace(&mut self.gram, Mat::new());
        let found = self.observations.solve(&gram, self.count)?;
        self.products = Mat::zeros(self.layout.long_side, found.vectors.ncols());
        (self.eigenvalues, self.vectors) = (found.values, found.vectors);
        Ok(())
    }
}

impl Plan for DevicePcaPlan {
    type Output = Pca;
    type Error = PcaError;

    fn units(&self) -> u64 {
        self.schedule.units()
    }

    fn stretch(&self, unit: u64) -> Stretch {
        self.schedule.stretch(unit)
    }

    fn run(&mut self, slice: &Slice) -> Result<(), PcaError> {
        for (work, mut units) in self.schedule.parts(slice) {
            match work {
                Work::Average => units.for_each(|run| self.observations.add_up(run)),
                Work::Centre => units.try_for_each(|run| self.centre(run))?,
                Work::Send { slab } => self.send(slab, units)?,
                Work::Multiply(group) => self.multiply(&group, units)?,
                Work::Fetch(group) => self.fetch(&group, units)?,
                Work::Solve => self.solve()?,
                Work::Weigh { strip } => self.weigh(strip, units)?,
                // A device has numbers as shares of the largest one of their row, and columns may
                // be smaller than others by far.
                Work::Project => {
                    let products = &mut self.products;
                    self.observations.project(units, self.vectors.as_ref(), products);
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Pca, PcaError> {
        Ok(Pca::of(self.observations, self.eigenvalues, self.vectors, self.products))
    }
}

/// What a budget gives, or, where a device has no memory left for that, a slab at a time.
fn fitting<T>(budget: Budget, get: impl Fn(&Budget) -> Result<T, GpuError>) -> Result<T, GpuError> {
    match get(&budget) {
        Err(GpuError::OutOfMemory { .. }) => get(&budget.streaming()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_matrix_has_no_room_a_slab_at_a_time_is_tried() {
        let budget = Budget { slab_bytes: 8, matrix_bytes: 64, tiles: 3 };
        let full = || GpuError::OutOfMemory { device: "GPU".to_owned(), what: "all".to_owned() };
        let small = |budget: &Budget| {
            if budget.matrix_bytes > 0 {
                Err(full())
            } else {
                Ok((budget.slab_bytes, budget.tiles))
            }
        };
        assert_eq!(fitting(budget, small), Ok((8, 3)));
        assert_eq!(fitting(budget, |budget| Ok(budget.matrix_bytes)), Ok(64));
        assert_eq!(fitting(budget, |_| Err::<(), _>(full())), Err(full()));
        let hung = || GpuError::Hung { device: "GPU".to_owned() };
        let lost = |budget: &Budget| {
            if budget.matrix_bytes > 0 { Err(hung()) } else { Ok(()) }
        };
        assert_eq!(fitting(budget, lost), Err(hung()));
    }
}
