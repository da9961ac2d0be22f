//! Volumes in files.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::bounded::{GZIP_MAGIC, check_extra, check_skip, check_skipped};
use super::brick_file::BrickPlace;
use super::nifti_file::{nifti_place, nifti_series_bytes, read_nifti_grid};
use super::nrrd::read_header;
use super::{
    Brick, Grid, NrrdHeader, RawHeader, Series, Volume, VolumeError, read_nifti, read_nifti_series,
    read_nrrd, read_raw,
};
use crate::limits::{EXTRA_COUNTED_MAX, HEADER_BYTES_MAX, SKIPPED_BYTES_MAX};
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
        "it goes on after the {expected} bytes that its header promises, there are {}{}: correct the \
         sizes in the header, or cut off what comes after the voxels",
        *expected as u64 + extra, if *extra < EXTRA_COUNTED_MAX { "" } else { " or more" }
    )]
    Long {
        /// Bytes that the header promises.
        expected: usize,
        /// Bytes after them, as far as they were counted.
        extra: u64,
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
    /// One of two files that have header and data apart.
    #[error(
        "one of a pair of files, .hdr and .img, with header and data apart: make one .nii file of both \
         (in Python nibabel.save(nibabel.load(\"NAME.img\"), \"NAME.nii\"))"
    )]
    Pair,
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
        let header = NrrdHeader::parse(&header_bytes(path)?)?;
        header.read_data(open_data(path, data_name(&header)?)?)
    } else if ends(".nrrd") {
        read_nrrd(open(path)?)
    } else if ends(".nii") || ends(".nii.gz") {
        read_nifti(open(path)?)
    } else {
        Err(no_volume(&name.to_ascii_lowercase()))
    }
}

/// Where the voxels of a file are, and how many bytes these have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataPlace {
    /// Bytes before the first voxel, after the header.
    pub(super) before: u64,
    /// Bytes of all voxels.
    pub(super) expected: usize,
    /// Whether there may be more bytes than these.
    pub(super) may_be_more: bool,
    /// Whether it is not packed, whatever it begins with.
    pub(super) is_raw: bool,
}

/// Looks at a file that [`read_volume`] reads, as far as that takes no time: at its header, and at the
/// length of its data unless it is packed. What is wrong is told as there.
///
/// # Errors
/// As [`read_volume`].
pub fn check_volume(path: &Path) -> Result<(), ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ends = |end: &str| name.to_ascii_lowercase().ends_with(end);
    let grid = if ends(".toml") || ends(".json") {
        let text = header_text(path)?;
        let header =
            if ends(".toml") { RawHeader::from_toml(&text)? } else { RawHeader::from_json(&text)? };
        header.data_place()?.check(&mut open_data(path, &header.file)?, 0)?;
        header.grid()?
    } else if ends(".nhdr") {
        let header = NrrdHeader::parse(&header_bytes(path)?)?;
        let mut data = open_data(path, data_name(&header)?)?;
        header.data_place()?.check(&mut data, 0)?;
        header.grid()?
    } else if ends(".nrrd") {
        let mut file = open(path)?;
        let (header, bytes) = read_header(&mut BufReader::new(&mut file))?;
        header.data_place()?.check(&mut file, bytes)?;
        header.grid()?
    } else if ends(".nii") || ends(".nii.gz") {
        check_nifti(path, false)?;
        read_nifti_grid(open(path)?)?
    } else {
        return Err(no_volume(&name.to_ascii_lowercase()));
    };
    Ok(super::check_spacing(grid.spacing)?)
}

/// Looks at a file that [`read_series`] reads, as [`check_volume`] does.
///
/// # Errors
/// As [`read_series`].
pub fn check_series(path: &Path) -> Result<(), ReadError> {
    check_series_name(path)?;
    let spacing = check_nifti(path, true)?;
    Ok(super::check_spacing(spacing)?)
}

/// Looks at the header and the length of a NIfTI file. How far voxels are apart in it.
fn check_nifti(path: &Path, series: bool) -> Result<[f64; 3], ReadError> {
    let mut file = open(path)?;
    let (place, spacing) = nifti_place(&file, series)?;
    let is_packed = begins_as_gzip(&mut file, 0)?;
    if !is_packed {
        place.check(&mut file, 0)?;
    }
    Ok(spacing)
}

/// Whether what is in a file from some byte on is packed by gzip.
pub(super) fn begins_as_gzip(file: &mut File, from: u64) -> Result<bool, ReadError> {
    let mut begins = Vec::new();
    file.seek(SeekFrom::Start(from)).map_err(ReadError::Read)?;
    file.take(2).read_to_end(&mut begins).map_err(ReadError::Read)?;
    Ok(begins == GZIP_MAGIC)
}

impl DataPlace {
    /// Whether a file has as many bytes `from` some place on, unless they are packed there.
    pub(super) fn check(&self, file: &mut File, from: u64) -> Result<(), ReadError> {
        check_skip(self.before)?;
        if !self.is_raw && begins_as_gzip(file, from)? {
            return Ok(());
        }
        let length = file.metadata().map_err(ReadError::Read)?.len();
        let there = length.saturating_sub(from);
        check_skipped(there, self.before)?;
        let found = there - self.before;
        match found.checked_sub(self.expected as u64) {
            Some(_) if self.may_be_more => Ok(()),
            Some(extra) => check_extra(self.expected, extra),
            None => {
                let found = usize::try_from(found).unwrap_or(usize::MAX);
                Err(ReadError::Short { expected: self.expected, found })
            }
        }
    }
}

/// The name of the file with the data of a header in a file of its own.
pub(super) fn data_name(header: &NrrdHeader) -> Result<&str, ReadError> {
    header.data_file().ok_or_else(|| ReadError::header("no `data file`, as a .nhdr file needs"))
}

/// That a file is no volume by its name.
pub(super) fn no_volume(name: &str) -> ReadError {
    if is_of_pair(name) { ReadError::Pair } else { ReadError::Kind }
}

/// Whether a file is one of a header and its data.
fn is_of_pair(name: &str) -> bool {
    [".img", ".hdr", ".img.gz", ".hdr.gz"].into_iter().any(|end| name.ends_with(end))
}

/// Where the volume in a file is in another one, where it is a brick of that.
///
/// # Errors
/// Its header cannot be read.
pub(crate) fn read_place(path: &Path) -> Result<Option<BrickPlace>, ReadError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.to_ascii_lowercase().ends_with(".nrrd") {
        return Ok(None);
    }
    let (header, _) = read_header(&mut BufReader::new(open(path)?))?;
    Ok(header.brick().cloned())
}

/// Reads an NRRD file with its data in it: a brick where it is in its volume, or a whole one.
///
/// # Errors
/// As [`read_nrrd`].
pub(crate) fn read_brick(file: impl Read) -> Result<Brick, ReadError> {
    let mut file = BufReader::new(file);
    let (header, _) = read_header(&mut file)?;
    let volume = Arc::new(header.read_data(file)?);
    Ok(match header.brick() {
        Some(place) => Brick::placed(volume, place),
        None => Brick::whole(volume),
    })
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
        Ok(NrrdHeader::parse(&header_bytes(path)?)?.grid()?)
    } else if ends(".nrrd") {
        Ok(read_header(&mut BufReader::new(open(path)?))?.0.grid()?)
    } else if ends(".nii") || ends(".nii.gz") {
        read_nifti_grid(open(path)?)
    } else {
        Err(no_volume(&name.to_ascii_lowercase()))
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
        NrrdHeader::parse(&header_bytes(path)?)?.data_file().map(str::to_owned)
    } else if [".nrrd", ".nii", ".nii.gz"].into_iter().any(ends) {
        None
    } else {
        return Err(no_volume(&name.to_ascii_lowercase()));
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
    } else if is_of_pair(&name) {
        Err(ReadError::Pair)
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

pub(super) fn open(path: &Path) -> Result<File, ReadError> {
    plain_file::open(path).map_err(ReadError::Open)
}

/// Opens the file that a header names.
pub(super) fn open_data(header: &Path, name: &str) -> Result<File, ReadError> {
    let path = beside(header, name)?;
    plain_file::open(&path).map_err(|source| ReadError::Data { name: name.to_owned(), source })
}

pub(super) fn header_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    open(path)?.take(HEADER_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    if bytes.len() as u64 > HEADER_BYTES_MAX {
        return Err(ReadError::header(format!("longer than {HEADER_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

pub(super) fn header_text(path: &Path) -> Result<String, ReadError> {
    let text = String::from_utf8(header_bytes(path)?);
    text.map_err(|_| ReadError::header("it is not UTF-8: save it as such"))
}

/// The file that a header names, from its own folder on. A header must not reach beyond that folder.
/// Where there is no such folder below it, the file's plain name counts: a job has all files in one.
fn beside(header: &Path, name: &str) -> Result<PathBuf, ReadError> {
    let refused = || {
        let told: String = name.chars().take(120).collect();
        ReadError::header(format!(
            "data file {told:?}: name a plain file beside the header, or in a folder there"
        ))
    };
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part),
            _ => return Err(refused()),
        }
    }
    let file = parts.pop().filter(|_| !name.ends_with('/')).ok_or_else(refused)?;
    let here = header.parent().unwrap_or(Path::new(""));
    let mut folder = here.to_owned();
    for part in parts {
        folder.push(part);
        match fs::symlink_metadata(&folder) {
            Ok(about) if about.is_dir() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder = here.to_owned();
                break;
            }
            _ => return Err(refused()),
        }
    }
    let path = folder.join(file);
    let is_file = fs::symlink_metadata(&path).map_or(true, |about| about.is_file());
    if is_file { Ok(path) } else { Err(refused()) }
}

#[cfg(test)]
mod tests;
