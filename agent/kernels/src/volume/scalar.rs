//! How samples stand in files.

use serde::Deserialize;

use super::{VolumeError, Voxels, place};

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
    /// Signed, eight bytes.
    I64,
    /// Unsigned, eight bytes.
    U64,
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
            Self::I64 | Self::U64 | Self::F64 => 8,
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

    /// Samples of a volume of `size` voxels from their bytes, and how many of them were missing:
    /// unsigned ones of one and two bytes stay, all others become single-precision numbers (what needs
    /// more than 24 bits is rounded). What is not finite becomes `missing` where that is given.
    ///
    /// # Errors
    /// One is finite, and beyond single precision; or a whole number beyond 2^53.
    pub(super) fn voxels(
        self,
        bytes: Vec<u8>,
        size: [usize; 3],
        endian: Endian,
        missing: Option<f32>,
    ) -> Result<(Voxels, usize), VolumeError> {
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
        let mend = |sample: f64| missing.filter(|_| !sample.is_finite());
        let (samples, replaced) = match self {
            Self::U8 => return Ok((Voxels::U8(bytes), 0)),
            Self::U16 => return Ok((Voxels::U16(samples!(u16).collect()), 0)),
            Self::I8 => (samples!(i8).map(f32::from).collect(), 0),
            Self::I16 => (samples!(i16).map(f32::from).collect(), 0),
            Self::I32 => (samples!(i32).map(|sample| sample as f32).collect(), 0),
            Self::U32 => (samples!(u32).map(|sample| sample as f32).collect(), 0),
            Self::I64 => {
                check_exact(samples!(i64).map(i64::unsigned_abs), size)?;
                (samples!(i64).map(|sample| sample as f32).collect(), 0)
            }
            Self::U64 => {
                check_exact(samples!(u64), size)?;
                (samples!(u64).map(|sample| sample as f32).collect(), 0)
            }
            Self::F32 if missing.is_none() => (samples!(f32).collect(), 0),
            Self::F32 => singles(samples!(f32).map(f64::from), size, mend)?,
            Self::F64 => singles(samples!(f64), size, mend)?,
        };
        Ok((Voxels::F32(samples), replaced))
    }
}

/// Whole numbers of a series of volumes of `size` voxels, signs aside: none is so large that its
/// neighbours are the same number in double precision.
///
/// # Errors
/// One is.
pub(super) fn check_exact(
    numbers: impl Iterator<Item = u64>,
    size: [usize; 3],
) -> Result<(), VolumeError> {
    let mut beyond = numbers.enumerate().filter(|(_, number)| *number > EXACT_MAX);
    let Some((first, _)) = beyond.next() else { return Ok(()) };
    let voxels: usize = size.iter().product();
    Err(VolumeError::Inexact { count: 1 + beyond.count(), first: place(first % voxels, size) })
}

/// Up to here each whole number is one of double precision.
const EXACT_MAX: u64 = 1 << 53;

/// The numbers of a volume of `size` voxels in single precision, and how many of them `missing` has
/// given another value.
///
/// # Errors
/// One is finite, and beyond single precision: that is not missing.
pub(super) fn singles(
    numbers: impl Iterator<Item = f64>,
    size: [usize; 3],
    missing: impl Fn(f64) -> Option<f32>,
) -> Result<(Vec<f32>, usize), VolumeError> {
    let (mut replaced, mut beyond, mut first) = (0, 0, None);
    let single = |(at, number): (usize, f64)| {
        if let Some(value) = missing(number) {
            replaced += 1;
            return value;
        }
        let single = number as f32;
        if single.is_infinite() && number.is_finite() {
            beyond += 1;
            first.get_or_insert(at);
        }
        single
    };
    let samples = numbers.enumerate().map(single).collect();
    match first {
        None => Ok((samples, replaced)),
        Some(at) => Err(VolumeError::Beyond { count: beyond, first: place(at, size) }),
    }
}
