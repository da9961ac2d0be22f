//! Volumes cut into files of bricks, one at a time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::brick_file::{BrickPlace, write_nrrd};
use super::file::ReadError;
use super::source::VolumeSource;
use super::{Brick, Volume, Voxel, Voxels, with_voxels};

/// Voxels along each side that become one of the coarse volume.
pub(crate) const COARSE: usize = 8;
/// Voxels that a brick has beside its cells, along each side.
const RIM: usize = 3;
/// Shortest side of a brick, in cells.
const SIDE_MIN: usize = 8;

/// Cuts a volume, or several of one size, into bricks.
///
/// Its memory is that of one brick, and of the coarse volume.
#[derive(Debug)]
pub struct Cutter {
    source: VolumeSource,
    cells: Vec<[Range<usize>; 3]>,
    counts: [usize; 3],
    /// Sums of the voxels of the step that is being cut.
    coarse: Coarse,
}

/// A brick as a file.
#[derive(Debug, Clone, PartialEq)]
pub struct BrickFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// The smallest and the largest value in it.
    pub bounds: [f32; 2],
}

#[derive(Debug)]
struct Coarse {
    size: [usize; 3],
    sums: Vec<f64>,
}

impl Cutter {
    /// Opens a file whose bricks are to have at most about so many bytes.
    ///
    /// # Errors
    /// As [`VolumeSource::open`].
    pub fn open(
        path: &Path,
        brick_bytes: usize,
        spare: impl FnOnce() -> io::Result<File>,
    ) -> Result<Self, ReadError> {
        let source = VolumeSource::open(path, spare)?;
        let whole = source.size();
        let voxels = (brick_bytes / source.voxel_bytes()) as f64;
        let side = (voxels.cbrt().floor() as usize).saturating_sub(RIM).max(SIDE_MIN);
        let counts = whole.map(|voxels| (voxels - 1).div_ceil(side).max(1));
        let cells = Brick::shares(whole, counts);
        let size = whole.map(|side| side.div_ceil(COARSE));
        let sums = vec![0.0; size.iter().product()];
        Ok(Self { source, cells, counts, coarse: Coarse { size, sums } })
    }

    /// Voxels of a step along x, y, z.
    #[must_use]
    pub const fn size(&self) -> [usize; 3] {
        self.source.size()
    }

    /// Distance of voxels along x, y, z.
    #[must_use]
    pub const fn spacing(&self) -> [f64; 3] {
        self.source.spacing()
    }

    /// Volumes in the file.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.source.steps()
    }

    /// Bricks along x, y, z.
    #[must_use]
    pub const fn counts(&self) -> [usize; 3] {
        self.counts
    }

    /// Bricks of a step.
    #[must_use]
    pub fn bricks(&self) -> usize {
        self.cells.len()
    }

    /// A brick of a step of the file, which is `named` so where there are several. Each is cut once, and the step's [coarse volume](Self::coarse) after them.
    ///
    /// # Errors
    /// It cannot be read, or holds what is no voxel.
    pub fn brick(
        &mut self,
        step: usize,
        index: usize,
        named: Option<u32>,
    ) -> Result<BrickFile, ReadError> {
        let (whole, cells) = (self.source.size(), self.cells[index].clone());
        let first = [0, 1, 2].map(|axis| cells[axis].start.saturating_sub(1));
        let voxels = self.source.read(step, first, Brick::sides(whole, &cells))?;
        self.coarse.add(&voxels, first, own(whole, &cells));
        Ok(file(&voxels, Some(&BrickPlace { whole, cells, step: named })))
    }

    /// The coarse volume of the step whose bricks were cut: means of eight voxels a side.
    ///
    /// # Errors
    /// It is no volume.
    pub fn coarse(&mut self) -> Result<BrickFile, ReadError> {
        let (whole, size) = (self.source.size(), self.coarse.size);
        let mut means = Vec::with_capacity(self.coarse.sums.len());
        for (at, sum) in self.coarse.sums.iter_mut().enumerate() {
            let place = super::place(at, size);
            let each = |axis: usize| (whole[axis] - place[axis] * COARSE).min(COARSE);
            let count: usize = (0..3).map(each).product();
            means.push((*sum / count as f64) as f32);
            *sum = 0.0;
        }
        let spacing = self.source.spacing().map(|spacing| spacing * COARSE as f64);
        let volume = Volume::new(size, spacing, Voxels::F32(means))?;
        Ok(file(&volume, None))
    }
}

/// The voxels that no other brick counts: those at which its cells begin, and the volume's last ones.
fn own(whole: [usize; 3], cells: &[Range<usize>; 3]) -> [Range<usize>; 3] {
    [0, 1, 2].map(|axis| {
        let Range { start, end } = cells[axis];
        start..if end + 1 == whole[axis] { whole[axis] } else { end }
    })
}

impl Coarse {
    fn add(&mut self, voxels: &Volume, first: [usize; 3], own: [Range<usize>; 3]) {
        let held = voxels.size();
        with_voxels!(voxels.voxels(), samples => {
            for z in own[2].clone() {
                for y in own[1].clone() {
                    let row = held[0] * ((y - first[1]) + held[1] * (z - first[2]));
                    let into = self.size[0] * (y / COARSE + self.size[1] * (z / COARSE));
                    for x in own[0].clone() {
                        let value = samples[row + x - first[0]].value();
                        self.sums[into + x / COARSE] += f64::from(value);
                    }
                }
            }
        });
    }
}

fn file(volume: &Volume, place: Option<&BrickPlace>) -> BrickFile {
    let mut bytes = Vec::new();
    write_nrrd(volume, place, &mut bytes).expect("memory can be written");
    let (low, high) = volume.range();
    BrickFile { bytes, bounds: [low, high] }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::{read_nrrd, read_volume};
    use super::*;

    fn spare() -> io::Result<File> {
        tempfile::tempfile()
    }

    /// A file of a volume of big shorts whose sides are no multiples of anything.
    fn sample(folder: &Path, packed: bool) -> std::path::PathBuf {
        let size = [37, 29, 23];
        let samples = (0..37 * 29 * 23_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u16);
        let data: Vec<u8> = samples.flat_map(u16::to_be_bytes).collect();
        let encoding = if packed { "gzip" } else { "raw" };
        let header = format!(
            "NRRD0004\ntype: uint16\ndimension: 3\nsizes: {} {} {}\nspacings: 0.5 1 2\nendian: big\n\
             encoding: {encoding}\n\n",
            size[0], size[1], size[2]
        );
        let path = folder.join("volume.nrrd");
        let mut file = header.into_bytes();
        if packed {
            let mut encoder = GzEncoder::new(&mut file, Compression::fast());
            encoder.write_all(&data).and_then(|()| encoder.finish().map(drop)).expect("memory");
        } else {
            file.extend(data);
        }
        fs::write(&path, file).expect("written");
        path
    }

    #[test]
    fn bricks_of_a_file_are_those_of_its_volume() {
        let folder = tempfile::tempdir().expect("a folder");
        for packed in [false, true] {
            let path = sample(folder.path(), packed);
            let whole = read_volume(&path).expect("a volume");
            let mut cutter = Cutter::open(&path, 2 * 14 * 14 * 14, spare).expect("opened");
            assert_eq!(cutter.counts(), [4, 3, 2]);
            let expected = Brick::cut(&whole, cutter.counts());
            assert_eq!(cutter.bricks(), expected.len());
            for (index, expected) in expected.iter().enumerate() {
                let BrickFile { bytes, bounds } = cutter.brick(0, index, None).expect("cut");
                let read = read_nrrd(&bytes[..]).expect("a volume");
                assert_eq!(&read, expected.voxels());
                assert_eq!(bounds, <[f32; 2]>::from(read.range()));
            }
            let coarse = cutter.coarse().expect("a volume");
            let coarse = read_nrrd(&coarse.bytes[..]).expect("a volume");
            assert_eq!((coarse.size(), coarse.spacing()), ([5, 4, 3], [4.0, 8.0, 16.0]));
            let mean = |from: [usize; 3], to: [usize; 3]| {
                let mut sum = (0.0, 0.0);
                for z in from[2]..to[2] {
                    for y in from[1]..to[1] {
                        for x in from[0]..to[0] {
                            sum = (sum.0 + f64::from(whole.at([x, y, z])), sum.1 + 1.0);
                        }
                    }
                }
                (sum.0 / sum.1) as f32
            };
            assert_eq!(coarse.at([0, 0, 0]), mean([0; 3], [8; 3]));
            assert_eq!(coarse.at([4, 3, 2]), mean([32, 24, 16], [37, 29, 23]));
        }
    }

    #[test]
    fn a_file_that_is_short_is_told_before_it_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        for packed in [false, true] {
            let path = sample(folder.path(), packed);
            let text = fs::read(&path).expect("read");
            let at = text.windows(11).position(|part| part == b"sizes: 37 2").expect("there");
            let mut long = text.clone();
            long[at + 7] = b'5';
            fs::write(&path, long).expect("written");
            let told = Cutter::open(&path, 1 << 20, spare).expect_err("short").to_string();
            assert!(told.contains("it ends after"), "{told}");
        }
    }

    #[test]
    fn a_small_volume_is_one_brick() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = sample(folder.path(), false);
        let mut cutter = Cutter::open(&path, 16 << 20, spare).expect("opened");
        assert_eq!(cutter.bricks(), 1);
        let whole = Brick::whole(Arc::new(read_volume(&path).expect("a volume")));
        let brick = read_nrrd(&cutter.brick(0, 0, None).expect("cut").bytes[..]).expect("a volume");
        assert_eq!(&brick, whole.voxels());
    }
}
