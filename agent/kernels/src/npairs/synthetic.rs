//! Scans of brains that were never there, with activation in a known place.

use thiserror::Error;

use crate::dice::Dice;
use crate::limits::VOXELS_MAX;
use crate::pca::Matrix;
use crate::volume::{Series, VolumeError};

/// What scans are made like: an ellipsoid of even brightness, in which noise of the normal
/// distribution is added to each voxel of each scan by itself. Subjects rest and act by turns;
/// while they act, one ball in the ellipsoid is brighter and another one darker. Whatever they do,
/// each scan is brighter towards one end and darker towards the other, more or less by chance.
///
/// So each class is of the normal distribution with one covariance, and what canonical variates
/// should find is known: what varies most says nothing of classes, and what varies most besides
/// says all.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Voxels along x, y, z; at least 8 each.
    pub size: [usize; 3],
    /// Subjects.
    pub subjects: usize,
    /// Scans of each.
    pub scans: usize,
    /// Scans from one change between rest and action to the next.
    pub block: usize,
    /// How much brighter the middle of the one ball is, in standard deviations of the noise.
    pub effect: f64,
    /// How much brighter scans are at one end, in standard deviations of the noise: the standard
    /// deviation over scans.
    pub drift: f64,
    /// Standard deviation of the noise; what brains are on average is 1000.
    pub noise: f64,
    /// Where all chance comes from.
    pub seed: u64,
}

/// Why there are no such scans.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SyntheticError {
    /// Too few or too many voxels or scans.
    #[error(
        "{subjects} subjects with {scans} scans of {} x {} x {} voxels, in blocks of {block}: give \
         at least 8 voxels along each side, one of all others, and {VOXELS_MAX} voxels at most in all",
        .size[0], .size[1], .size[2]
    )]
    Size {
        /// Voxels along x, y, z.
        size: [usize; 3],
        /// Subjects.
        subjects: usize,
        /// Scans of each.
        scans: usize,
        /// Scans of each block.
        block: usize,
    },
    /// A number that says nothing.
    #[error("effect {effect}, drift {drift}, noise {noise}: give finite numbers, noise above 0")]
    Numbers {
        /// As it was given.
        effect: f64,
        /// As it was given.
        drift: f64,
        /// As it was given.
        noise: f64,
    },
    /// Something with the volumes.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl Default for Synthetic {
    fn default() -> Self {
        let size = [24, 28, 20];
        Self {
            size,
            subjects: 6,
            scans: 20,
            block: 5,
            effect: 1.5,
            drift: 0.5,
            noise: 10.0,
            seed: 1,
        }
    }
}

impl Synthetic {
    /// The class of each scan: 0 for rest, 1 for action.
    #[must_use]
    pub fn classes(&self) -> Vec<i64> {
        let class = |scan: usize| i64::from(scan / self.block.max(1) % 2 == 1);
        (0..self.subjects).flat_map(|_| (0..self.scans).map(class)).collect()
    }

    /// The subject of each scan, from 1.
    #[must_use]
    pub fn groups(&self) -> Vec<i64> {
        let subjects = (1_i64..).take(self.subjects);
        subjects.flat_map(|subject| std::iter::repeat_n(subject, self.scans)).collect()
    }

    /// How much brighter each voxel is in action, in standard deviations of the noise; zero in
    /// most.
    #[must_use]
    pub fn activation(&self) -> Vec<f64> {
        self.each_voxel(|at| {
            let ball = |x: f64| {
                let square = (at[0] - x).powi(2) + at[1].powi(2) + at[2].powi(2);
                // Brightest in the middle, and falling to nothing.
                (1.0 - square / BALL_RADIUS.powi(2)).max(0.0)
            };
            self.effect * (ball(BALL_X) - ball(-BALL_X))
        })
    }

    /// The scans, subject by subject.
    ///
    /// # Errors
    /// There would be no scan, or more than is held in one piece.
    pub fn series(&self) -> Result<Series, SyntheticError> {
        let Self { size, subjects, scans, block, effect, drift, noise, .. } = *self;
        let voxels = size.iter().try_fold(1_usize, |all, side| all.checked_mul(*side));
        let all = [subjects, scans]
            .iter()
            .try_fold(voxels.unwrap_or(usize::MAX), |all, more| all.checked_mul(*more));
        let is_fit = all.is_some_and(|all| (1..=VOXELS_MAX).contains(&all));
        if !is_fit || block == 0 || size.iter().any(|side| *side < 8) {
            return Err(SyntheticError::Size { size, subjects, scans, block });
        }
        if !([effect, drift, noise].iter().all(|number| number.is_finite()) && noise > 0.0) {
            return Err(SyntheticError::Numbers { effect, drift, noise });
        }
        let brain = self.each_voxel(|at| {
            let square: f64 = at.iter().map(|part| part * part).sum();
            if square <= 1.0 { BRAIN } else { 0.0 }
        });
        let activation = self.activation();
        let end = self.each_voxel(|at| at[2]);
        let mut dice = Dice::new(self.seed, 2);
        let mut drifts = Dice::new(self.seed, 3);
        let mut numbers = Vec::with_capacity(all.unwrap_or(0));
        let classes = self.classes();
        for class in &classes {
            let drift = drift * drifts.normal();
            for ((brain, activation), end) in brain.iter().zip(&activation).zip(&end) {
                numbers.push(if *brain > 0.0 {
                    let active = if *class == 1 { *activation } else { 0.0 };
                    brain + noise * (active + drift * end + dice.normal())
                } else {
                    0.0
                });
            }
        }
        let data = Matrix { rows: classes.len(), columns: brain.len(), numbers };
        Ok(Series::new(size, [3.0; 3], data)?)
    }

    /// A number for each voxel by its place: the ellipsoid is the ball of radius one around zero.
    fn each_voxel(&self, number: impl Fn([f64; 3]) -> f64) -> Vec<f64> {
        let [width, height, depth] = self.size;
        let count = width.saturating_mul(height).saturating_mul(depth);
        (0..count)
            .map(|voxel| {
                let index = [voxel % width, voxel / width % height, voxel / (width * height)];
                number([0, 1, 2].map(|axis| {
                    let middle = (self.size[axis] as f64 - 1.0) / 2.0;
                    (index[axis] as f64 - middle) / (0.95 * middle.max(0.5))
                }))
            })
            .collect()
    }
}

/// What a brain is on average.
const BRAIN: f64 = 1000.0;
/// Where the balls are, to both sides, and how large they are.
const BALL_X: f64 = 0.5;
const BALL_RADIUS: f64 = 0.3;
