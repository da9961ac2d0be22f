//! Volumes in files.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::nifti_file::{nifti_series_bytes, read_nifti_grid};
use super::nrrd::read_header;
use super::{
    Grid, NrrdHeader, RawHeader, Series, Volume, VolumeError, read_nifti, read_nifti_series,
    read_nrrd, read_raw,
};
use crate::limits::{HEADER_BYTES_MAX, SKIPPED_BYTES_MAX};
use crate::plain_file;

/// Why a file gives no volume. Which one it is, knows who named it: no path is told.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("open: {0}")]
    Open(io::Error),
    /// The file beside it that its header names cannot be opened.
    #[error("open {name}, which its header names: {source}")]
    Data {
        /// Its plain name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It cannot be read, or what is packed in it is damaged.
    #[error("read: {0}")]
    Read(io::Error),
    /// It ends before the last voxel.
    #[error(
        "it ends after {found} of the {expected} bytes that its header promises: correct the header or the file"
    )]
    Short {
        /// Bytes that the header promises.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// It goes on after the last voxel.
    #[error(
        "it goes on after the {expected} bytes that its header promises: correct the header or the file"
    )]
    Long {
        /// Bytes that the header promises.
        expected: usize,
    },
    /// Its first voxel is too far behind.
    #[error(
        "its header passes over {bytes} bytes before the first voxel, and {SKIPPED_BYTES_MAX} at most are passed over: take them out"
    )]
    Skipped {
        /// Bytes before the first voxel.
        bytes: u64,
    },
    /// Its header is not one.
    #[error("header: {0}")]
    Header(String),
    /// What it says is not a volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A voxel of a series is missing in some of its volumes.
    #[error(
        "voxel ({}, {}, {}) is NaN in {missing} of {volumes} volumes: correct these, or make it \
         NaN in all, which leaves it out",
        .at[0], .at[1], .at[2]
    )]
    Missing {
        /// Where it is.
        at: [usize; 3],
        /// In how many it is missing.
        missing: usize,
        /// How many there are.
        volumes: usize,
    },
    /// Voxels of volumes that may have missing ones are infinite, which is not that.
    #[error(
        "{count} voxels are infinite, the first at ({}, {}, {}) of volume {volume}: correct these, \
         or make them NaN in all volumes, which counts as 0",
        .first[0], .first[1], .first[2]
    )]
    Infinite {
        /// How many, in all volumes.
        count: usize,
        /// Where the first one is.
        first: [usize; 3],
        /// In which volume that is, from 1.
        volume: usize,
    },
    /// Not a series by its name.
    #[error("not a series of volumes by its name: use .nii or .nii.gz")]
    SeriesKind,
    /// Its name ends in nothing that we know.
    #[error(
        "not a volume by its name: use .toml or .json (header of a raw file), .nrrd, .nhdr, .nii or \
         .nii.gz"
    )]
    Kind,
}

impl ReadError {
    pub(super) fn header(problem: impl Into<String>) -> Self {
        Self::Header(problem.into())
    }
}

/// Reads the volume in a file, by what the file's name ends in. A header in a file of its own
/// names the data's file, which stands in the same folder.
///
/// # Errors
/// It cannot be read, header and data disagree, or it is not a volume.
pub fn read_volume(path: &Path) -> Result<Volume, ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ends = |end: &str| name.to_ascii_lowercase().ends_with(end);
    if ends(".toml") || ends(".json") {
        let text = header_text(path)?;
        let header =
            if ends(".toml") { RawHeader::from_toml(&text)? } else { RawHeader::from_json(&text)? };
        read_raw(&header, open_data(path, &header.file)?)
    } else if ends(".nhdr") {
        let header = NrrdHeader::parse(header_text(path)?.as_bytes())?;
        let file = header
            .data_file()
            .ok_or_else(|| ReadError::header("no `data file`, as a .nhdr file needs"))?;
        header.read_data(open_data(path, file)?)
    } else if ends(".nrrd") {
        read_nrrd(open(path)?)
    } else if ends(".nii") || ends(".nii.gz") {
        read_nifti(open(path)?)
    } else {
        Err(ReadError::Kind)
    }
}

/// The grid of the volume in a file, by its name and its header.
///
/// # Errors
/// As [`read_volume`], as far as that is known before its data is read.
pub(crate) fn read_grid(path: &Path) -> Result<Grid, ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ends = |end: &str| name.to_ascii_lowercase().ends_with(end);
    if ends(".toml") {
        Ok(RawHeader::from_toml(&header_text(path)?)?.grid()?)
    } else if ends(".json") {
        Ok(RawHeader::from_json(&header_text(path)?)?.grid()?)
    } else if ends(".nhdr") {
        Ok(NrrdHeader::parse(header_text(path)?.as_bytes())?.grid()?)
    } else if ends(".nrrd") {
        Ok(read_header(&mut BufReader::new(open(path)?))?.grid()?)
    } else if ends(".nii") || ends(".nii.gz") {
        read_nifti_grid(open(path)?)
    } else {
        Err(ReadError::Kind)
    }
}

/// The file with the data of a volume whose header is a file of its own, if it is.
///
/// # Errors
/// It is not a volume by its name, or a header that cannot be read or names no file beside it.
pub fn data_file(path: &Path) -> Result<Option<PathBuf>, ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ends = |end: &str| name.to_ascii_lowercase().ends_with(end);
    let file = if ends(".toml") {
        Some(RawHeader::from_toml(&header_text(path)?)?.file)
    } else if ends(".json") {
        Some(RawHeader::from_json(&header_text(path)?)?.file)
    } else if ends(".nhdr") {
        NrrdHeader::parse(header_text(path)?.as_bytes())?.data_file().map(str::to_owned)
    } else if [".nrrd", ".nii", ".nii.gz"].into_iter().any(ends) {
        None
    } else {
        return Err(ReadError::Kind);
    };
    file.map(|file| beside(path, &file)).transpose()
}

/// Whether a file is a series of volumes by its name.
///
/// # Errors
/// It is not.
pub fn check_series_name(path: &Path) -> Result<(), ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    if name.ends_with(".nii") || name.ends_with(".nii.gz") {
        Ok(())
    } else {
        Err(ReadError::SeriesKind)
    }
}

/// Reads volumes that were taken one after the other.
///
/// # Errors
/// It is not a NIfTI file, cannot be read, or header and data disagree.
pub fn read_series(path: &Path) -> Result<Series, ReadError> {
    check_series_name(path)?;
    read_nifti_series(open(path)?)
}

/// Bytes of memory that [`read_series`] takes at least, by the file's header, and the scans and voxels
/// that this promises.
///
/// # Errors
/// As [`read_series`], as far as that is known before its data is read.
pub(crate) fn series_bytes(path: &Path) -> Result<([usize; 2], u64), ReadError> {
    check_series_name(path)?;
    nifti_series_bytes(open(path)?)
}

fn open(path: &Path) -> Result<File, ReadError> {
    plain_file::open(path).map_err(ReadError::Open)
}

/// Opens the file that a header names.
fn open_data(header: &Path, name: &str) -> Result<File, ReadError> {
    let path = beside(header, name)?;
    plain_file::open(&path).map_err(|source| ReadError::Data { name: name.to_owned(), source })
}

fn header_text(path: &Path) -> Result<String, ReadError> {
    let mut text = String::new();
    open(path)?.take(HEADER_BYTES_MAX + 1).read_to_string(&mut text).map_err(ReadError::Read)?;
    if text.len() as u64 > HEADER_BYTES_MAX {
        return Err(ReadError::header(format!("longer than {HEADER_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The file that a header names. Only a plain name: a header must not reach into other folders.
fn beside(header: &Path, name: &str) -> Result<PathBuf, ReadError> {
    let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name);
    let path = header.with_file_name(name);
    let is_file = fs::symlink_metadata(&path).map_or(true, |about| about.is_file());
    if is_plain && is_file {
        Ok(path)
    } else {
        let told: String = name.chars().take(120).collect();
        Err(ReadError::header(format!("data file {told:?}: name a plain file beside the header")))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::{Missing, Voxels};
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    /// A folder with files.
    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).expect("written");
        }
        folder
    }

    fn told(files: &[(&str, &[u8])], name: &str) -> String {
        let folder = folder(files);
        read_volume(&folder.path().join(name)).expect_err("it is refused").to_string()
    }

    const TOML: &str = "file = \"a.raw\"\nsize = [2, 1, 2]\ntype = \"u16\"\n";

    #[test]
    fn a_raw_file_is_read_by_its_header() {
        let data: &[u8] = &[1, 0, 2, 0, 3, 0, 0, 1];
        let folder = folder(&[
            ("a.toml", TOML.as_bytes()),
            ("b.json", br#"{"file":"a.raw","size":[2,1,2],"type":"u16","endian":"big"}"#),
            ("a.raw", &gzip(data)),
        ]);
        let volume = read_volume(&folder.path().join("a.toml")).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::U16(vec![1, 2, 3, 256]));
        let volume = read_volume(&folder.path().join("b.json")).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::U16(vec![256, 512, 768, 1]));
    }

    #[test]
    fn a_file_that_is_not_as_long_as_its_header_says_is_refused() {
        let toml = ("a.toml", TOML.as_bytes());
        let short = told(&[toml, ("a.raw", &[0; 7])], "a.toml");
        assert!(short.contains("after 7 of the 8 bytes"), "{short}");
        let long = told(&[toml, ("a.raw", &[0; 9])], "a.toml");
        assert!(long.contains("goes on after the 8 bytes"), "{long}");
    }

    #[test]
    fn a_packed_file_that_expands_without_end_is_read_no_further_than_promised() {
        // 64 MiB in 64 KiB; a reader that unpacks it all would hold it all.
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 20);
        let long = told(&[("a.toml", TOML.as_bytes()), ("a.raw", &bomb)], "a.toml");
        assert!(long.contains("goes on after the 8 bytes"), "{long}");
        let toml = format!("{TOML}skip = 1000000000000\n");
        let far = told(&[("a.toml", toml.as_bytes()), ("a.raw", &bomb)], "a.toml");
        assert!(far.contains("passes over 1000000000000 bytes"), "{far}");
        let nrrd = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 1 1 1\nencoding: gzip\n\
                    byte skip: 1000000000000\n\n";
        let nrrd = [nrrd.as_bytes(), &bomb].concat();
        let far = told(&[("a.nrrd", &nrrd)], "a.nrrd");
        assert!(far.contains("passes over 1000000000000 bytes"), "{far}");
    }

    #[test]
    fn a_header_that_promises_too_much_is_refused_before_anything_is_read() {
        let toml = "file = \"a.raw\"\nsize = [100000, 100000, 100000]\ntype = \"u8\"\n";
        let large = told(&[("a.toml", toml.as_bytes()), ("a.raw", &[0; 7])], "a.toml");
        assert!(large.contains("crop it"), "{large}");
        let toml = "file = \"a.raw\"\nsize = [1, 0, 1]\ntype = \"u8\"\n";
        let empty = told(&[("a.toml", toml.as_bytes()), ("a.raw", &[])], "a.toml");
        assert!(empty.contains("is empty"), "{empty}");
    }

    #[test]
    fn a_header_reaches_no_other_folder() {
        for file in ["../a.raw", "/etc/passwd", "..", ""] {
            let toml = format!("file = {file:?}\nsize = [1, 1, 1]\ntype = \"u8\"\n");
            let refused = told(&[("a.toml", toml.as_bytes())], "a.toml");
            assert!(refused.contains("plain file beside"), "{refused}");
        }
    }

    #[test]
    fn damage_and_unknown_names_are_told() {
        let mut torn = gzip(&[1, 0, 2, 0, 3, 0, 0, 1]);
        torn.truncate(torn.len() - 6);
        assert!(told(&[("a.toml", TOML.as_bytes()), ("a.raw", &torn)], "a.toml").contains("read"));
        assert!(told(&[("a.vtk", b"")], "a.vtk").contains("not a volume by its name"));
        let unknown = TOML.replace("type", "typ");
        let unknown = told(&[("a.toml", unknown.as_bytes())], "a.toml");
        assert!(unknown.contains("header"), "{unknown}");
    }

    #[test]
    fn voxels_that_are_no_numbers_get_the_value_that_the_header_names() {
        let data: Vec<u8> = [1.0, f32::NAN, f32::INFINITY, -2.0].map(f32::to_le_bytes).concat();
        let toml = "file = \"a.raw\"\nsize = [4, 1, 1]\ntype = \"f32\"\n";
        let refused = told(&[("a.toml", toml.as_bytes()), ("a.raw", &data)], "a.toml");
        assert!(refused.contains("2 voxels are NaN or infinite"), "{refused}");
        let toml = format!("{toml}missing = 7.5\n");
        let folder = folder(&[("a.toml", toml.as_bytes()), ("a.raw", &data)]);
        let volume = read_volume(&folder.path().join("a.toml")).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![1.0, 7.5, 7.5, -2.0]));
        assert_eq!(volume.missing(), Some(Missing { count: 2, value: 7.5 }));
        let data: Vec<u8> = [1.0, f64::NAN, -1e39, -2.0].map(f64::to_le_bytes).concat();
        let refused =
            told(&[("a.toml", toml.replace("f32", "f64").as_bytes()), ("a.raw", &data)], "a.toml");
        assert!(refused.contains("1 voxels are beyond single precision"), "{refused}");
        assert!(refused.contains("(2, 0, 0)") && !refused.contains("missing"), "{refused}");
    }
}
