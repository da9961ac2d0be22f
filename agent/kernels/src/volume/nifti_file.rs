//! NIfTI-1 files, plain or packed by gzip.

use std::io::Read;

use nifti::{DataElement, NiftiHeader, NiftiType};

use super::bounded::{read_exactly, skip, unpacked};
use super::file::ReadError;
use super::series::Series;
use super::{Grid, Volume, VolumeError, Voxels, voxel_count};
use crate::limits::{NIFTI_SIDE_MAX, VOXELS_MAX};
use crate::memory::bytes_of;
use crate::pca::Matrix;

/// Bytes of a header.
const HEADER_BYTES: u64 = 348;

/// A file's header and all that comes after it.
struct Content {
    header: NiftiHeader,
    /// Voxels along x, y, z, and how many such volumes there are.
    size: [usize; 3],
    volumes: usize,
    spacing: [f64; 3],
    scalar: NiftiType,
    bytes: Vec<u8>,
}

/// Reads a NIfTI-1 file of one volume with its data in it. Values are scaled as the header says;
/// what is not finite counts as missing, as programs that write such files mean it, and becomes
/// zero.
///
/// # Errors
/// Header and data disagree, a value is beyond single precision, it holds more than one volume, or it
/// is not one.
pub fn read_nifti(file: impl Read) -> Result<Volume, ReadError> {
    let content = read_content(file, 1)?;
    let voxels = voxels(&content.header, content.scalar, content.bytes)?;
    Ok(Volume::new(content.size, content.spacing, voxels)?)
}

/// Reads a NIfTI-1 file of volumes that were taken one after the other. A voxel that is not finite
/// in any of them is missing, and becomes zero.
///
/// # Errors
/// Header and data disagree, it is larger than what is held in one piece, or a voxel is missing in
/// some volumes only.
pub fn read_nifti_series(file: impl Read) -> Result<Series, ReadError> {
    let content = read_content(file, usize::MAX)?;
    let voxels = content.size.iter().product();
    let mut numbers = numbers(&content.header, content.scalar, content.bytes)?;
    for voxel in 0..voxels {
        let scans = (0..content.volumes).map(|scan| scan * voxels + voxel);
        let missing = scans.clone().filter(|at| !numbers[*at].is_finite()).count();
        if missing == content.volumes {
            scans.for_each(|at| numbers[at] = 0.0);
        } else if missing > 0 {
            let [width, height, _] = content.size;
            let at = [voxel % width, voxel / width % height, voxel / (width * height)];
            return Err(ReadError::Missing { at, missing, volumes: content.volumes });
        }
    }
    let data = Matrix::new(content.volumes, voxels, numbers)
        .map_err(|error| ReadError::header(error.to_string()))?;
    Ok(Series::new(content.size, content.spacing, data)?)
}

/// What the header of a NIfTI-1 file says of its volume.
pub(super) fn read_nifti_grid(file: impl Read) -> Result<Grid, ReadError> {
    let header = read_header(&mut unpacked(file)?)?;
    let (size, spacing) = (size(&header, 1)?.0, spacing(&header));
    let scalar = data_type(&header)?;
    let bytes = match scalar {
        NiftiType::Uint8 | NiftiType::Uint16 if is_plain(&header) => scalar.size_of(),
        _ => scaled_bytes(scalar),
    };
    Ok(Grid { size, spacing, read_bytes: bytes_of(&[voxel_count(size)?, bytes]) })
}

/// Bytes of memory that reading a series takes at least, and its volumes and the voxels of each.
pub(super) fn nifti_series_bytes(file: impl Read) -> Result<([usize; 2], u64), ReadError> {
    let header = read_header(&mut unpacked(file)?)?;
    let (size, volumes) = size(&header, usize::MAX)?;
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

fn read_header(file: &mut impl Read) -> Result<NiftiHeader, ReadError> {
    NiftiHeader::from_reader(file.take(HEADER_BYTES))
        .map_err(|error| ReadError::header(error.to_string()))
}

fn data_type(header: &NiftiHeader) -> Result<NiftiType, ReadError> {
    header.data_type().map_err(|error| ReadError::header(error.to_string()))
}

fn spacing(header: &NiftiHeader) -> [f64; 3] {
    [1, 2, 3].map(|axis| match f64::from(header.pixdim[axis]).abs() {
        // Not given.
        0.0 => 1.0,
        spacing => spacing,
    })
}

fn read_content(file: impl Read, volumes_max: usize) -> Result<Content, ReadError> {
    let mut file = unpacked(file)?;
    let header = read_header(&mut file)?;
    let (size, volumes) = size(&header, volumes_max)?;
    let count = voxel_count(size)?;
    let scalar = data_type(&header)?;
    let too_large = ReadError::Volume(VolumeError::TooLarge(size));
    let Some(count) = count.checked_mul(volumes).filter(|count| *count <= VOXELS_MAX) else {
        return Err(too_large);
    };
    let Some(expected) = count.checked_mul(scalar.size_of()) else { return Err(too_large) };
    // Written as a floating-point number, and from there on exact.
    let first = header.vox_offset;
    if !(first >= HEADER_BYTES as f32 && first.fract() == 0.0) {
        return Err(ReadError::header(format!(
            "vox_offset {first}: only files with header and data in one are read"
        )));
    }
    skip(&mut file, first as u64 - HEADER_BYTES)?;
    let bytes = read_exactly(file, expected)?;
    let spacing = spacing(&header);
    Ok(Content { header, size, volumes, spacing, scalar, bytes })
}

fn size(header: &NiftiHeader, volumes_max: usize) -> Result<([usize; 3], usize), ReadError> {
    let dim = header.dim().map_err(|error| ReadError::header(error.to_string()))?;
    // The library takes a number below zero for a large one.
    if let Some(side) = dim.iter().find(|side| **side > NIFTI_SIDE_MAX) {
        return Err(ReadError::header(format!(
            "{side} voxels along a side, or volumes: NIfTI-1 has {NIFTI_SIDE_MAX} at most"
        )));
    }
    let volumes = dim.get(3).map_or(1, |volumes| usize::from(*volumes));
    let more = dim.iter().skip(4).find(|more| **more != 1).map(|more| usize::from(*more));
    if let Some(many) = more.or((volumes > volumes_max).then_some(volumes)) {
        return Err(ReadError::header(format!(
            "it is a series of {many} volumes: take one out of it"
        )));
    }
    let sides = [0, 1, 2].map(|axis| dim.get(axis).map_or(1, |side| usize::from(*side)));
    Ok((sides, volumes))
}

fn typed<T: DataElement>(
    header: &NiftiHeader,
    scalar: NiftiType,
    bytes: Vec<u8>,
) -> Result<Vec<T>, ReadError> {
    T::from_raw_vec_validated(bytes, header.endianness, scalar)
        .map_err(|error| ReadError::header(error.to_string()))
}

/// What a sample is multiplied with, and what is added to it.
fn scaling(header: &NiftiHeader) -> (f64, f64) {
    match (header.scl_slope, header.scl_inter) {
        // No scaling.
        (slope, _) if slope == 0.0 || !slope.is_finite() => (1.0, 0.0),
        (slope, inter) => (slope.into(), if inter.is_finite() { inter.into() } else { 0.0 }),
    }
}

fn is_plain(header: &NiftiHeader) -> bool {
    scaling(header) == (1.0, 0.0)
}

fn voxels(header: &NiftiHeader, scalar: NiftiType, bytes: Vec<u8>) -> Result<Voxels, ReadError> {
    let is_plain = is_plain(header);
    Ok(match scalar {
        NiftiType::Uint8 if is_plain => Voxels::U8(typed(header, scalar, bytes)?),
        NiftiType::Uint16 if is_plain => Voxels::U16(typed(header, scalar, bytes)?),
        _ => {
            let numbers = numbers(header, scalar, bytes)?.into_iter();
            // What is too large for single precision is not missing: it stays infinite, and is refused.
            let there = numbers.map(|number| if number.is_finite() { number as f32 } else { 0.0 });
            Voxels::F32(there.collect())
        }
    })
}

/// Samples, scaled as the header says.
fn numbers(header: &NiftiHeader, scalar: NiftiType, bytes: Vec<u8>) -> Result<Vec<f64>, ReadError> {
    let (slope, inter) = scaling(header);
    macro_rules! scaled {
        ($type:ty) => {{
            let samples = typed::<$type>(header, scalar, bytes)?;
            samples.into_iter().map(|sample| sample as f64 * slope + inter).collect()
        }};
    }
    Ok(match scalar {
        NiftiType::Uint8 => scaled!(u8),
        NiftiType::Int8 => scaled!(i8),
        NiftiType::Uint16 => scaled!(u16),
        NiftiType::Int16 => scaled!(i16),
        NiftiType::Uint32 => scaled!(u32),
        NiftiType::Int32 => scaled!(i32),
        NiftiType::Float32 => scaled!(f32),
        NiftiType::Float64 => scaled!(f64),
        other => {
            return Err(ReadError::header(format!(
                "voxels of type {other:?}: only whole and floating-point numbers are read"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the order of bytes of old workstations.
    fn file(kind: i16, bits: i16, dim: [i16; 5], slope: f32, data: &[u8]) -> Vec<u8> {
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
    fn what_is_missing_in_a_scan_is_zero() {
        let data: Vec<u8> = [f32::NAN, 2.0].map(f32::to_be_bytes).concat();
        let volume = read_nifti(&file(16, 32, [3, 2, 1, 1, 1], 1.0, &data)[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![0.0, 2.0]));
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
    fn header_and_data_that_disagree_and_series_are_told() {
        let told = |file: Vec<u8>| read_nifti(&file[..]).expect_err("refused").to_string();
        let short = told(file(2, 8, [3, 2, 2, 2, 1], 0.0, &[0; 7]));
        assert!(short.contains("after 7 of the 8"), "{short}");
        let long = told(file(2, 8, [3, 2, 2, 2, 1], 0.0, &[0; 9]));
        assert!(long.contains("goes on after the 8"), "{long}");
        let series = told(file(2, 8, [4, 2, 2, 2, 3], 0.0, &[0; 24]));
        assert!(series.contains("3 volumes"), "{series}");
        let colours = told(file(128, 24, [3, 2, 1, 1, 1], 0.0, &[0; 6]));
        assert!(colours.contains("Rgb24"), "{colours}");
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
        assert!(long.contains("32768 voxels") && long.contains("32767 at most"), "{long}");
    }
}
