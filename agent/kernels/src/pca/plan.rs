//! Principal components, slice by slice.

use std::ops::Range;

use faer::Mat;

use super::error::PcaError;
use super::found::Pca;
use super::gram::Gram;
use super::matrix::Matrix;
use super::observations::Observations;
use crate::plan::{Plan, Slice, Stretch, phases};

/// Finds principal components. Its units are runs of rows that are averaged, the same that are
/// centred, blocks of sums, one solution of the eigenproblem, and runs of the longer side that are
/// multiplied with eigenvectors.
///
/// The solution is one unit, however long it takes: it is ended with its process.
#[derive(Debug)]
pub struct PcaPlan {
    observations: Observations,
    count: usize,
    gram: Gram,
    eigenvalues: Vec<f64>,
    /// Those of `gram`, of as many eigenvalues as are above zero.
    vectors: Mat<f64>,
    /// Components or scores, whichever are not eigenvectors of `gram`.
    products: Mat<f64>,
}

impl PcaPlan {
    /// Gets ready to find the first `count` components of a matrix whose rows are observations.
    ///
    /// # Errors
    /// The matrix is too small or too large, or cannot have so many.
    pub fn new(data: Matrix, count: usize) -> Result<Box<Self>, PcaError> {
        let observations = Observations::new(data, count)?;
        Ok(Box::new(Self {
            gram: Gram::new(observations.short_side(), observations.long_side()),
            observations,
            eigenvalues: Vec::new(),
            vectors: Mat::new(),
            products: Mat::new(),
            count,
        }))
    }

    /// Units of each phase.
    fn lengths(&self) -> [usize; 5] {
        let runs = self.observations.runs();
        [runs, runs, self.gram.blocks(), 1, self.observations.projections()]
    }

    /// Adds to blocks of the sums.
    fn multiply(&mut self, blocks: Range<usize>) {
        let columns = self.observations.data.transposed();
        let short = if self.observations.is_upright() { columns } else { columns.transpose() };
        let scale = self.observations.scale;
        self.gram.add(blocks, short, scale * scale);
    }

    fn solve(&mut self) -> Result<(), PcaError> {
        let found = self.observations.solve(&self.gram.take(), self.count)?;
        self.products = Mat::zeros(self.observations.long_side(), found.vectors.ncols());
        (self.eigenvalues, self.vectors) = (found.values, found.vectors);
        Ok(())
    }
}

impl Plan for PcaPlan {
    type Output = Pca;
    type Error = PcaError;

    fn units(&self) -> u64 {
        self.lengths().iter().sum::<usize>() as u64
    }

    fn stretch(&self, unit: u64) -> Stretch {
        Stretch::of(unit, &self.lengths())
    }

    fn run(&mut self, slice: &Slice) -> Result<(), PcaError> {
        for phase in phases(slice, &self.lengths()) {
            match phase {
                (0, runs) => runs.for_each(|run| self.observations.add_up(run)),
                (1, mut runs) => runs.try_for_each(|run| self.observations.centre(run))?,
                (2, blocks) => self.multiply(blocks),
                (3, _) => self.solve()?,
                (_, runs) => {
                    self.observations.project(runs, self.vectors.as_ref(), &mut self.products);
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Pca, PcaError> {
        Ok(Pca::of(self.observations, self.eigenvalues, self.vectors, self.products))
    }
}
