//! Products of all scans with each other, where they are added up.

use std::ops::Range;

use faer::Mat;

use super::NpairsError;
#[cfg(feature = "gpu")]
use crate::pca::DeviceGram;
use crate::pca::{Gram, Matrix};
use crate::plan::Stretch;

/// The products of all scans with each other, step by step.
#[derive(Debug)]
pub(super) enum ScanGram {
    /// On the processor.
    Processor(Gram),
    /// On a GPU.
    #[cfg(feature = "gpu")]
    Device(Box<DeviceGram>),
}

impl ScanGram {
    /// How many steps there are.
    pub(super) fn units(&self) -> usize {
        match self {
            Self::Processor(gram) => gram.blocks(),
            #[cfg(feature = "gpu")]
            Self::Device(gram) => gram.units(),
        }
    }

    /// The stretch that a step is in, if not all are alike.
    #[cfg_attr(not(feature = "gpu"), expect(unused_variables, reason = "a processor has one"))]
    pub(super) fn stretch(&self, unit: u64) -> Option<Stretch> {
        match self {
            Self::Processor(_) => None,
            #[cfg(feature = "gpu")]
            Self::Device(gram) => Some(gram.stretch(unit)),
        }
    }

    /// Says, before the first step, what numbers are multiplied with, a power of two, and what the
    /// largest one of each scan is before that.
    #[cfg_attr(not(feature = "gpu"), expect(unused_variables, reason = "devices want to know"))]
    pub(super) fn scale(&mut self, scale: f64, largest: &[f64]) {
        match self {
            Self::Processor(_) => {}
            #[cfg(feature = "gpu")]
            Self::Device(gram) => gram.scale(scale, largest),
        }
    }

    /// Performs some steps with the scans, times `scale`.
    pub(super) fn add(
        &mut self,
        units: Range<usize>,
        scans: &Matrix,
        scale: f64,
    ) -> Result<(), NpairsError> {
        match self {
            Self::Processor(gram) => {
                gram.add(units, scans.transposed().transpose(), scale * scale);
            }
            #[cfg(feature = "gpu")]
            Self::Device(gram) => gram.add(units, scans)?,
        }
        Ok(())
    }

    /// The lower triangle of the sums.
    pub(super) fn take(&mut self) -> Mat<f64> {
        match self {
            Self::Processor(gram) => gram.take(),
            #[cfg(feature = "gpu")]
            Self::Device(gram) => gram.take(),
        }
    }
}
