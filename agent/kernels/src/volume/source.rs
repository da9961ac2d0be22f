//! Volumes that are read a box at a time, however large they are.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::bounded::{check_extra, unpacked};
use super::file::{
    DataPlace, ReadError, begins_as_gzip, data_name, header_bytes, header_text, no_volume, open,
    open_data,
};
use super::nifti_file::NiftiBoxes;
use super::nrrd::read_header;
use super::raw::RawHeader;
use super::scalar::Endian;
use super::{NrrdHeader, ScalarType, Volume};

/// A volume in a file, or several of one size one after the other.
#[derive(Debug)]
pub struct VolumeSource {
    file: File,
    /// Where its first voxel is.
    begins: u64,
    size: [usize; 3],
    spacing: [f64; 3],
    steps: usize,
    /// Bytes of a sample in the file.
    sample_bytes: usize,
    samples: Samples,
}

/// How samples become voxels.
#[derive(Debug)]
enum Samples {
    Plain { scalar: ScalarType, endian: Endian, missing: Option<f32> },
    Nifti(Box<NiftiBoxes>),
}

impl VolumeSource {
    /// Opens one, by what the file's name ends in. What is packed is unpacked into a file that
    /// `spare` makes, for gzip cannot be read from its middle.
    ///
    /// # Errors
    /// As [`read_volume`](super::read_volume), as far as headers and lengths say; or `spare` fails.
    pub fn open(path: &Path, spare: impl FnOnce() -> io::Result<File>) -> Result<Self, ReadError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let ends = |end: &str| name.ends_with(end);
        if ends(".toml") || ends(".json") {
            let text = header_text(path)?;
            let toml = ends(".toml");
            let header = if toml { RawHeader::from_toml } else { RawHeader::from_json }(&text)?;
            let (data, place) = (open_data(path, &header.file)?, header.data_place()?);
            let (size, spacing) = (header.grid()?.size, header.grid()?.spacing);
            let samples = header.samples();
            Self::new(data, 0, place, (size, spacing, 1), samples, spare)
        } else if ends(".nhdr") {
            let header = NrrdHeader::parse(&header_bytes(path)?)?;
            let data = open_data(path, data_name(&header)?)?;
            Self::of_nrrd(&header, data, 0, spare)
        } else if ends(".nrrd") {
            let mut file = open(path)?;
            let (header, bytes) = read_header(&mut BufReader::new(&mut file))?;
            Self::of_nrrd(&header, file, bytes, spare)
        } else if ends(".nii") || ends(".nii.gz") {
            let boxes = NiftiBoxes::of(open(path)?)?;
            let (place, size, spacing, steps) = boxes.about();
            let mut file = open(path)?;
            // The header is packed with the data.
            let place = DataPlace { is_raw: !begins_as_gzip(&mut file, 0)?, ..place };
            let samples = Samples::Nifti(Box::new(boxes));
            Self::new(file, 0, place, (size, spacing, steps), samples, spare)
        } else {
            Err(no_volume(&name))
        }
    }

    fn of_nrrd(
        header: &NrrdHeader,
        data: File,
        from: u64,
        spare: impl FnOnce() -> io::Result<File>,
    ) -> Result<Self, ReadError> {
        let grid = header.grid()?;
        let (scalar, endian) = header.samples();
        let samples = (scalar, endian, None);
        let mut place = header.data_place()?;
        if let Some(behind) = header.behind()
            && place.is_raw
        {
            let length = data.metadata().map_err(ReadError::Read)?.len().saturating_sub(from);
            let least = place.expected as u64 + behind;
            let short = ReadError::Short { expected: place.expected, found: 0 };
            place.before = length.checked_sub(least).ok_or(short)?;
        }
        Self::new(data, from, place, (grid.size, grid.spacing, 1), samples, spare)
    }

    fn new(
        mut file: File,
        from: u64,
        place: DataPlace,
        (size, spacing, steps): ([usize; 3], [f64; 3], usize),
        samples: impl Into<Samples>,
        spare: impl FnOnce() -> io::Result<File>,
    ) -> Result<Self, ReadError> {
        super::check_spacing(spacing)?;
        let samples = samples.into();
        let is_packed = !place.is_raw && begins_as_gzip(&mut file, from)?;
        let voxels: usize = size.iter().product();
        let sample_bytes = place.expected / (voxels * steps).max(1);
        let mut begins = from + place.before;
        if is_packed {
            let mut whole = spare().map_err(ReadError::Read)?;
            io::Seek::seek(&mut file, io::SeekFrom::Start(from)).map_err(ReadError::Read)?;
            let unpacked_bytes =
                io::copy(&mut unpacked(file)?, &mut whole).map_err(ReadError::Read)?;
            whole.flush().map_err(ReadError::Read)?;
            let expected = place.expected as u64;
            let found = unpacked_bytes.saturating_sub(place.before);
            if found < expected {
                let found = usize::try_from(found).unwrap_or(usize::MAX);
                return Err(ReadError::Short { expected: place.expected, found });
            }
            begins = if place.may_be_more { unpacked_bytes - expected } else { place.before };
            if !place.may_be_more {
                check_extra(place.expected, found - expected)?;
            }
            file = whole;
        } else {
            DataPlace { is_raw: true, ..place }.check(&mut file, from)?;
        }
        Ok(Self { file, begins, size, spacing, steps, sample_bytes, samples })
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

    /// Volumes one after the other.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.steps
    }

    /// Bytes of a voxel as it is kept.
    #[must_use]
    pub fn voxel_bytes(&self) -> usize {
        match &self.samples {
            Samples::Plain { scalar: ScalarType::U8, .. } => 1,
            Samples::Plain { scalar: ScalarType::U16, .. } => 2,
            Samples::Nifti(boxes) => boxes.voxel_bytes(),
            Samples::Plain { .. } => 4,
        }
    }

    /// Reads a box of a step: so many voxels from `first` on.
    ///
    /// # Errors
    /// It cannot be read, or holds what is no voxel.
    ///
    /// # Panics
    /// It reaches beyond the volume.
    pub fn read(
        &self,
        step: usize,
        first: [usize; 3],
        size: [usize; 3],
    ) -> Result<Volume, ReadError> {
        let is_in = (0..3).all(|axis| first[axis] + size[axis] <= self.size[axis]);
        assert!(is_in && step < self.steps, "the box is in the volume");
        let row = size[0] * self.sample_bytes;
        // Rows that are whole lie one after the other.
        let rows = if size[0] == self.size[0] { size[1] } else { 1 };
        let mut bytes = vec![0; row * size[1] * size[2]];
        let mut pieces = bytes.chunks_exact_mut(row * rows);
        for z in first[2]..first[2] + size[2] {
            for y in (first[1]..first[1] + size[1]).step_by(rows) {
                let at = first[0] + self.size[0] * (y + self.size[1] * (z + self.size[2] * step));
                let piece = pieces.next().expect("one for each row");
                let from = self.begins + (at * self.sample_bytes) as u64;
                self.file.read_exact_at(piece, from).map_err(ReadError::Read)?;
            }
        }
        let voxels = match &self.samples {
            Samples::Plain { scalar, endian, missing } => {
                scalar.voxels(bytes, size, *endian, *missing)?.0
            }
            Samples::Nifti(boxes) => boxes.voxels(size, bytes)?,
        };
        Ok(Volume::new(size, self.spacing, voxels)?)
    }
}

impl From<(ScalarType, Endian, Option<f32>)> for Samples {
    fn from((scalar, endian, missing): (ScalarType, Endian, Option<f32>)) -> Self {
        Self::Plain { scalar, endian, missing }
    }
}
