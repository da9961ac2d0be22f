//! Raw files with a header file.

use std::io::Read;

use serde::Deserialize;

use super::bounded::{read_exactly, skip, unpacked};
use super::file::{DataPlace, ReadError};
use super::scalar::Endian;
use super::{Grid, Missing, ScalarType, Volume, VolumeError, voxel_count};
use crate::memory::bytes_of;

/// Says what is in a raw file. In TOML:
///
/// ```toml
/// file = "head.raw.gz"       # from the header's folder on; gzip is seen by itself
/// size = [64, 64, 93]        # voxels along x, y, z; x fastest
/// type = "u16"               # i8 u8 i16 u16 i32 u32 i64 u64 f32 f64
/// endian = "little"          # or "big"
/// spacing = [3.2, 3.2, 1.5]  # distance of voxels
/// skip = 0                   # bytes before the first voxel, after unpacking
/// # missing = 0.0            # value of voxels that are NaN or infinite
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawHeader {
    pub(super) file: String,
    size: [usize; 3],
    #[serde(rename = "type")]
    scalar: ScalarType,
    #[serde(default)]
    endian: Endian,
    #[serde(default = "unit_spacing")]
    spacing: [f64; 3],
    #[serde(default)]
    skip: u64,
    missing: Option<f32>,
}

fn unit_spacing() -> [f64; 3] {
    [1.0; 3]
}

impl RawHeader {
    /// From its TOML form.
    ///
    /// # Errors
    /// A key is missing, unknown or of the wrong type.
    pub fn from_toml(text: &str) -> Result<Self, ReadError> {
        toml::from_str(text).map_err(|error| ReadError::header(error.to_string()))
    }

    /// From its JSON form, with the same keys.
    ///
    /// # Errors
    /// As above.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        serde_json::from_str(text).map_err(|error| ReadError::header(error.to_string()))
    }

    /// Where its data is in its file.
    ///
    /// # Errors
    /// What it says is not a volume.
    pub(super) fn data_place(&self) -> Result<DataPlace, ReadError> {
        let count = voxel_count(self.size)?;
        if self.missing.is_some_and(|missing| !missing.is_finite()) {
            return Err(ReadError::header("missing: give a finite number"));
        }
        let expected = count.checked_mul(self.scalar.bytes());
        let expected = expected.ok_or(VolumeError::TooLarge(self.size))?;
        Ok(DataPlace { before: self.skip, expected, may_be_more: false, is_raw: false })
    }

    /// How samples stand in its file, and what those that are missing become.
    pub(super) const fn samples(&self) -> (ScalarType, Endian, Option<f32>) {
        (self.scalar, self.endian, self.missing)
    }

    /// What it says of the volume.
    ///
    /// # Errors
    /// That is none.
    pub(super) fn grid(&self) -> Result<Grid, VolumeError> {
        let read_bytes = bytes_of(&[voxel_count(self.size)?, self.scalar.read_bytes()]);
        Ok(Grid { size: self.size, spacing: self.spacing, read_bytes })
    }
}

/// Reads the raw `data` that a header describes.
///
/// # Errors
/// Header and data disagree, or what they say is not a volume.
pub fn read_raw(header: &RawHeader, data: impl Read) -> Result<Volume, ReadError> {
    let place = header.data_place()?;
    let mut data = unpacked(data)?;
    skip(&mut data, place.before)?;
    let bytes = read_exactly(data, place.expected)?;
    let (voxels, count) =
        header.scalar.voxels(bytes, header.size, header.endian, header.missing)?;
    let missing = Missing { count, value: header.missing.unwrap_or_default() };
    Ok(Volume::new(header.size, header.spacing, voxels)?.with_missing(missing))
}
