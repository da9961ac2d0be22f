//! How well classes of brain scans are told, and how well the map of how is reproduced.
//!
//! Scans are split in halves, many times over. In each half the first principal components are
//! found, and canonical variates of these: what varies most between classes for what varies
//! within them. Each half then tells the classes of the other half's scans, which gives prediction
//! accuracy, and the maps of both are correlated, which gives reproducibility. How many components
//! are best is found by trying, each number a workunit of its own.
//!
//! With W and B what varies within and between the classes of a half's scores, canonical variates
//! are eigenvectors of W⁻¹B, scaled so that scores vary by one within classes. The probability of
//! class k is p(k) exp(−d²/2), over the sum of all, with p(k) its share of the half's scans and d
//! the distance from its mean. With r the correlation of two maps, scaled to spread by one each,
//! their sum over √2 has the noise √(1 − r), which is what the reproducible map is measured in.
//!
//! Where there are many scans, most of the work is their products with each other, voxel by voxel.
//! A GPU adds them up as exactly as for principal components, so that figures and maps differ from
//! those of a processor about as another processor's do; all else is the processor's.
//!
//! Source: Strother, Anderson, Hansen, Kjems, Kustra, Sidtis, Frutiger, Muley, LaConte,
//! Rottenberg: The Quantitative Evaluation of Functional Neuroimaging Experiments: The NPAIRS Data
//! Analysis Framework, 2002. Other than there, variates of halves are matched by the classes that
//! they tell apart instead of by their maps.

mod canonical;
mod design;
mod figures;
mod gram;
mod plan;
mod splits;
mod synthetic;

#[cfg(test)]
mod tests;

pub use design::{Design, DesignError};
pub use figures::{Npairs, SplitFigures};
pub use plan::{NpairsError, NpairsPlan};
pub use synthetic::{Synthetic, SyntheticError};
