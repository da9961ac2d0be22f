//! How samples stand in files.

use serde::Deserialize;

use super::Voxels;

/// The type of samples in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScalarType {
    /// Signed, one byte.
    I8,
    /// Unsigned, one byte.
    U8,
    /// Signed, two bytes.
    I16,
    /// Unsigned, two bytes.
    U16,
    /// Signed, four bytes.
    I32,
    /// Unsigned, four bytes.
    U32,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// The order of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Endian {
    /// The lowest byte first.
    #[default]
    Little,
    /// The highest byte first.
    Big,
}

impl ScalarType {
    /// Bytes of one sample.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Bytes of memory that a voxel takes while it is read, as it stands in a file and as it is kept.
    pub(super) const fn read_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 4,
            other => other.bytes() + 4,
        }
    }

    /// Samples from their bytes: unsigned ones of one and two bytes stay, all others become
    /// single-precision numbers (what needs more than 24 bits is rounded). What is not finite
    /// becomes `missing` where that is given.
    pub(super) fn voxels(self, bytes: Vec<u8>, endian: Endian, missing: Option<f32>) -> Voxels {
        macro_rules! samples {
            ($type:ty) => {{
                const BYTES: usize = size_of::<$type>();
                let (samples, _) = bytes.as_chunks::<BYTES>();
                samples.iter().map(|sample| match endian {
                    Endian::Little => <$type>::from_le_bytes(*sample),
                    Endian::Big => <$type>::from_be_bytes(*sample),
                })
            }};
        }
        // What is too large for single precision is no missing one: it stays infinite, and is refused.
        let mend = |sample: f64| match missing {
            Some(missing) if !sample.is_finite() => missing,
            _ => sample as f32,
        };
        match self {
            Self::U8 => Voxels::U8(bytes),
            Self::U16 => Voxels::U16(samples!(u16).collect()),
            Self::I8 => Voxels::F32(samples!(i8).map(f32::from).collect()),
            Self::I16 => Voxels::F32(samples!(i16).map(f32::from).collect()),
            Self::I32 => Voxels::F32(samples!(i32).map(|sample| sample as f32).collect()),
            Self::U32 => Voxels::F32(samples!(u32).map(|sample| sample as f32).collect()),
            Self::F32 => Voxels::F32(samples!(f32).map(|sample| mend(sample.into())).collect()),
            Self::F64 => Voxels::F32(samples!(f64).map(mend).collect()),
        }
    }
}
