//! Between which values a volume's voxels are.

use std::convert::Infallible;
use std::sync::Arc;

use crate::plan::{Plan, Slice};
use crate::volume::{Volume, Voxel, with_voxels};

/// Finds the smallest and the largest value in a volume, for who wants to know why no surface goes
/// through it. Its units are rows of voxels along x.
#[derive(Debug)]
pub(crate) struct ExtremesPlan {
    volume: Arc<Volume>,
    found: [f32; 2],
}

impl ExtremesPlan {
    /// Gets ready to look at all voxels of a volume.
    pub(crate) fn new(volume: Arc<Volume>) -> Box<Self> {
        Box::new(Self { volume, found: [f32::INFINITY, f32::NEG_INFINITY] })
    }
}

impl Plan for ExtremesPlan {
    type Output = [f32; 2];
    type Error = Infallible;

    fn units(&self) -> u64 {
        let [_, height, layers] = self.volume.size();
        (height * layers) as u64
    }

    fn run(&mut self, slice: &Slice) -> Result<(), Infallible> {
        let width = self.volume.size()[0];
        let at = |unit: u64| usize::try_from(unit).map_or(usize::MAX, |unit| unit * width);
        let units = slice.units();
        with_voxels!(self.volume.voxels(), samples => {
            for voxel in &samples[at(units.start)..at(units.end)] {
                let (value, [low, high]) = (voxel.value(), self.found);
                self.found = [low.min(value), high.max(value)];
            }
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<[f32; 2], Infallible> {
        Ok(self.found)
    }
}
