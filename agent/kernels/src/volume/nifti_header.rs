//! Headers of NIfTI-1 files.

use std::io::Read;

use nifti::{NiftiHeader, NiftiType};

use super::file::ReadError;
use crate::limits::NIFTI_SIDE_MAX;

/// Bytes of a header.
pub(super) const HEADER_BYTES: u64 = 348;
/// Bytes of the header of a NIfTI-2 file.
const HEADER_BYTES_2: i32 = 540;
/// What is told of voxels of other types.
const READ_TYPES: &str = "give whole numbers, or floating-point ones of single or double precision";

/// Reads a header. What it says of itself is consistent: how long it is, its sides, the type of its
/// voxels and their bits, and how these are scaled.
pub(super) fn read_header(file: &mut impl Read) -> Result<NiftiHeader, ReadError> {
    let mut bytes = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    check_kind(&bytes)?;
    let header = NiftiHeader::from_reader(&bytes[..])
        .map_err(|error| ReadError::header(error.to_string()))?;
    check_sides(&header)?;
    let scalar = data_type(&header)?;
    let (found, expected) = (header.bitpix, 8 * scalar.size_of());
    if usize::try_from(found) != Ok(expected) {
        return Err(ReadError::header(format!(
            "bitpix is {found}, and voxels of datatype {} ({}) have {expected} bits: correct the one \
             that is wrong",
            header.datatype,
            type_name(header.datatype)
        )));
    }
    check_scaling(&header)?;
    Ok(header)
}

/// The type of its voxels, which is one that is read.
pub(super) fn data_type(header: &NiftiHeader) -> Result<NiftiType, ReadError> {
    let code = header.datatype;
    let cure = match code {
        2 | 4 | 8 | 16 | 64 | 256 | 512 | 768 | 1024 | 1280 => {
            return header.data_type().map_err(|error| ReadError::header(error.to_string()));
        }
        128 | 2304 => "voxels are colours: make a file of each channel, or of their brightness",
        32 | 1792 | 2048 => "voxels are complex numbers: make a file of their magnitudes",
        1536 => "voxels have 128 bits: save them in double precision (FLOAT64)",
        1 => "voxels are single bits: save them as bytes (UINT8)",
        _ => READ_TYPES,
    };
    Err(ReadError::header(format!("datatype {code} ({}) is not read: {cure}", type_name(code))))
}

/// What the format calls a type.
const fn type_name(code: i16) -> &'static str {
    match code {
        0 => "UNKNOWN",
        1 => "BINARY",
        2 => "UINT8",
        4 => "INT16",
        8 => "INT32",
        16 => "FLOAT32",
        32 => "COMPLEX64",
        64 => "FLOAT64",
        128 => "RGB24",
        256 => "INT8",
        512 => "UINT16",
        768 => "UINT32",
        1024 => "INT64",
        1280 => "UINT64",
        1536 => "FLOAT128",
        1792 => "COMPLEX128",
        2048 => "COMPLEX256",
        2304 => "RGBA32",
        _ => "no type of NIfTI-1",
    }
}

/// Bytes before the first voxel. Where none is given it is the usual place, as for other programs.
pub(super) fn data_offset(header: &NiftiHeader) -> Result<u64, ReadError> {
    if &header.magic[..3] == b"ni1" {
        return Err(ReadError::header(
            "its magic is ni1: header and data are apart, in a pair of files (.hdr, .img), and they \
             are read from one file (.nii) only: make one of both",
        ));
    }
    // Written as a floating-point number, and from there on exact.
    let first = header.vox_offset;
    if first == 0.0 {
        return Ok(USUAL_OFFSET);
    }
    if first >= HEADER_BYTES as f32 && first.fract() == 0.0 {
        return Ok(first as u64);
    }
    Err(ReadError::header(format!(
        "vox_offset is {first}, and the first voxel comes after the {HEADER_BYTES} bytes of the header: \
         correct it, {USUAL_OFFSET} is usual"
    )))
}

/// Where data begins, after the header and four bytes that say that there is nothing more.
const USUAL_OFFSET: u64 = 352;

/// How far voxels are apart along x, y, z.
pub(super) fn spacing(header: &NiftiHeader) -> [f64; 3] {
    [1, 2, 3].map(|axis| match f64::from(header.pixdim[axis]).abs() {
        // Not given.
        0.0 => 1.0,
        spacing => spacing,
    })
}

/// Voxels along x, y, z, and how many such volumes there are: one where no `series` is read.
pub(super) fn size(header: &NiftiHeader, series: bool) -> Result<([usize; 3], usize), ReadError> {
    let dim = |axis: u16| match header.dim[usize::from(axis)] {
        side if axis <= header.dim[0] => usize::from(side),
        _ => 1,
    };
    for axis in [4, 5, 6, 7] {
        let many = dim(axis);
        if many == 1 || axis == 4 && series {
            continue;
        }
        return Err(ReadError::header(if series {
            format!(
                "dim[{axis}] = {many}: volumes of a series are along dim[4] only, put those that \
                 belong together there"
            )
        } else {
            format!("it is a series of {many} volumes, along dim[{axis}]: take one out of it")
        }));
    }
    Ok(([1, 2, 3].map(dim), dim(4)))
}

/// What a sample is multiplied with, and what is added to it.
pub(super) fn scaling(header: &NiftiHeader) -> (f64, f64) {
    match (header.scl_slope, header.scl_inter) {
        // No scaling. Programs also write NaN where none was set.
        (slope, _) if slope == 0.0 || slope.is_nan() => (1.0, 0.0),
        (slope, inter) => (slope.into(), inter.into()),
    }
}

/// Refuses what is no header of NIfTI-1 by its length and its order of bytes.
fn check_kind(bytes: &[u8]) -> Result<(), ReadError> {
    let magic = |at: usize| bytes.get(at..at + 3).unwrap_or_default();
    let first = bytes.first_chunk().copied().unwrap_or_default();
    let sizes = [i32::from_le_bytes(first), i32::from_be_bytes(first)];
    if sizes.contains(&HEADER_BYTES_2) && [b"n+2", b"ni2"].iter().any(|kind| magic(4) == *kind) {
        return Err(ReadError::header(
            "it is a NIfTI-2 file, and NIfTI-1 is read: convert it, such as by \
             nibabel.Nifti1Image.from_image",
        ));
    }
    if (bytes.len() as u64) < HEADER_BYTES {
        return Err(ReadError::header(format!(
            "it ends after {} of the {HEADER_BYTES} bytes of a NIfTI-1 header: get the whole file",
            bytes.len()
        )));
    }
    if ![b"n+1", b"ni1"].iter().any(|kind| magic(344) == *kind) {
        return Err(ReadError::header(
            "it is not NIfTI-1, whose magic is n+1: convert it, or correct its name",
        ));
    }
    let dimensions = i16::from_le_bytes([bytes[40], bytes[41]]);
    let dimensions = match sizes.map(|size| u64::try_from(size) == Ok(HEADER_BYTES)) {
        [true, _] => dimensions,
        [_, true] => dimensions.swap_bytes(),
        _ => {
            let told = sizes[usize::from(!(1..=7).contains(&dimensions))];
            return Err(ReadError::header(format!(
                "sizeof_hdr is {told}, and {HEADER_BYTES} in a NIfTI-1 file: correct it"
            )));
        }
    };
    if !(1..=7).contains(&dimensions) {
        return Err(ReadError::header(format!(
            "dim[0] = {dimensions}: NIfTI-1 has from 1 to 7 dimensions, correct it"
        )));
    }
    Ok(())
}

/// Refuses sides that are none.
fn check_sides(header: &NiftiHeader) -> Result<(), ReadError> {
    for axis in 1..=usize::from(header.dim[0]) {
        // The library takes a number below zero for a large one.
        let side = header.dim[axis].cast_signed();
        if (axis, side) == (1, -1) && header.glmin > 0 {
            return Err(ReadError::header(format!(
                "dim[1] = -1: so FreeSurfer writes a value for each of {} points of a surface, which is \
                 no volume: convert it into one (mri_surf2vol), or for pca into a table (.csv)",
                header.glmin
            )));
        }
        if side < 1 {
            let what = if axis <= 3 { "voxels along a side" } else { "volumes" };
            return Err(ReadError::header(format!(
                "dim[{axis}] = {side}: NIfTI-1 has from 1 to {NIFTI_SIDE_MAX} {what}, correct it"
            )));
        }
    }
    Ok(())
}

/// Refuses what no sample can be scaled with.
fn check_scaling(header: &NiftiHeader) -> Result<(), ReadError> {
    let NiftiHeader { scl_slope: slope, scl_inter: inter, .. } = *header;
    let is_scaled = slope != 0.0 && !slope.is_nan();
    if slope.is_infinite() || inter.is_infinite() || is_scaled && inter.is_nan() {
        return Err(ReadError::header(format!(
            "scl_slope is {slope} and scl_inter is {inter}: give finite ones, or a slope of 0 where \
             voxels are not scaled"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::nifti_file::tests::file;
    use super::super::{Voxels, read_nifti, read_nifti_series};

    fn told(file: &[u8]) -> String {
        read_nifti(file).expect_err("refused").to_string()
    }

    fn plain() -> Vec<u8> {
        file(2, 8, [3, 2, 1, 2, 1], 0.0, &[1, 2, 3, 4])
    }

    /// The file of one volume, with other bytes at a place of its header.
    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut file = plain();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    }

    #[test]
    fn a_file_that_ends_in_its_header_is_told() {
        let empty = told(&[]);
        assert!(empty.contains("after 0 of the 348 bytes of a NIfTI-1 header"), "{empty}");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&plain()[..100]).expect("memory");
        let short = told(&packed.finish().expect("memory"));
        assert!(short.contains("after 100 of the 348 bytes"), "{short}");
    }

    #[test]
    fn a_file_of_another_format_is_told() {
        for size in [540_i32.to_le_bytes(), 540_i32.to_be_bytes()] {
            let mut file = plain();
            file[..4].copy_from_slice(&size);
            file[4..12].copy_from_slice(b"n+2\0\r\n\x1a\n");
            let two = told(&file);
            assert!(two.contains("NIfTI-2") && two.contains("convert it"), "{two}");
        }
        let analyze = told(&with(344, &[0; 4]));
        assert!(analyze.contains("not NIfTI-1"), "{analyze}");
        let apart = file(2, 8, [3, 2, 1, 2, 1], 0.0, &[1, 2, 3, 4]);
        let apart = [&apart[..108], &[0; 4], &apart[112..344], b"ni1\0", &apart[348..]].concat();
        let apart = told(&apart);
        assert!(apart.contains("ni1") && apart.contains("a pair of files"), "{apart}");
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        for (file, words) in [
            (with(0, &540_i32.to_be_bytes()), "sizeof_hdr is 540, and 348"),
            (with(0, &[0; 4]), "sizeof_hdr is 0, and 348"),
            (with(40, &8_i16.to_be_bytes()), "dim[0] = 8: NIfTI-1 has from 1 to 7"),
            (with(40, &[0; 2]), "dim[0] = 0"),
            (with(40, &(-1_i16).to_be_bytes()), "dim[0] = -1"),
            (with(42, &(-8_i16).to_be_bytes()), "dim[1] = -8: NIfTI-1 has from 1 to 32767 voxels"),
            (with(46, &[0; 2]), "dim[3] = 0: NIfTI-1 has from 1 to 32767 voxels along a side"),
            (
                with(72, &16_i16.to_be_bytes()),
                "bitpix is 16, and voxels of datatype 2 (UINT8) have 8",
            ),
            (with(72, &[0; 2]), "bitpix is 0"),
            (
                with(70, &3_i16.to_be_bytes()),
                "datatype 3 (no type of NIfTI-1) is not read: give whole",
            ),
            (
                with(70, &128_i16.to_be_bytes()),
                "datatype 128 (RGB24) is not read: voxels are colours",
            ),
            (with(70, &2304_i16.to_be_bytes()), "datatype 2304 (RGBA32) is not read"),
            (
                with(70, &32_i16.to_be_bytes()),
                "(COMPLEX64) is not read: voxels are complex numbers",
            ),
            (with(70, &1536_i16.to_be_bytes()), "(FLOAT128) is not read"),
            (with(70, &1024_i16.to_be_bytes()), "bitpix is 8, and voxels of datatype 1024 (INT64)"),
            (
                with(108, &100_f32.to_be_bytes()),
                "vox_offset is 100, and the first voxel comes after",
            ),
            (with(108, &f32::NAN.to_be_bytes()), "vox_offset is NaN"),
            (with(108, &352.5_f32.to_be_bytes()), "vox_offset is 352.5"),
            (with(108, &(-1_f32).to_be_bytes()), "vox_offset is -1"),
        ] {
            let told = told(&file);
            assert!(told.contains(words), "{words}: {told}");
        }
    }

    #[test]
    fn data_is_at_its_usual_place_where_none_is_said() {
        let volume = read_nifti(&with(108, &[0; 4])[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::U8(vec![1, 2, 3, 4]));
    }

    #[test]
    fn a_surface_in_the_way_of_freesurfer_is_told_by_its_name() {
        let mut file = with(42, &(-1_i16).to_be_bytes());
        file[144..148].copy_from_slice(&163_842_i32.to_be_bytes());
        for told in [told(&file), read_nifti_series(&file[..]).expect_err("refused").to_string()] {
            assert!(told.contains("FreeSurfer") && told.contains("163842 points"), "{told}");
        }
        let plain = told(&with(42, &(-1_i16).to_be_bytes()));
        assert!(plain.contains("dim[1] = -1: NIfTI-1 has from 1"), "{plain}");
    }

    #[test]
    fn what_no_sample_is_scaled_with_is_refused() {
        let scaled = |slope: f32, inter: f32| {
            with(112, &[slope.to_be_bytes(), inter.to_be_bytes()].concat())
        };
        for (slope, inter) in
            [(f32::INFINITY, 0.0), (2.0, f32::NEG_INFINITY), (2.0, f32::NAN), (0.0, f32::INFINITY)]
        {
            let told = told(&scaled(slope, inter));
            assert!(told.contains("scl_slope is") && told.contains("give finite ones"), "{told}");
        }
        // What programs write where there is no scaling.
        for (slope, inter) in [(0.0, 5.0), (f32::NAN, f32::NAN), (1.0, 0.0)] {
            let volume = read_nifti(&scaled(slope, inter)[..]).expect("a volume");
            assert_eq!(volume.voxels(), &Voxels::U8(vec![1, 2, 3, 4]));
        }
    }

    #[test]
    fn more_dimensions_than_a_series_has_are_told() {
        let mut file = file(2, 8, [5, 1, 1, 1, 2], 0.0, &[0; 16]);
        file[50..52].copy_from_slice(&8_i16.to_be_bytes());
        let series = read_nifti_series(&file[..]).expect_err("refused").to_string();
        assert!(series.contains("dim[5] = 8") && series.contains("along dim[4] only"), "{series}");
        assert!(!series.contains("take one out"), "{series}");
        let one = told(&file);
        assert!(one.contains("2 volumes") && one.contains("take one out"), "{one}");
        file[48..50].copy_from_slice(&1_i16.to_be_bytes());
        let one = told(&file);
        assert!(one.contains("8 volumes, along dim[5]"), "{one}");
        file[50..52].copy_from_slice(&1_i16.to_be_bytes());
        file.truncate(353);
        assert!(read_nifti(&file[..]).is_ok());
    }
}
