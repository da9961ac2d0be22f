//! NIfTI-1 files, plain or packed by gzip.

use std::io::Read;

use nifti::{DataElement, Endianness, NiftiHeader, NiftiType};

use super::bounded::{read_exactly, skip, unpacked};
use super::file::{DataPlace, ReadError};
use super::nifti_header::{
    HEADER_BYTES, data_offset, data_type, read_header, scaling, size, spacing,
};
use super::orientation::Orientation;
use super::scalar::{check_exact, singles};
use super::series::Series;
use super::{Grid, Missing, Volume, VolumeError, Voxels, place, voxel_count};
use crate::limits::VOXELS_MAX;
use crate::memory::bytes_of;
use crate::pca::Matrix;

/// What a file's header says of all that comes after it.
struct Content {
    /// Voxels along x, y, z, and how many such volumes there are.
    size: [usize; 3],
    volumes: usize,
    spacing: [f64; 3],
    orientation: Orientation,
    /// What a sample is multiplied with, and what is added to it.
    scaling: (f64, f64),
    endianness: Endianness,
    scalar: NiftiType,
    bytes: Vec<u8>,
}

/// What leaves samples as they are.
const PLAIN: (f64, f64) = (1.0, 0.0);

/// Reads a NIfTI-1 file of one volume with its data in it. Values are scaled as the header says; one
/// that is NaN counts as missing, as programs that write such files mean it, and becomes zero.
///
/// # Errors
/// Header and data disagree, a value is infinite or beyond single precision, it holds more than one
/// volume, or it is not one.
pub fn read_nifti(file: impl Read) -> Result<Volume, ReadError> {
    let content = read_content(file, false)?;
    let (size, spacing) = (content.size, content.spacing);
    let (voxels, missing) = voxels(content)?;
    Ok(Volume::new(size, spacing, voxels)?.with_missing(Missing { count: missing, value: 0.0 }))
}

/// Reads a NIfTI-1 file of volumes that were taken one after the other. A voxel that is NaN in all of
/// them is missing, and becomes zero.
///
/// # Errors
/// Header and data disagree, it is larger than what is held in one piece, a value is infinite, or a
/// voxel is missing in some volumes only.
pub fn read_nifti_series(file: impl Read) -> Result<Series, ReadError> {
    let content = read_content(file, true)?;
    let Content { size, volumes, spacing, orientation, .. } = content;
    let voxels: usize = size.iter().product();
    let mut numbers = numbers(content)?;
    let mut all_missing = 0;
    for voxel in 0..voxels {
        let scans = (0..volumes).map(|scan| scan * voxels + voxel);
        let missing = scans.clone().filter(|at| numbers[*at].is_nan()).count();
        if missing == volumes {
            scans.for_each(|at| numbers[at] = 0.0);
            all_missing += 1;
        } else if missing > 0 {
            return Err(ReadError::Missing { at: place(voxel, size), missing, volumes });
        }
    }
    let data = Matrix::new(volumes, voxels, numbers)
        .map_err(|error| ReadError::header(error.to_string()))?;
    Ok(Series::new(size, spacing, data)?.oriented(orientation).with_missing(all_missing))
}

/// A NIfTI-1 file whose volumes are read a box at a time.
#[derive(Debug)]
pub(super) struct NiftiBoxes {
    header: NiftiHeader,
    extent: Extent,
    scalar: NiftiType,
}

impl NiftiBoxes {
    /// By the header of a file.
    pub(super) fn of(file: impl Read) -> Result<Self, ReadError> {
        let header = read_header(&mut unpacked(file)?)?;
        let (extent, scalar) = (extent(&header, true)?, data_type(&header)?);
        Ok(Self { header, extent, scalar })
    }

    /// Where its data is, the sides and the spacing of its volumes, and how many there are.
    pub(super) fn about(&self) -> (DataPlace, [usize; 3], [f64; 3], usize) {
        let Extent { size, volumes, expected, before } = self.extent;
        let before = before + HEADER_BYTES;
        let place = DataPlace { before, expected, may_be_more: false, is_raw: true };
        (place, size, spacing(&self.header), volumes)
    }

    /// Bytes of a voxel as it is kept.
    pub(super) fn voxel_bytes(&self) -> usize {
        match self.scalar {
            NiftiType::Uint8 | NiftiType::Uint16 if scaling(&self.header) == PLAIN => {
                self.scalar.size_of()
            }
            _ => size_of::<f32>(),
        }
    }

    /// The voxels of a box; what is NaN becomes zero.
    pub(super) fn voxels(&self, size: [usize; 3], bytes: Vec<u8>) -> Result<Voxels, ReadError> {
        let content = Content {
            size,
            volumes: 1,
            spacing: spacing(&self.header),
            orientation: Orientation::of(&self.header),
            scaling: scaling(&self.header),
            endianness: self.header.endianness,
            scalar: self.scalar,
            bytes,
        };
        Ok(voxels(content)?.0)
    }
}

/// What the header of a NIfTI-1 file says of its volume.
pub(super) fn read_nifti_grid(file: impl Read) -> Result<Grid, ReadError> {
    let header = read_header(&mut unpacked(file)?)?;
    let (size, spacing) = (size(&header, false)?.0, spacing(&header));
    let scalar = data_type(&header)?;
    let bytes = match scalar {
        NiftiType::Uint8 | NiftiType::Uint16 if scaling(&header) == PLAIN => scalar.size_of(),
        _ => scaled_bytes(scalar),
    };
    Ok(Grid { size, spacing, read_bytes: bytes_of(&[voxel_count(size)?, bytes]) })
}

/// Where the data of a file is, and how far its voxels are apart.
pub(super) fn nifti_place(
    file: impl Read,
    series: bool,
) -> Result<(DataPlace, [f64; 3]), ReadError> {
    let header = read_header(&mut unpacked(file)?)?;
    let Extent { expected, before, .. } = extent(&header, series)?;
    let before = before + HEADER_BYTES;
    let place = DataPlace { before, expected, may_be_more: false, is_raw: true };
    Ok((place, spacing(&header)))
}

/// Bytes of memory that reading a series takes at least, and its volumes and the voxels of each.
pub(super) fn nifti_series_bytes(file: impl Read) -> Result<([usize; 2], u64), ReadError> {
    let header = read_header(&mut unpacked(file)?)?;
    let (size, volumes) = size(&header, true)?;
    let voxels = voxel_count(size)?;
    if voxels.saturating_mul(volumes) > VOXELS_MAX {
        return Err(VolumeError::TooLarge(size).into());
    }
    let each = scaled_bytes(data_type(&header)?);
    Ok(([volumes, voxels], bytes_of(&[volumes, voxels, each])))
}

/// Bytes that a sample takes while it is [scaled](numbers): as it stands in the file, and in double
/// precision.
fn scaled_bytes(scalar: NiftiType) -> usize {
    match scalar {
        NiftiType::Float64 => size_of::<f64>(),
        _ => scalar.size_of() + size_of::<f64>(),
    }
}

/// What a header says of how much there is, and where.
#[derive(Debug, Clone, Copy)]
struct Extent {
    size: [usize; 3],
    volumes: usize,
    /// Bytes of all voxels.
    expected: usize,
    /// Bytes between the header and the first voxel.
    before: u64,
}

fn extent(header: &NiftiHeader, series: bool) -> Result<Extent, ReadError> {
    let (size, volumes) = size(header, series)?;
    let too_large = || ReadError::Volume(VolumeError::TooLarge(size));
    let count = voxel_count(size)?.checked_mul(volumes).filter(|count| *count <= VOXELS_MAX);
    let bytes = count.ok_or_else(too_large)?.checked_mul(data_type(header)?.size_of());
    let expected = bytes.ok_or_else(too_large)?;
    Ok(Extent { size, volumes, expected, before: data_offset(header)? - HEADER_BYTES })
}

fn read_content(file: impl Read, series: bool) -> Result<Content, ReadError> {
    let mut file = unpacked(file)?;
    let header = read_header(&mut file)?;
    let Extent { size, volumes, expected, before } = extent(&header, series)?;
    skip(&mut file, before)?;
    let bytes = read_exactly(file, expected)?;
    Ok(Content {
        size,
        volumes,
        spacing: spacing(&header),
        orientation: Orientation::of(&header),
        scaling: scaling(&header),
        endianness: header.endianness,
        scalar: data_type(&header)?,
        bytes,
    })
}

fn typed<T: DataElement>(content: Content) -> Result<Vec<T>, ReadError> {
    T::from_raw_vec_validated(content.bytes, content.endianness, content.scalar)
        .map_err(|error| ReadError::header(error.to_string()))
}

/// The voxels of a file of one volume, and how many of them were missing.
fn voxels(content: Content) -> Result<(Voxels, usize), ReadError> {
    let is_plain = content.scaling == PLAIN;
    Ok(match content.scalar {
        NiftiType::Uint8 if is_plain => (Voxels::U8(typed(content)?), 0),
        NiftiType::Uint16 if is_plain => (Voxels::U16(typed(content)?), 0),
        _ => {
            let size = content.size;
            let numbers = numbers(content)?.into_iter();
            let zero = |number: f64| number.is_nan().then_some(0.0);
            let (samples, missing) = singles(numbers, size, zero)?;
            (Voxels::F32(samples), missing)
        }
    })
}

/// Samples, scaled as the header says: none is infinite.
fn numbers(content: Content) -> Result<Vec<f64>, ReadError> {
    let ((slope, inter), size) = (content.scaling, content.size);
    macro_rules! scaled {
        ($type:ty) => {{
            let samples = typed::<$type>(content)?;
            samples.into_iter().map(|sample| sample as f64 * slope + inter).collect()
        }};
    }
    let numbers: Vec<f64> = match content.scalar {
        NiftiType::Uint8 => scaled!(u8),
        NiftiType::Int8 => scaled!(i8),
        NiftiType::Uint16 => scaled!(u16),
        NiftiType::Int16 => scaled!(i16),
        NiftiType::Uint32 => scaled!(u32),
        NiftiType::Int32 => scaled!(i32),
        NiftiType::Int64 => {
            let samples = typed::<i64>(content)?;
            check_exact(samples.iter().map(|sample| sample.unsigned_abs()), size)?;
            samples.into_iter().map(|sample| sample as f64 * slope + inter).collect()
        }
        NiftiType::Uint64 => {
            let samples = typed::<u64>(content)?;
            check_exact(samples.iter().copied(), size)?;
            samples.into_iter().map(|sample| sample as f64 * slope + inter).collect()
        }
        NiftiType::Float32 => scaled!(f32),
        NiftiType::Float64 => scaled!(f64),
        _ => unreachable!("a header's type is one that is read"),
    };
    match numbers.iter().position(|number| number.is_infinite()) {
        None => Ok(numbers),
        Some(at) => {
            let count = numbers.iter().filter(|number| number.is_infinite()).count();
            let voxels: usize = size.iter().product();
            let (first, volume) = (place(at % voxels, size), at / voxels + 1);
            Err(ReadError::Infinite { count, first, volume })
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file in the order of bytes of old workstations.
    pub(in super::super) fn file(
        kind: i16,
        bits: i16,
        dim: [i16; 5],
        slope: f32,
        data: &[u8],
    ) -> Vec<u8> {
        let mut file = vec![0; 352];
        file[..4].copy_from_slice(&348_i32.to_be_bytes());
        for (at, side) in dim.iter().enumerate() {
            file[40 + 2 * at..42 + 2 * at].copy_from_slice(&side.to_be_bytes());
        }
        for at in dim.len()..8 {
            file[40 + 2 * at..42 + 2 * at].copy_from_slice(&1_i16.to_be_bytes());
        }
        file[70..72].copy_from_slice(&kind.to_be_bytes());
        file[72..74].copy_from_slice(&bits.to_be_bytes());
        for (axis, spacing) in [1.0_f32, 2.0, -3.0, 0.0].iter().enumerate() {
            file[76 + 4 * axis..80 + 4 * axis].copy_from_slice(&spacing.to_be_bytes());
        }
        file[108..112].copy_from_slice(&352_f32.to_be_bytes());
        file[112..116].copy_from_slice(&slope.to_be_bytes());
        file[344..348].copy_from_slice(b"n+1\0");
        file.extend(data);
        file
    }

    #[test]
    fn a_file_is_read_in_either_order_of_bytes_and_scaled() {
        let plain = file(2, 8, [3, 2, 1, 2, 1], 0.0, &[1, 2, 3, 4]);
        let volume = read_nifti(&plain[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::U8(vec![1, 2, 3, 4]));
        assert_eq!((volume.size(), volume.spacing()), ([2, 1, 2], [2.0, 3.0, 1.0]));
        let scaled = file(4, 16, [3, 2, 1, 1, 1], 0.5, &[0, 3, 0xff, 0xfe]);
        let volume = read_nifti(&scaled[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![1.5, -1.0]));
    }

    #[test]
    fn what_is_missing_in_a_scan_is_zero_and_counted() {
        let data: Vec<u8> = [f32::NAN, 2.0].map(f32::to_be_bytes).concat();
        let volume = read_nifti(&file(16, 32, [3, 2, 1, 1, 1], 1.0, &data)[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![0.0, 2.0]));
        assert_eq!(volume.missing(), Some(Missing { count: 1, value: 0.0 }));
        let all: Vec<u8> = [1.0, 2.0].map(f32::to_be_bytes).concat();
        let volume = read_nifti(&file(16, 32, [3, 2, 1, 1, 1], 1.0, &all)[..]).expect("a volume");
        assert_eq!(volume.missing(), None);
        let series = file(16, 32, [4, 2, 1, 1, 2], 1.0, &[&data[..], &data].concat());
        assert_eq!(read_nifti_series(&series[..]).expect("a series").missing(), 1);
    }

    #[test]
    fn what_is_infinite_is_refused_and_not_missing() {
        let data: Vec<u8> = [f32::NAN, f32::INFINITY, f32::NAN, 2.0].map(f32::to_be_bytes).concat();
        let volume = file(16, 32, [3, 2, 2, 1, 1], 1.0, &data);
        let told = read_nifti(&volume[..]).expect_err("refused").to_string();
        assert!(told.contains("1 voxels are infinite, the first at (1, 0, 0)"), "{told}");
        let series = file(16, 32, [4, 2, 1, 1, 2], 1.0, &data);
        let told = read_nifti_series(&series[..]).expect_err("refused").to_string();
        assert!(told.contains("(1, 0, 0) of volume 1"), "{told}");
        let data: Vec<u8> =
            [0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY].map(f64::to_be_bytes).concat();
        let series = file(64, 64, [4, 2, 1, 1, 2], 1.0, &data);
        let told = read_nifti_series(&series[..]).expect_err("refused").to_string();
        assert!(told.contains("2 voxels") && told.contains("(0, 0, 0) of volume 2"), "{told}");
    }

    #[test]
    fn what_is_beyond_single_precision_is_refused_and_not_missing() {
        let data: Vec<u8> = [2.0, 1e39].map(f64::to_be_bytes).concat();
        let told = |slope, data: &[u8]| {
            let file = file(64, 64, [3, 2, 1, 1, 1], slope, data);
            read_nifti(&file[..]).expect_err("refused").to_string()
        };
        let refused = told(1.0, &data);
        assert!(refused.contains("1 voxels") && refused.contains("(1, 0, 0)"), "{refused}");
        let data: Vec<u8> = [3e38, 2.0].map(f64::to_be_bytes).concat();
        let refused = told(10.0, &data);
        assert!(refused.contains("(0, 0, 0)"), "{refused}");
    }

    #[test]
    fn whole_numbers_of_64_bits_are_read_where_they_are_exact() {
        let read = |kind: i16, numbers: [u64; 2]| {
            let data = numbers.map(u64::to_be_bytes).concat();
            read_nifti(&file(kind, 64, [3, 2, 1, 1, 1], 0.0, &data)[..])
        };
        let signed = read(1024, [(-3_i64).cast_unsigned(), 7]).expect("a volume");
        assert_eq!(signed.voxels(), &Voxels::F32(vec![-3.0, 7.0]));
        let unsigned = read(1280, [1 << 53, 7]).expect("a volume");
        assert_eq!(unsigned.voxels(), &Voxels::F32(vec![9_007_199_254_740_992.0, 7.0]));
        for (kind, numbers) in [
            (1024, [0, (-(1_i64 << 53) - 1).cast_unsigned()]),
            (1024, [0, i64::MIN.cast_unsigned()]),
            (1280, [0, u64::MAX]),
        ] {
            let told = read(kind, numbers).expect_err("refused").to_string();
            assert!(told.contains("1 voxels are whole numbers beyond 2^53"), "{told}");
            assert!(told.contains("(1, 0, 0)"), "{told}");
        }
    }

    #[test]
    fn header_and_data_that_disagree_and_series_are_told() {
        let told = |file: Vec<u8>| read_nifti(&file[..]).expect_err("refused").to_string();
        let short = told(file(2, 8, [3, 2, 2, 2, 1], 0.0, &[0; 7]));
        assert!(short.contains("after 7 of the 8"), "{short}");
        let long = told(file(2, 8, [3, 2, 2, 2, 1], 0.0, &[0; 9]));
        assert!(long.contains("goes on after the 8"), "{long}");
        let series = told(file(2, 8, [4, 2, 2, 2, 3], 0.0, &[0; 24]));
        assert!(series.contains("3 volumes"), "{series}");
        let colours = told(file(128, 24, [3, 2, 1, 1, 1], 0.0, &[0; 6]));
        assert!(colours.contains("RGB24"), "{colours}");
        assert!(told(vec![0; 100]).contains("header"));
    }

    #[test]
    fn a_series_that_could_not_be_written_is_not_read() {
        let told = |file: &[u8]| read_nifti_series(file).expect_err("refused").to_string();
        for spacing in [f32::NAN, f32::INFINITY] {
            let mut file = file(2, 8, [4, 2, 1, 1, 2], 0.0, &[0; 4]);
            file[84..88].copy_from_slice(&spacing.to_be_bytes());
            let told = told(&file);
            assert!(told.contains("give three distances from"), "{told}");
        }
        let long = told(&file(2, 8, [4, i16::MIN, 1, 1, 2], 0.0, &[0; 65_536]));
        assert!(long.contains("dim[1] = -32768") && long.contains("from 1 to 32767"), "{long}");
    }
}
