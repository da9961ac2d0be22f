//! Figures and maps.

use crate::pca::Matrix;

/// How well scans are explained with some number of components.
#[derive(Debug, Clone, PartialEq)]
pub struct Npairs {
    /// Principal components that canonical variates were made of.
    pub components: usize,
    /// Voxels that vary; others have no part in anything.
    pub voxels: usize,
    /// Mean probability, over halves and their scans, that a scan of one half is given to be of
    /// the class that it is of, by the canonical variates of the other half: prediction accuracy.
    pub prediction: f64,
    /// Mean share of scans whose most probable class is the right one.
    pub right: f64,
    /// Mean correlation over voxels of the maps of two halves, for each canonical variate, the one
    /// that tells classes apart best first.
    pub reproducibility: Vec<f64>,
    /// The same by split.
    pub splits: Vec<SplitFigures>,
    /// A map of each canonical variate in each row, a number for each voxel: the mean over splits
    /// of what both halves have in common, in standard deviations of what they have not. Zero for
    /// voxels that do not vary.
    pub maps: Matrix,
}

/// The figures of one split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitFigures {
    /// Mean probability of the right class: of scans of the second half by the first, and the
    /// other way around.
    pub prediction: [f64; 2],
    /// Share of scans whose most probable class is right, as above.
    pub right: [f64; 2],
    /// Correlation of the maps of both halves, for each canonical variate.
    pub reproducibility: Vec<f64>,
}
