//! A matrix whose columns are centred, run by run.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

use super::eigen::{self, Eigen};
use super::error::PcaError;
use super::matrix::Matrix;
use crate::limits::{GRAM_SIDE_MAX, PCA_ROWS};
use crate::threads;

/// A matrix whose rows are observations, which are centred run by run: first all runs are added
/// up, then all are centred.
#[derive(Debug)]
pub(super) struct Observations {
    pub(super) data: Matrix,
    pub(super) means: Vec<f64>,
    /// Which columns do.
    pub(super) varies: Vec<bool>,
    /// Power of two that centred numbers are multiplied with, so that the largest is about one.
    pub(super) scale: f64,
    largest: f64,
}

impl Observations {
    /// Of which `count` components are to be found.
    pub(super) fn new(data: Matrix, count: usize) -> Result<Self, PcaError> {
        let (rows, columns) = (data.rows, data.columns);
        if rows < 2 || columns == 0 {
            return Err(PcaError::TooSmall { rows, columns });
        }
        let most = (rows - 1).min(columns);
        if !(1..=most).contains(&count) {
            return Err(PcaError::Components { asked: count, most, rows, columns });
        }
        if rows.min(columns) > GRAM_SIDE_MAX {
            return Err(PcaError::TooLarge { rows, columns });
        }
        let (means, varies) = (vec![0.0; columns], vec![false; columns]);
        Ok(Self { data, means, varies, scale: 1.0, largest: 0.0 })
    }

    /// Whether sums are over rows and their eigenvectors are the components.
    pub(super) const fn is_upright(&self) -> bool {
        self.data.columns <= self.data.rows
    }

    pub(super) fn short_side(&self) -> usize {
        self.data.rows.min(self.data.columns)
    }

    pub(super) fn long_side(&self) -> usize {
        self.data.rows.max(self.data.columns)
    }

    pub(super) const fn runs(&self) -> usize {
        self.data.rows.div_ceil(PCA_ROWS)
    }

    /// The rows of a run.
    pub(super) fn rows_of(&self, run: usize) -> Range<usize> {
        run * PCA_ROWS..((run + 1) * PCA_ROWS).min(self.data.rows)
    }

    /// Adds a run to the means.
    pub(super) fn add_up(&mut self, run: usize) {
        let rows = self.rows_of(run);
        let first = self.data.row(0);
        for row in rows {
            for (column, number) in self.data.row(row).iter().enumerate() {
                self.means[column] += number;
                self.varies[column] |= *number != first[column];
            }
        }
        if run + 1 == self.runs() {
            let rows = self.data.rows as f64;
            self.means.iter_mut().for_each(|mean| *mean /= rows);
        }
    }

    /// Subtracts the means from a run.
    pub(super) fn centre(&mut self, run: usize) -> Result<(), PcaError> {
        let (rows, columns) = (self.rows_of(run), self.data.columns);
        let numbers = &mut self.data.numbers[rows.start * columns..rows.end * columns];
        for row in numbers.chunks_exact_mut(columns) {
            for ((number, mean), varies) in row.iter_mut().zip(&self.means).zip(&self.varies) {
                // Exactly zero where nothing varies, whatever the mean was rounded to.
                *number = if *varies { *number - mean } else { 0.0 };
                self.largest = self.largest.max(number.abs());
            }
        }
        if run + 1 == self.runs() {
            self.scale = scale(self.largest)?;
        }
        Ok(())
    }

    /// The `count` largest eigenvalues of sums of products of what was centred and scaled, as of
    /// what was only centred.
    pub(super) fn solve(&self, gram: &Mat<f64>, count: usize) -> Result<Eigen, PcaError> {
        let found = eigen::largest(gram, count, self.long_side());
        Ok(self.unscaled(found.ok_or(PcaError::NoConvergence)?))
    }

    /// What was found of what was centred and scaled, as of what was only centred.
    pub(super) fn unscaled(&self, mut found: Eigen) -> Eigen {
        found.values.iter_mut().for_each(|value| *value = *value / self.scale / self.scale);
        found
    }

    /// How many runs of the longer side are multiplied with eigenvectors.
    pub(super) fn projections(&self) -> usize {
        self.long_side().div_ceil(PCA_ROWS)
    }

    /// Multiplies some of these runs with eigenvectors.
    pub(super) fn project(
        &self,
        runs: Range<usize>,
        vectors: MatRef<'_, f64>,
        products: &mut Mat<f64>,
    ) {
        let (data, long_side) = (self.data.transposed(), self.long_side());
        let length = |first: usize| PCA_ROWS.min(long_side - first);
        let found = threads::map(runs.clone(), |run| {
            let first = run * PCA_ROWS;
            let left = if self.is_upright() {
                data.submatrix(0, first, data.nrows(), length(first)).transpose()
            } else {
                data.submatrix(first, 0, length(first), data.ncols())
            };
            let mut product = Mat::zeros(length(first), vectors.ncols());
            matmul(product.as_mut(), Accum::Replace, left, vectors, 1.0, Par::Seq);
            product
        });
        for (run, product) in runs.zip(found) {
            let (first, width) = (run * PCA_ROWS, product.ncols());
            let target = products.as_mut();
            target.submatrix_mut(first, 0, product.nrows(), width).copy_from(product);
        }
    }
}

/// The power of two that makes `largest` about one.
pub(crate) fn scale(largest: f64) -> Result<f64, PcaError> {
    if largest == 0.0 {
        return Ok(1.0);
    }
    // So that its square, and a sum of many, is a normal number.
    let exponent = largest.log2().floor();
    if exponent.abs() < 480.0 { Ok((-exponent).exp2()) } else { Err(PcaError::Range(largest)) }
}
