//! Why there are no principal components.

use thiserror::Error;

#[cfg(feature = "gpu")]
use crate::gpu::GpuError;
use crate::limits::GRAM_SIDE_MAX;

/// Why there are no principal components.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PcaError {
    /// Too little data.
    #[error("a matrix of {rows} x {columns} does not vary: give two rows and a column at least")]
    TooSmall {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// More components than there can be.
    #[error("{asked} components: a matrix of {rows} x {columns} has from 1 to {most}")]
    Components {
        /// What was asked for.
        asked: usize,
        /// How many there can be.
        most: usize,
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// More than is solved here.
    #[error("a matrix of {rows} x {columns}: one side must be {GRAM_SIDE_MAX} at most")]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// Squares that are beyond double precision.
    #[error("columns vary by {0:e}, and its square is beyond double precision: scale the data")]
    Range(f64),
    /// No eigenvalues were found.
    #[error("the eigenvalues do not converge: are some numbers larger than others by far?")]
    NoConvergence,
    /// Nothing comes from the GPU.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Device(#[from] GpuError),
}
