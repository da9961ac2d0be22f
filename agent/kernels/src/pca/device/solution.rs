//! The largest eigenvalues of sums of squares and products, by products on a GPU.
//!
//! The sums are sent to the device as a matrix of their own, and multiplied there with block after
//! block of vectors; what is between the products is the processor's. Units are counted for as many
//! products as are tried at most: those that are left, once all is found, take no time.

use std::ops::Range;
use std::sync::Arc;

use faer::Mat;

use super::gram::DeviceGram;
use super::layout::{Budget, NUMBER_BYTES};
use super::scores::{DeviceScores, Weighted};
use crate::gpu::{Gpu, GpuError};
use crate::limits::LEADING_SHARE_MAX;
use crate::pca::eigen::Eigen;
use crate::pca::matrix::Matrix;
use crate::pca::subspace::Subspace;
use crate::plan::{Slice, Stretch, phases};

/// Finds few of many eigenvalues, if that takes no more products than are tried.
#[derive(Debug)]
pub(super) struct DeviceSolution {
    /// What multiplies the sums.
    multiplier: DeviceGram,
    products: DeviceScores,
    side: usize,
    /// Until they are sent.
    sums: Matrix,
    subspace: Subspace,
    product: Mat<f64>,
    /// Products that are tried.
    most: usize,
}

/// Kinds of units that are not the multiplier's.
const LINES: usize = 0;
const STEPS: usize = 1;
const OWN_KINDS: usize = 2;

impl DeviceSolution {
    /// Gets a GPU ready for sums of `side` rows; `None` where they have no room beside a matrix that
    /// takes `taken` bytes, or most of their eigenvectors are wanted.
    ///
    /// # Errors
    /// The device was lost, or refuses.
    pub(super) fn new(
        gpu: Arc<Gpu>,
        side: usize,
        count: usize,
        taken: usize,
        budget: &Budget,
    ) -> Result<Option<Self>, GpuError> {
        let room = budget.beside(taken);
        let has_room = side * side * NUMBER_BYTES <= room.matrix_bytes;
        if !has_room || side < room.solved_side || count > side / LEADING_SHARE_MAX {
            return Ok(None);
        }
        let multiplier = match DeviceGram::within(gpu, (side, side), true, &room) {
            Ok(multiplier) => multiplier,
            Err(GpuError::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Sent again for each product, they would not be there any sooner than from a processor.
        if multiplier.layout.held < multiplier.layout.slabs() {
            return Ok(None);
        }
        let width = Subspace::width(side, count);
        Ok(Some(Self {
            products: DeviceScores::new(&multiplier.layout, width),
            multiplier,
            side,
            sums: Matrix { rows: side, columns: side, numbers: Vec::new() },
            subspace: Subspace::new(side, count),
            product: Mat::zeros(side, width),
            most: room.solved_products,
        }))
    }

    /// How many steps there are: lines of the sums, and for each product those of the device and one
    /// more.
    pub(super) fn units(&self) -> usize {
        self.side + self.most * self.units_of_product()
    }

    fn units_of_product(&self) -> usize {
        self.products.units() + 1
    }

    /// The stretch that a step is in.
    pub(super) fn stretch(&self, unit: u64) -> Stretch {
        let lines = self.side as u64;
        if unit < lines {
            return Stretch { kind: LINES, end: lines };
        }
        let each = self.units_of_product() as u64;
        let begin = lines + (unit - lines) / each * each;
        if unit + 1 == begin + each {
            return Stretch { kind: STEPS, end: unit + 1 };
        }
        let Stretch { kind, end } = self.products.stretch(unit - begin);
        Stretch { kind: OWN_KINDS + kind, end: begin + end.min(each - 1) }
    }

    /// Performs some steps for the sums whose lower triangle is `gram`.
    pub(super) fn add(&mut self, units: Range<usize>, gram: &Mat<f64>) -> Result<(), GpuError> {
        let each = self.units_of_product();
        let lengths = [self.side, self.most * each];
        let slice = Slice::new(units.start as u64..units.end as u64);
        for (phase, units) in phases(&slice, &lengths) {
            if phase == LINES {
                self.send(units, gram)?;
                continue;
            }
            let mut unit = units.start;
            while unit < units.end && !self.subspace.is_over() {
                let end = units.end.min((unit / each + 1) * each);
                self.multiply(unit % each..end - unit / each * each)?;
                unit = end;
            }
        }
        Ok(())
    }

    /// Whether all is found.
    #[cfg(test)]
    pub(super) const fn is_found(&self) -> bool {
        self.subspace.is_found()
    }

    /// What was found, of sums of `terms` products.
    pub(super) fn into_found(self, terms: usize) -> Option<Eigen> {
        self.subspace.into_found(terms)
    }

    /// Sends lines of the sums.
    fn send(&mut self, lines: Range<usize>, gram: &Mat<f64>) -> Result<(), GpuError> {
        if lines.start == 0 {
            // No sum of products is larger than the roots of both sums of squares, but for rounding.
            let roots: Vec<f64> = (0..self.side).map(|i| gram[(i, i)].max(0.0).sqrt()).collect();
            let most = 1.001 * roots.iter().fold(0.0_f64, |most, root| most.max(*root));
            let largest: Vec<f64> = roots.iter().map(|root| root * most).collect();
            self.multiplier.scale(1.0, &largest);
            self.sums.numbers = vec![0.0; self.side * self.side];
        }
        for line in lines.clone() {
            let numbers = self.sums.numbers.chunks_exact_mut(self.side).nth(line);
            for (i, number) in numbers.into_iter().flatten().enumerate() {
                *number = gram[(line.max(i), line.min(i))];
            }
        }
        let layout = &self.multiplier.layout;
        for slab in 0..layout.slabs() {
            let of_slab = layout.of_slab(slab);
            let (first, end) = (lines.start.max(of_slab.start), lines.end.min(of_slab.end));
            if first < end {
                let lines = first - of_slab.start..end - of_slab.start;
                self.multiplier.send(slab, lines, &self.sums)?;
            }
        }
        if lines.end == self.side {
            // All of it is held there.
            self.sums.numbers = Vec::new();
        }
        Ok(())
    }

    /// Steps of one product.
    fn multiply(&mut self, units: Range<usize>) -> Result<(), GpuError> {
        let on_device = units.start..units.end.min(self.products.units());
        if !on_device.is_empty() {
            let vectors = self.subspace.block().as_ref();
            let of = Weighted { data: &self.sums, scale: 1.0, vectors };
            self.products.add(on_device, &self.multiplier, &of, &mut self.product)?;
        }
        if units.end > self.products.units() {
            let next = Mat::zeros(self.product.nrows(), self.product.ncols());
            self.subspace.take(std::mem::replace(&mut self.product, next));
        }
        Ok(())
    }
}
