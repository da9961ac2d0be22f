//! Volumes of one size, taken one after the other.

use std::io::Write;

use thiserror::Error;

use super::{Orientation, VolumeError, check_grid};
use crate::limits::NIFTI_SIDE_MAX;
use crate::pca::Matrix;

/// Volumes of one size.
///
/// # Invariants
/// There is one at least. Each has as many voxels as the sides say; the spacing is one that a
/// volume may have.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    size: [usize; 3],
    spacing: [f64; 3],
    orientation: Orientation,
    missing: usize,
    data: Matrix,
}

/// Why there is no series, or no file of it.
#[derive(Debug, Error)]
pub enum SeriesError {
    /// What it says is not a volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// More than the format can number.
    #[error("{volumes} volumes of {} x {} x {} voxels: NIfTI-1 has {NIFTI_SIDE_MAX} at most along each side", .size[0], .size[1], .size[2])]
    TooLarge {
        /// Voxels along x, y, z.
        size: [usize; 3],
        /// Volumes.
        volumes: usize,
    },
    /// The file cannot be written.
    #[error("write a series of volumes: {0}")]
    Write(#[from] std::io::Error),
}

impl Series {
    /// Volumes of `size` voxels, one in each row of `data`, x fastest.
    ///
    /// # Errors
    /// There is no row, a row has not as many numbers as the sides say, or the spacing is none.
    pub fn new(size: [usize; 3], spacing: [f64; 3], data: Matrix) -> Result<Self, VolumeError> {
        if data.rows() == 0 {
            return Err(VolumeError::NoVolume);
        }
        check_grid(size, spacing, data.columns())?;
        Ok(Self { size, spacing, orientation: Orientation::default(), missing: 0, data })
    }

    /// The same, with its voxels where `orientation` says.
    #[must_use]
    pub fn oriented(self, orientation: Orientation) -> Self {
        Self { orientation, ..self }
    }

    /// The same, of a file in which so many voxels are missing.
    pub(super) fn with_missing(self, missing: usize) -> Self {
        Self { missing, ..self }
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

    /// Where its voxels are.
    #[must_use]
    pub const fn orientation(&self) -> Orientation {
        self.orientation
    }

    /// How many voxels of each volume were missing in its file, and count as zero.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.missing
    }

    /// A volume in each row, x fastest.
    #[must_use]
    pub const fn data(&self) -> &Matrix {
        &self.data
    }

    /// The same, to be worked on.
    #[must_use]
    pub fn into_data(self) -> Matrix {
        self.data
    }

    /// Writes it as NIfTI-1 file of single-precision numbers, oriented as it is.
    ///
    /// # Errors
    /// There are more volumes or voxels along a side than the format can number, or `file` cannot
    /// be written.
    pub fn write_nifti(&self, mut file: impl Write) -> Result<(), SeriesError> {
        let (size, volumes) = (self.size, self.data.rows());
        let sides = [size[0], size[1], size[2], volumes].map(i16::try_from);
        let [Ok(x), Ok(y), Ok(z), Ok(count)] = sides else {
            return Err(SeriesError::TooLarge { size, volumes });
        };
        let mut header = [0; DATA_OFFSET];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &348_i32.to_le_bytes());
        let dimensions = if count == 1 { 3 } else { 4 };
        for (i, side) in [dimensions, x, y, z, count, 1, 1, 1].into_iter().enumerate() {
            put(40 + 2 * i, &side.to_le_bytes());
        }
        put(70, &FLOAT32.to_le_bytes());
        put(72, &32_i16.to_le_bytes());
        let [handedness, dx, dy, dz] = self.orientation.pixdim(self.spacing);
        for (i, spacing) in [handedness, dx, dy, dz, 1.0].into_iter().enumerate() {
            put(76 + 4 * i, &spacing.to_le_bytes());
        }
        put(108, &(DATA_OFFSET as f32).to_le_bytes());
        put(112, &1_f32.to_le_bytes());
        put(123, &[self.orientation.unit() | SECONDS]);
        put(Orientation::FIRST_BYTE, &self.orientation.bytes());
        put(344, b"n+1\0");
        file.write_all(&header)?;
        for row in 0..volumes {
            let samples = self.data.row(row).iter();
            let bytes: Vec<u8> =
                samples.flat_map(|number| (*number as f32).to_le_bytes()).collect();
            file.write_all(&bytes)?;
        }
        Ok(file.flush()?)
    }
}

/// Header, and four bytes that say that there is nothing more.
const DATA_OFFSET: usize = 352;
const FLOAT32: i16 = 16;
const SECONDS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::super::{read_nifti, read_nifti_series};
    use super::*;

    fn series(volumes: usize, numbers: Vec<f64>) -> Series {
        let data = Matrix::new(volumes, 6, numbers).expect("finite");
        Series::new([3, 1, 2], [2.0, 2.5, 3.0], data).expect("a series")
    }

    #[test]
    fn a_series_is_read_back_as_it_was_written() {
        let written = series(4, (0..24).map(|n| f64::from(n) / 4.0 - 2.0).collect());
        let mut file = Vec::new();
        written.write_nifti(&mut file).expect("memory");
        assert_eq!(read_nifti_series(&file[..]).expect("a series"), written);
        let told = read_nifti(&file[..]).expect_err("refused").to_string();
        assert!(told.contains("4 volumes"), "{told}");
        let mut file = Vec::new();
        series(1, vec![0.5; 6]).write_nifti(&mut file).expect("memory");
        let volume = read_nifti(&file[..]).expect("a volume");
        assert_eq!((volume.size(), volume.spacing()), ([3, 1, 2], [2.0, 2.5, 3.0]));
        assert_eq!(volume.at([2, 0, 1]), 0.5);
    }

    #[test]
    fn a_voxel_that_is_missing_in_all_volumes_is_zero_and_one_in_some_is_told() {
        let mut file = Vec::new();
        series(2, (0..12).map(f64::from).collect()).write_nifti(&mut file).expect("memory");
        let mut lose = |number: usize| {
            let at = DATA_OFFSET + 4 * number;
            file[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
            read_nifti_series(&file[..])
        };
        let told = lose(4).expect_err("refused").to_string();
        assert!(told.contains("(1, 0, 1)") && told.contains("1 of 2 volumes"), "{told}");
        let both = lose(10).expect("a series");
        assert_eq!((both.data().row(0)[4], both.data().row(1)[4]), (0.0, 0.0));
    }

    #[test]
    fn what_is_no_series_is_refused() {
        let data = |columns| Matrix::new(1, columns, vec![0.0; columns]).expect("finite");
        let count = VolumeError::Count { expected: 6, found: 5 };
        assert_eq!(Series::new([3, 1, 2], [1.0; 3], data(5)), Err(count));
        let flat = [1.0, -1.0, 1.0];
        assert_eq!(Series::new([3, 1, 2], flat, data(6)), Err(VolumeError::Spacing(flat)));
        let none = Matrix::new(0, 6, Vec::new()).expect("a matrix");
        assert_eq!(Series::new([3, 1, 2], [1.0; 3], none), Err(VolumeError::NoVolume));
        let long = Series::new([40_000, 1, 1], [1.0; 3], data(40_000)).expect("a series");
        let error = long.write_nifti(Vec::new());
        assert!(matches!(error, Err(SeriesError::TooLarge { .. })), "{error:?}");
    }
}
