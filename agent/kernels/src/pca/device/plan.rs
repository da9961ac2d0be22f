//! Principal components on a GPU, slice by slice.

use std::ops::Range;
use std::sync::Arc;

use faer::Mat;

use super::gram::DeviceGram;
use super::layout::Budget;
use super::scores::{DeviceScores, Weighted};
use super::solution::DeviceSolution;
use crate::gpu::Gpu;
use crate::pca::error::PcaError;
use crate::pca::found::Pca;
use crate::pca::matrix::Matrix;
use crate::pca::observations::Observations;
use crate::plan::{Plan, Slice, Stretch, phases};

/// Finds principal components on a GPU. Its units are runs of rows that are averaged, the same that
/// are centred, steps of sums on the device, steps of the eigenproblem on the device, its solution,
/// and steps of products with eigenvectors on the device; or, where there are more columns than rows,
/// runs of columns that are multiplied with these on the processor: a device has numbers as shares
/// of the largest one of their row, and columns may be smaller than others by far.
///
/// Where steps on the device do not find it, or are not tried, the solution is one unit on the
/// processor, however long it takes: it is ended with its process.
#[derive(Debug)]
pub struct DevicePcaPlan {
    observations: Observations,
    count: usize,
    /// The largest centred numbers along the longer side, for each place of the shorter one.
    largest: Vec<f64>,
    gram: DeviceGram,
    /// What has come back of `gram`, once all has.
    sums: Mat<f64>,
    /// None where sums are few or most of their eigenvectors are wanted.
    pub(super) solution: Option<DeviceSolution>,
    /// How many steps that has.
    steps: usize,
    /// None where there are more columns than rows.
    scores: Option<DeviceScores>,
    eigenvalues: Vec<f64>,
    vectors: Mat<f64>,
    /// Components or scores, whichever are not eigenvectors of `gram`.
    products: Mat<f64>,
}

/// Phases whose units are the device's steps.
const SUMS: usize = 2;
const SOLUTION: usize = 3;
/// That of the solution.
pub(super) const SOLVED: usize = 4;
const SCORES: usize = 5;
/// Kinds of units that the device has for sums or scores, at most.
const SCHEDULED_KINDS: usize = 64;

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
        let sides = (observations.short_side(), observations.long_side());
        let is_upright = observations.is_upright();
        let gram = DeviceGram::within(gpu.clone(), sides, is_upright, budget)?;
        let taken = gram.layout.held_bytes();
        let solution = DeviceSolution::new(gpu, sides.0, count, taken, budget)?;
        Ok(Box::new(Self {
            steps: solution.as_ref().map_or(0, DeviceSolution::units),
            solution,
            sums: Mat::new(),
            scores: is_upright.then(|| DeviceScores::new(&gram.layout, count)),
            gram,
            largest: vec![0.0; sides.0],
            eigenvalues: Vec::new(),
            vectors: Mat::new(),
            products: Mat::new(),
            observations,
            count,
        }))
    }

    fn centre(&mut self, run: usize) -> Result<(), PcaError> {
        self.observations.centre(run)?;
        for row in self.observations.rows_of(run) {
            let numbers = self.observations.data.row(row);
            if self.observations.is_upright() {
                let pairs = self.largest.iter_mut().zip(numbers);
                pairs.for_each(|(largest, number)| *largest = largest.max(number.abs()));
            } else {
                self.largest[row] = numbers.iter().fold(0.0, |most, number| most.max(number.abs()));
            }
        }
        if run + 1 == self.observations.runs() {
            self.gram.scale(self.observations.scale, &self.largest);
        }
        Ok(())
    }

    fn solve(&mut self) -> Result<(), PcaError> {
        let terms = self.observations.long_side();
        let found = self.solution.take().and_then(|solution| solution.into_found(terms));
        let found = match found {
            Some(found) => self.observations.unscaled(found),
            None => {
                self.take_sums();
                self.observations.solve(&self.sums, self.count)?
            }
        };
        self.sums = Mat::new();
        self.products = Mat::zeros(self.observations.long_side(), found.vectors.ncols());
        (self.eigenvalues, self.vectors) = (found.values, found.vectors);
        Ok(())
    }

    /// The sums, once they are there.
    fn take_sums(&mut self) {
        if self.sums.nrows() == 0 {
            self.sums = self.gram.take();
        }
    }

    /// Steps of the eigenproblem on the device.
    fn iterate(&mut self, units: Range<usize>) -> Result<(), PcaError> {
        self.take_sums();
        if let Some(solution) = &mut self.solution {
            solution.add(units, &self.sums)?;
        }
        Ok(())
    }

    /// Units of each phase.
    fn lengths(&self) -> [usize; 7] {
        let (runs, sums) = (self.observations.runs(), self.gram.units());
        let (scores, projections) = match &self.scores {
            Some(scores) => (scores.units(), 0),
            None => (0, self.observations.projections()),
        };
        [runs, runs, sums, self.steps, 1, scores, projections]
    }
}

impl Plan for DevicePcaPlan {
    type Output = Pca;
    type Error = PcaError;

    fn units(&self) -> u64 {
        self.lengths().iter().sum::<usize>() as u64
    }

    fn stretch(&self, unit: u64) -> Stretch {
        Stretch::within(unit, &self.lengths(), |phase, unit| match (phase, &self.scores) {
            (SUMS, _) => Some(self.gram.stretch(unit)),
            (SOLUTION, _) => self.solution.as_ref().map(|solution| {
                let Stretch { kind, end } = solution.stretch(unit);
                Stretch { kind: SCHEDULED_KINDS + kind, end }
            }),
            (SCORES, Some(scores)) => Some(scores.stretch(unit)),
            _ => None,
        })
    }

    fn run(&mut self, slice: &Slice) -> Result<(), PcaError> {
        for phase in phases(slice, &self.lengths()) {
            match phase {
                (0, units) => units.for_each(|run| self.observations.add_up(run)),
                (1, mut units) => units.try_for_each(|run| self.centre(run))?,
                (SUMS, units) => self.gram.add(units, &self.observations.data)?,
                (SOLUTION, units) => self.iterate(units)?,
                (SOLVED, _) => self.solve()?,
                (SCORES, units) => {
                    let Observations { data, scale, .. } = &self.observations;
                    let of = Weighted { data, scale: *scale, vectors: self.vectors.as_ref() };
                    if let Some(scores) = &mut self.scores {
                        scores.add(units, &self.gram, &of, &mut self.products)?;
                    }
                }
                (_, units) => {
                    let vectors = self.vectors.as_ref();
                    self.observations.project(units, vectors, &mut self.products);
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Pca, PcaError> {
        Ok(Pca::of(self.observations, self.eigenvalues, self.vectors, self.products))
    }
}
