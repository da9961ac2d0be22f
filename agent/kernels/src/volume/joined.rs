//! A volume out of its bricks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::file::{ReadError, open, read_brick};
use super::{Brick, Volume, Voxels};

/// What a specification calls the volume whose bricks are in its folder.
pub const BRICKS: &str = "bricks.nrrd";
/// What names of files of bricks begin and end with.
const BRICK_NAME: (&str, &str) = ("brick-", ".nrrd");

/// The files of bricks in a folder, in order of their names.
///
/// # Errors
/// It cannot be read.
pub fn brick_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (start, end) = BRICK_NAME;
    let mut files = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name.starts_with(start) && name.ends_with(end) {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads bricks, one after the other, and puts them together.
///
/// # Errors
/// One cannot be read, they are of different volumes, or some are missing.
pub fn read_bricks(files: &[PathBuf]) -> Result<Volume, ReadError> {
    let mut joined: Option<Joined> = None;
    for path in files {
        let brick = read_brick(io::BufReader::new(open(path)?))?;
        match &mut joined {
            Some(joined) => joined.put(&brick)?,
            none => none.insert(Joined::like(&brick)?).put(&brick)?,
        }
    }
    let joined = joined.ok_or_else(|| ReadError::header("there are no bricks"))?;
    joined.finish()
}

struct Joined {
    size: [usize; 3],
    spacing: [f64; 3],
    voxels: Voxels,
    /// Cells that bricks have brought.
    cells: usize,
}

impl Joined {
    /// Room for the volume of a brick.
    fn like(brick: &Brick) -> Result<Self, ReadError> {
        let size = brick.whole_size();
        let count = size.iter().try_fold(1_usize, |all, side| all.checked_mul(*side));
        let count = count.ok_or_else(|| ReadError::header("its volume is too large"))?;
        let voxels = match brick.voxels().voxels() {
            Voxels::U8(_) => Voxels::U8(vec![0; count]),
            Voxels::U16(_) => Voxels::U16(vec![0; count]),
            Voxels::F32(_) => Voxels::F32(vec![0.0; count]),
        };
        Ok(Self { size, spacing: brick.voxels().spacing(), voxels, cells: 0 })
    }

    fn put(&mut self, brick: &Brick) -> Result<(), ReadError> {
        let other = || ReadError::header("its bricks are of different volumes");
        if brick.whole_size() != self.size || brick.voxels().spacing() != self.spacing {
            return Err(other());
        }
        let (whole, first, size) = (self.size, brick.first(), brick.voxels().size());
        match (&mut self.voxels, brick.voxels().voxels()) {
            (Voxels::U8(into), Voxels::U8(from)) => copy(into, whole, from, first, size),
            (Voxels::U16(into), Voxels::U16(from)) => copy(into, whole, from, first, size),
            (Voxels::F32(into), Voxels::F32(from)) => copy(into, whole, from, first, size),
            _ => return Err(other()),
        }
        self.cells += brick.cells().iter().map(ExactSizeIterator::len).product::<usize>();
        Ok(())
    }

    fn finish(self) -> Result<Volume, ReadError> {
        let cells: usize = self.size.iter().map(|side| side - 1).product();
        if self.cells != cells {
            let found = self.cells;
            return Err(ReadError::header(format!("bricks have {found} of {cells} cells")));
        }
        Ok(Volume::new(self.size, self.spacing, self.voxels)?)
    }
}

fn copy<T: Copy>(
    into: &mut [T],
    whole: [usize; 3],
    from: &[T],
    first: [usize; 3],
    size: [usize; 3],
) {
    for (row, voxels) in from.chunks_exact(size[0]).enumerate() {
        let (y, z) = (first[1] + row % size[1], first[2] + row / size[1]);
        let at = first[0] + whole[0] * (y + whole[1] * z);
        into[at..at + size[0]].copy_from_slice(voxels);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::brick_file::{BrickPlace, write_nrrd};
    use super::*;

    #[test]
    fn a_volume_comes_back_out_of_its_bricks_and_not_out_of_some() {
        let voxels = (0..9 * 7 * 5).map(|at| at as f32 / 3.0).collect();
        let volume = Volume::new([9, 7, 5], [0.5, 1.0, 2.0], Voxels::F32(voxels)).expect("one");
        let folder = tempfile::tempdir().expect("a folder");
        for (at, brick) in Brick::cut(&volume, [2, 2, 1]).iter().enumerate() {
            let (whole, cells) = (brick.whole_size(), brick.cells().clone());
            let place = BrickPlace { whole, cells, step: None };
            let file = File::create(folder.path().join(format!("brick-{at:06}.nrrd")));
            write_nrrd(brick.voxels(), Some(&place), file.expect("made")).expect("written");
        }
        let files = brick_files(folder.path()).expect("listed");
        assert_eq!(read_bricks(&files).expect("whole"), volume);
        let told = read_bricks(&files[1..]).expect_err("one is missing").to_string();
        assert!(told.contains("of 192 cells"), "{told}");
        assert!(read_bricks(&[]).is_err());
    }
}
