//! Products of a matrix' rows with eigenvectors, on a GPU.

use std::ops::Range;

use faer::{Mat, MatRef};

use super::fixed::{Fixed, factor, fixed, power_above};
use super::gram::DeviceGram;
use super::layout::{Layout, NUMBER_BYTES};
use super::multiplier::{Factors, Place, Rows};
use super::schedule::{Group, Schedule, Work};
use crate::gpu::GpuError;
use crate::limits::{DEVICE_PRODUCT_TILE, DEVICE_STAGING_BYTES};
use crate::pca::matrix::Matrix;
use crate::plan::Stretch;

/// Multiplies rows of a matrix that has no more columns than rows with eigenvectors of its columns'
/// sums, on the GPU that has added these up.
#[derive(Debug)]
pub(super) struct DeviceScores {
    schedule: Schedule,
    /// The strip of eigenvectors that is on the device, and the powers of two that these are below,
    /// each times the power of what it is multiplied with.
    strip: usize,
    powers: Vec<f64>,
}

/// What is multiplied.
pub(super) struct Weighted<'a> {
    pub(super) data: &'a Matrix,
    /// What was said to scale the matrix with.
    pub(super) scale: f64,
    pub(super) vectors: MatRef<'a, f64>,
}

impl DeviceScores {
    /// With `components` eigenvectors, or fewer.
    pub(super) fn new(layout: &Layout, components: usize) -> Self {
        let powers = vec![1.0; DEVICE_PRODUCT_TILE];
        Self { schedule: Schedule::of_scores(layout, components), strip: 0, powers }
    }

    /// How many steps there are.
    pub(super) fn units(&self) -> usize {
        self.schedule.units()
    }

    /// The stretch that a step is in.
    pub(super) fn stretch(&self, unit: u64) -> Stretch {
        self.schedule.stretch(unit)
    }

    /// Performs some steps; what is known after them is in `products`.
    pub(super) fn add(
        &mut self,
        units: Range<usize>,
        gram: &DeviceGram,
        of: &Weighted<'_>,
        products: &mut Mat<f64>,
    ) -> Result<(), GpuError> {
        for (work, units) in self.schedule.parts(units) {
            match work {
                Work::Send { slab } => gram.send(slab, units, of.data)?,
                Work::Weigh { strip } => self.weigh(strip, units, gram, of.vectors)?,
                Work::Multiply(group) => self.multiply(&group, units, gram, of.vectors)?,
                Work::Fetch(group) => self.fetch(&group, units, gram, of, products)?,
            }
        }
        Ok(())
    }

    /// Sends some eigenvectors of a strip, each with the powers of what it is multiplied with.
    fn weigh(
        &mut self,
        strip: usize,
        vectors: Range<usize>,
        gram: &DeviceGram,
        all: MatRef<'_, f64>,
    ) -> Result<(), GpuError> {
        self.strip = strip;
        let (of_strip, side) = (self.of_strip(all), gram.layout.short_side);
        let end = vectors.end.min(of_strip.len());
        let at_once = (DEVICE_STAGING_BYTES / NUMBER_BYTES / side).max(1);
        for first in (vectors.start..end).step_by(at_once) {
            let mut numbers: Vec<Fixed> = Vec::new();
            for at in first..(first + at_once).min(end) {
                let vector = all.col(of_strip.start + at).iter().zip(&gram.powers);
                let weights: Vec<f64> = vector.map(|(part, power)| part * power).collect();
                let largest = weights.iter().fold(0.0_f64, |most, weight| most.max(weight.abs()));
                self.powers[at] = power_above(largest);
                let factor = factor(self.powers[at]);
                numbers.extend(weights.iter().map(|weight| fixed(weight * factor)));
            }
            gram.multiplier.send(Place::Strip, first * side, &numbers)?;
        }
        Ok(())
    }

    /// The eigenvectors of the strip; none where there are fewer than were asked for.
    fn of_strip(&self, vectors: MatRef<'_, f64>) -> Range<usize> {
        let (rank, first) = (vectors.ncols(), self.strip * DEVICE_PRODUCT_TILE);
        first.min(rank)..(first + DEVICE_PRODUCT_TILE).min(rank)
    }

    /// Multiplies a slab with the strip.
    fn multiply(
        &self,
        group: &Group,
        units: Range<usize>,
        gram: &DeviceGram,
        vectors: MatRef<'_, f64>,
    ) -> Result<(), GpuError> {
        let (layout, slab) = (&gram.layout, group.slab);
        let ([short, long], side) = (layout.strides(slab), layout.short_side);
        let of_slab = Rows { count: layout.of_slab(slab).len(), strides: [long, short] };
        let of_strip = Rows { count: self.of_strip(vectors).len(), strides: [side, 1] };
        let factors = Factors {
            left: (layout.place(slab), of_slab),
            right: (Place::Strip, of_strip),
            layer: side,
            end: side,
        };
        let tiles = layout.weighed_tiles(slab);
        gram.multiplier.multiply_group(&factors, (group, &tiles), units)
    }

    /// Keeps tiles of a group that come back.
    fn fetch(
        &self,
        group: &Group,
        units: Range<usize>,
        gram: &DeviceGram,
        of: &Weighted<'_>,
        products: &mut Mat<f64>,
    ) -> Result<(), GpuError> {
        let (of_slab, of_strip) = (gram.layout.of_slab(group.slab), self.of_strip(of.vectors));
        gram.multiplier.fetch_each(units, |tile, sum| {
            let first = of_slab.start + (group.first + tile) * DEVICE_PRODUCT_TILE;
            let rows = first..(first + DEVICE_PRODUCT_TILE).min(of_slab.end);
            for (j, i) in of_strip.clone().enumerate() {
                let scale = self.powers[j] / of.scale;
                for (at, row) in rows.clone().enumerate() {
                    products[(row, i)] = sum(at, j) * scale;
                }
            }
        })
    }
}
