//! Principal components by the covariance method.
//!
//! The mean of each column is subtracted, in double precision, before anything is squared: squares
//! of what is far from zero have no digits left for how it varies. Eigenvectors of the centred
//! matrix' sums of squares and products are the components, and the centred matrix times these are
//! the scores. Where there are fewer rows than columns, the sums are taken over rows instead: they
//! have the same eigenvalues above zero, and the components follow from their eigenvectors.
//!
//! Source: Nakhjavani, Sharify, Hashemi, Lu, Amza, Strother: Porting a Neuro-Imaging Application
//! to a CPU-GPU cluster.
//!
//! A [`PcaPlan`] finds them on the processor, a `DevicePcaPlan` on a GPU: both alike, within what
//! `device` states.
//!
//! # Invariants
//! Components have length one and are at right angles; of each one's largest numbers the first is
//! above zero, where numbers within a hundredth of the largest count as such: which of two equal
//! ones is larger, rounding decides. In columns that do not vary they are exactly zero.

#[cfg(feature = "gpu")]
mod device;
mod eigen;
mod error;
mod found;
mod gram;
mod leading;
mod matrix;
mod observations;
mod plan;
#[cfg(feature = "gpu")]
mod subspace;

#[cfg(test)]
mod tests;

#[cfg(feature = "gpu")]
pub(crate) use device::DeviceGram;
#[cfg(feature = "gpu")]
pub use device::DevicePcaPlan;
pub(crate) use eigen::largest;
pub use error::PcaError;
pub use found::Pca;
pub(crate) use gram::Gram;
pub use matrix::{Matrix, MatrixError};
pub(crate) use observations::scale;
pub use plan::PcaPlan;
