//! Scalars on a grid.
//!
//! Voxels are samples at the corners of cells: a grid of n voxels along an axis has n - 1 cells
//! there. A voxel with index (x, y, z) is at (x, y, z) times the spacing in space, in the unit of
//! the spacing; x runs fastest in memory.

mod bounded;
mod brick;
mod brick_file;
mod cut;
mod file;
mod joined;
mod macro_cells;
mod nifti_file;
mod nifti_header;
mod nrrd;
mod nrrd_axes;
mod orientation;
mod raw;
mod rippled;
mod scalar;
mod series;
mod source;

use thiserror::Error;

pub use brick::Brick;
pub(crate) use brick_file::BrickPlace;
pub(crate) use cut::COARSE;
pub use cut::{BrickFile, Cutter};
pub use file::{
    ReadError, check_series, check_series_name, check_volume, data_file, read_series, read_volume,
};
pub(crate) use file::{read_brick, read_grid, read_place, series_bytes};
pub use joined::{BRICKS, brick_files, read_bricks};
pub(crate) use macro_cells::MacroCells;
pub use nifti_file::{read_nifti, read_nifti_series};
pub use nrrd::{NrrdHeader, read_nrrd};
pub use orientation::Orientation;
pub use raw::{RawHeader, read_raw};
pub use scalar::ScalarType;
pub use series::{Series, SeriesError};
pub use source::VolumeSource;

use crate::limits::{SPACING_MAX, VOXELS_MAX};

/// The samples of a volume, by their type.
#[derive(Debug, Clone, PartialEq)]
pub enum Voxels {
    /// Bytes.
    U8(Vec<u8>),
    /// Sixteen bits, as scanners give them.
    U16(Vec<u16>),
    /// Finite single-precision numbers.
    F32(Vec<f32>),
}

/// Does something with a volume's samples, whatever their type is.
macro_rules! with_voxels {
    ($voxels:expr, $samples:ident => $do:expr) => {
        match $voxels {
            $crate::volume::Voxels::U8($samples) => $do,
            $crate::volume::Voxels::U16($samples) => $do,
            $crate::volume::Voxels::F32($samples) => $do,
        }
    };
}
pub(crate) use with_voxels;

/// A sample's type.
pub(crate) trait Voxel: Copy + Default + PartialOrd + Send + Sync {
    /// Two neighbours along x, and what is loaded with them.
    type Pair: Copy + Default;

    /// Samples that are loaded in one go: those of a register's lane, which costs less than to put
    /// one together from smaller ones.
    const LOADED: usize;

    /// Its value. Exact: all integers of sixteen bits are single-precision numbers.
    fn value(self) -> f32;

    /// `LOADED` samples.
    fn pair(loaded: &[Self]) -> Self::Pair;

    /// The values of two neighbours, after the first so many of what was loaded.
    fn values(pair: Self::Pair, before: u32) -> [f32; 2];
}

impl Voxel for u8 {
    type Pair = u32;

    const LOADED: usize = 4;

    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    fn pair(loaded: &[Self]) -> u32 {
        loaded.as_array().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline(always)]
    fn values(pair: u32, before: u32) -> [f32; 2] {
        let pair = pair >> (8 * before % 32);
        // Through signed numbers, which every processor converts at once.
        [(pair & 0xff) as i32 as f32, (pair >> 8 & 0xff) as i32 as f32]
    }
}

impl Voxel for u16 {
    type Pair = u32;

    const LOADED: usize = 2;

    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    fn pair(loaded: &[Self]) -> u32 {
        loaded.as_array().map_or(0, |[first, second]| u32::from(*first) | u32::from(*second) << 16)
    }

    #[inline(always)]
    fn values(pair: u32, _: u32) -> [f32; 2] {
        [(pair & 0xffff) as i32 as f32, (pair >> 16) as i32 as f32]
    }
}

impl Voxel for f32 {
    type Pair = [f32; 2];

    const LOADED: usize = 2;

    #[inline(always)]
    fn value(self) -> f32 {
        self
    }

    #[inline(always)]
    fn pair(loaded: &[Self]) -> [f32; 2] {
        loaded.as_array().map_or([0.0; 2], |both| *both)
    }

    #[inline(always)]
    fn values(pair: [f32; 2], _: u32) -> [f32; 2] {
        pair
    }
}

/// Scalars on a grid.
///
/// # Invariants
/// No side is zero, there are as many voxels as the sides say, all are finite, and neither the spacing
/// nor its inverse is above 1e19.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    size: [usize; 3],
    spacing: [f64; 3],
    voxels: Voxels,
    missing: Option<Missing>,
}

/// Voxels for which a volume's file has no number, and that were given one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Missing {
    /// How many.
    pub count: usize,
    /// What they count as.
    pub value: f32,
}

/// What a header says of a volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    /// Voxels along x, y, z.
    pub(crate) size: [usize; 3],
    /// How far they are apart.
    pub(crate) spacing: [f64; 3],
    /// Bytes of memory that reading it takes at least.
    pub(crate) read_bytes: u64,
}

/// Why something is not a volume.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum VolumeError {
    /// A side of length zero.
    #[error("a volume of {} x {} x {} voxels is empty: give each side at least one", .0[0], .0[1], .0[2])]
    Empty([usize; 3]),
    /// More voxels than one brick may have.
    #[error(
        "a volume of {} x {} x {} voxels: at most {VOXELS_MAX} are read, crop it or leave out voxels",
        .0[0], .0[1], .0[2]
    )]
    TooLarge([usize; 3]),
    /// Not as many voxels as the sides say.
    #[error("{found} voxels for a volume that should have {expected}: correct its size")]
    Count {
        /// What the sides say.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// A series without any volume.
    #[error("a series of no volumes: give at least one")]
    NoVolume,
    /// The distance between voxels makes no sense.
    #[error(
        "voxels are {:?} x {:?} x {:?} apart: give three distances from {:?} to {SPACING_MAX:?}, in \
         another unit of length if need be",
        .0[0], .0[1], .0[2], SPACING_MAX.recip()
    )]
    Spacing([f64; 3]),
    /// Some voxels are NaN or infinite.
    #[error(
        "{count} voxels are NaN or infinite, the first at ({}, {}, {}): correct the data, or describe \
         them by a header of a raw file (.toml) that names a value for such voxels (`missing = 0.0`)",
        .first[0], .first[1], .first[2]
    )]
    NotFinite {
        /// How many.
        count: usize,
        /// Where the first one is.
        first: [usize; 3],
    },
    /// Some voxels are whole numbers of more digits than are read.
    #[error(
        "{count} voxels are whole numbers beyond 2^53, the first at ({}, {}, {}), which are not read \
         exactly: give smaller ones",
        .first[0], .first[1], .first[2]
    )]
    Inexact {
        /// How many.
        count: usize,
        /// Where the first one is.
        first: [usize; 3],
    },
    /// Some voxels are finite, and too large for single precision.
    #[error(
        "{count} voxels are beyond single precision, the first at ({}, {}, {}): give them in a unit \
         that keeps them below 3.4e38",
        .first[0], .first[1], .first[2]
    )]
    Beyond {
        /// How many.
        count: usize,
        /// Where the first one is.
        first: [usize; 3],
    },
}

impl Volume {
    /// A volume of `size` voxels, x fastest, `spacing` apart.
    ///
    /// # Errors
    /// It is empty or too large, the number of voxels is not the one that the size says, a voxel
    /// is not finite, or the spacing is none.
    pub fn new(size: [usize; 3], spacing: [f64; 3], voxels: Voxels) -> Result<Self, VolumeError> {
        check_grid(size, spacing, with_voxels!(&voxels, samples => samples.len()))?;
        if let Voxels::F32(samples) = &voxels
            && let Some(at) = samples.iter().position(|sample| !sample.is_finite())
        {
            let count = samples.iter().filter(|sample| !sample.is_finite()).count();
            return Err(VolumeError::NotFinite { count, first: place(at, size) });
        }
        Ok(Self { size, spacing, voxels, missing: None })
    }

    /// The same, of a file with `missing` voxels.
    fn with_missing(self, missing: Missing) -> Self {
        Self { missing: (missing.count > 0).then_some(missing), ..self }
    }

    /// Voxels that were missing in its file, if some were.
    #[must_use]
    pub const fn missing(&self) -> Option<Missing> {
        self.missing
    }

    /// Voxels along x, y, z.
    #[must_use]
    pub const fn size(&self) -> [usize; 3] {
        self.size
    }

    /// Distance of voxels along x, y, z.
    #[must_use]
    pub const fn spacing(&self) -> [f64; 3] {
        self.spacing
    }

    /// The samples, x fastest.
    #[must_use]
    pub const fn voxels(&self) -> &Voxels {
        &self.voxels
    }

    /// Smallest and largest sample.
    #[must_use]
    pub fn range(&self) -> (f32, f32) {
        with_voxels!(&self.voxels, samples => {
            let values = samples.iter().map(|sample| sample.value());
            values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        })
    }

    /// The sample at a voxel.
    ///
    /// # Panics
    /// The voxel is outside.
    #[must_use]
    pub fn at(&self, [x, y, z]: [usize; 3]) -> f32 {
        let at = x + self.size[0] * (y + self.size[1] * z);
        with_voxels!(&self.voxels, samples => samples[at].value())
    }
}

/// Where the voxel with this number is, x fastest.
const fn place(at: usize, [width, height, _]: [usize; 3]) -> [usize; 3] {
    [at % width, at / width % height, at / (width * height)]
}

/// Refuses a size that is none or not the one of the `found` voxels, and a spacing that is none.
fn check_grid(size: [usize; 3], spacing: [f64; 3], found: usize) -> Result<(), VolumeError> {
    let expected = voxel_count(size)?;
    if found != expected {
        return Err(VolumeError::Count { expected, found });
    }
    check_spacing(spacing)
}

/// Refuses a spacing that is none.
fn check_spacing(spacing: [f64; 3]) -> Result<(), VolumeError> {
    if !spacing.iter().all(|spacing| (SPACING_MAX.recip()..=SPACING_MAX).contains(spacing)) {
        return Err(VolumeError::Spacing(spacing));
    }
    Ok(())
}

/// How many voxels a volume of this size has.
pub(crate) fn voxel_count(size: [usize; 3]) -> Result<usize, VolumeError> {
    if size.contains(&0) {
        return Err(VolumeError::Empty(size));
    }
    let count = size.iter().try_fold(1_usize, |count, side| count.checked_mul(*side));
    count.filter(|count| *count <= VOXELS_MAX).ok_or(VolumeError::TooLarge(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_volume_is_refused() {
        let voxels = || Voxels::U8(vec![0; 8]);
        let one = [1.0; 3];
        assert!(Volume::new([2, 2, 2], one, voxels()).is_ok());
        assert_eq!(Volume::new([2, 0, 4], one, voxels()), Err(VolumeError::Empty([2, 0, 4])));
        let count = VolumeError::Count { expected: 12, found: 8 };
        assert_eq!(Volume::new([2, 2, 3], one, voxels()), Err(count));
        let large = [usize::MAX, 2, 2];
        assert_eq!(Volume::new(large, one, voxels()), Err(VolumeError::TooLarge(large)));
    }

    #[test]
    fn voxels_may_be_as_far_apart_as_positions_are_numbers() {
        let apart = |spacing| Volume::new([2, 2, 2], spacing, Voxels::U8(vec![0; 8]));
        for spacing in [[1.0, 1.0, 1000.0], [1e19, 1e-19, 1.0], [4e-10; 3], [3e16; 3]] {
            assert!(apart(spacing).is_ok(), "{spacing:?}");
        }
        for far in [0.0, -1.0, 1e-60, 5e-20, 2e19, 1e39, 1e300, f64::INFINITY] {
            let spacing = [1.0, far, 1.0];
            assert_eq!(apart(spacing), Err(VolumeError::Spacing(spacing)));
        }
        assert!(apart([f64::NAN; 3]).is_err());
        let told = VolumeError::Spacing([1e39, 1e-60, 1.0]).to_string();
        let says = "voxels are 1e39 x 1e-60 x 1.0 apart: give three distances from 1e-19 to 1e19, in \
                    another unit of length if need be";
        assert_eq!(told, says);
    }

    #[test]
    fn voxels_that_are_no_numbers_are_counted_and_shown() {
        let mut samples = vec![0.0; 24];
        samples[2 + 2 * 3] = f32::NAN;
        samples[2 + 2 * 3 + 4 * 3] = f32::INFINITY;
        let error = Volume::new([3, 4, 2], [1.0; 3], Voxels::F32(samples));
        assert_eq!(error, Err(VolumeError::NotFinite { count: 2, first: [2, 2, 0] }));
        let told = error.expect_err("it was refused").to_string();
        assert!(
            told.contains("(2, 2, 0)") && told.contains("header of a raw file (.toml)"),
            "{told}"
        );
    }
}
