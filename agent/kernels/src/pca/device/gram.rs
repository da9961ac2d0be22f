//! Sums of products of a matrix' rows, or of its columns, on a GPU.

use std::ops::Range;
use std::sync::Arc;

use faer::Mat;

use super::fixed::{Fixed, factor, fixed, power_above};
use super::layout::{Budget, Layout, NUMBER_BYTES, Tile};
use super::multiplier::{Factors, Multiplier, Place, Rows};
use super::schedule::{Group, Schedule, Work};
use crate::gpu::{Gpu, GpuError};
use crate::limits::{DEVICE_PRODUCT_DEPTH, DEVICE_PRODUCT_TILE, DEVICE_STAGING_BYTES};
use crate::pca::matrix::Matrix;
use crate::plan::Stretch;
use crate::threads;

/// The sums of products of a matrix' rows, or of its columns, which a GPU adds up step by step.
///
/// # Invariants
/// Only the lower triangle is written to, by tiles; the upper one is its mirror.
#[derive(Debug)]
pub(crate) struct DeviceGram {
    pub(super) layout: Layout,
    pub(super) multiplier: Multiplier,
    schedule: Schedule,
    tiles: Vec<Tile>,
    /// For each row, or column, the power of two that its numbers are below, once scaled.
    pub(super) powers: Vec<f64>,
    /// What its numbers are multiplied with to be whole ones.
    factors: Vec<f64>,
    /// Once the first ones come back.
    sums: Option<Mat<f64>>,
}

impl DeviceGram {
    /// Gets a GPU ready for the products of `rows` rows of `terms` numbers each.
    ///
    /// # Errors
    /// It has no memory left for them, was lost, or refuses.
    pub(crate) fn of_rows(gpu: Arc<Gpu>, rows: usize, terms: usize) -> Result<Self, GpuError> {
        let budget = Budget::of(&gpu);
        Self::within(gpu, (rows, terms), false, &budget)
    }

    /// For the products of `side` rows, or, where the matrix is upright, columns of `terms` numbers
    /// each.
    pub(super) fn within(
        gpu: Arc<Gpu>,
        (side, terms): (usize, usize),
        is_upright: bool,
        budget: &Budget,
    ) -> Result<Self, GpuError> {
        let (layout, multiplier) = fitting(*budget, |budget| {
            let layout = Layout::new(side, terms, is_upright, budget);
            Ok((layout, Multiplier::new(gpu.clone(), &layout)?))
        })?;
        Ok(Self {
            schedule: Schedule::of_sums(&layout),
            tiles: layout.gram_tiles(),
            layout,
            multiplier,
            powers: Vec::new(),
            factors: Vec::new(),
            sums: None,
        })
    }

    /// How many steps there are.
    pub(crate) fn units(&self) -> usize {
        self.schedule.units()
    }

    /// The stretch that a step is in.
    pub(crate) fn stretch(&self, unit: u64) -> Stretch {
        self.schedule.stretch(unit)
    }

    /// Says, before the first step, what numbers are multiplied with, a power of two, and what the
    /// largest one of each row, or column, is before that.
    pub(crate) fn scale(&mut self, scale: f64, largest: &[f64]) {
        self.powers = largest.iter().map(|most| power_above(most * scale)).collect();
        self.factors = self.powers.iter().map(|power| scale * factor(*power)).collect();
    }

    /// Performs some steps with the matrix.
    pub(crate) fn add(&mut self, units: Range<usize>, data: &Matrix) -> Result<(), GpuError> {
        for (work, units) in self.schedule.parts(units) {
            match work {
                Work::Send { slab } => self.send(slab, units, data)?,
                Work::Multiply(group) => self.multiply(&group, units)?,
                Work::Fetch(group) => self.fetch(&group, units)?,
                Work::Weigh { .. } => unreachable!("sums are of slabs with themselves"),
            }
        }
        Ok(())
    }

    /// The lower triangle of the sums.
    pub(crate) fn take(&mut self) -> Mat<f64> {
        self.sums.take().unwrap_or_else(Mat::new)
    }

    /// Sends lines of a slab.
    pub(super) fn send(
        &self,
        slab: usize,
        lines: Range<usize>,
        data: &Matrix,
    ) -> Result<(), GpuError> {
        let line_numbers = self.layout.lines(slab).1;
        let at_once = (DEVICE_STAGING_BYTES / NUMBER_BYTES / line_numbers).max(1);
        for first in lines.clone().step_by(at_once) {
            let end = (first + at_once).min(lines.end);
            let numbers = threads::map(first..end, |line| self.line(slab, line, data)).concat();
            let place = Place::Slab(self.layout.place(slab));
            self.multiplier.send(place, first * line_numbers, &numbers)?;
        }
        Ok(())
    }

    /// A line of a slab, as whole numbers.
    fn line(&self, slab: usize, line: usize, data: &Matrix) -> Vec<Fixed> {
        let of_slab = self.layout.of_slab(slab);
        if self.layout.is_upright {
            let numbers = data.row(of_slab.start + line).iter();
            numbers.zip(&self.factors).map(|(number, factor)| fixed(number * factor)).collect()
        } else {
            let factor = self.factors[line];
            data.row(line)[of_slab].iter().map(|number| fixed(number * factor)).collect()
        }
    }

    /// Multiplies a slab with itself.
    fn multiply(&self, group: &Group, units: Range<usize>) -> Result<(), GpuError> {
        let slab = group.slab;
        let rows = Rows { count: self.layout.short_side, strides: self.layout.strides(slab) };
        let place = self.layout.place(slab);
        let factors = Factors {
            left: (place, rows),
            right: (Place::Slab(place), rows),
            layer: self.layout.depths_of_layer(slab) * DEVICE_PRODUCT_DEPTH,
            end: self.layout.of_slab(slab).len(),
        };
        self.multiplier.multiply_group(&factors, (group, &self.tiles), units)
    }

    /// Adds tiles of a group that come back.
    fn fetch(&mut self, group: &Group, units: Range<usize>) -> Result<(), GpuError> {
        let Self { layout, tiles, powers, sums, .. } = self;
        let side = layout.short_side;
        let sums = sums.get_or_insert_with(|| Mat::zeros(side, side));
        let of_block = |block: usize| {
            let first = block * DEVICE_PRODUCT_TILE;
            first..(first + DEVICE_PRODUCT_TILE).min(layout.short_side)
        };
        self.multiplier.fetch_each(units, |tile, sum| {
            let Tile { row, column, .. } = tiles[group.first + tile];
            for (j, column) in of_block(column).enumerate() {
                for (i, row) in of_block(row).enumerate() {
                    sums[(row, column)] += sum(i, j) * (powers[row] * powers[column]);
                }
            }
        })
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
        let budget = Budget {
            slab_bytes: 8,
            matrix_bytes: 64,
            tiles: 3,
            solved_side: 0,
            solved_products: 0,
        };
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
