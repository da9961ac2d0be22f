//! Bricks in files: NRRD as any program reads it, with the brick's place in remarks of its header.
//!
//! ```text
//! gleaner whole:=512 512 300      voxels of the whole volume along x, y, z
//! gleaner from:=0 252 0           the brick's first cell
//! gleaner to:=252 504 252         the cell after its last one
//! gleaner step:=7                 of which step of time, where there are several
//! ```

use std::io::Write;
use std::ops::Range;

use super::file::ReadError;
use super::{Brick, Volume, Voxels};
use crate::limits::WHOLE_VOXELS_MAX;

/// What the remarks of a brick's header begin with.
const REMARK: &[u8] = b"gleaner ";

/// Which cells of which volume a brick is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrickPlace {
    pub(crate) whole: [usize; 3],
    pub(crate) cells: [Range<usize>; 3],
    /// Of which step, where there are several.
    pub(crate) step: Option<u32>,
}

/// Numbers of a brick's header, as far as they were read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BrickRemarks {
    whole: Option<[usize; 3]>,
    from: Option<[usize; 3]>,
    to: Option<[usize; 3]>,
    step: Option<u32>,
}

impl BrickRemarks {
    /// Takes a remark of a header, if it is one of these.
    pub(super) fn take(&mut self, line: &str) -> Result<(), ReadError> {
        let Some(line) = line.as_bytes().strip_prefix(REMARK).and(line.get(REMARK.len()..)) else {
            return Ok(());
        };
        let Some((key, value)) = line.split_once(":=") else { return Ok(()) };
        let into = match key {
            "whole" => &mut self.whole,
            "from" => &mut self.from,
            "to" => &mut self.to,
            "step" => {
                let wrong = || ReadError::header("gleaner step: a whole number is expected");
                self.step = Some(value.trim().parse().map_err(|_| wrong())?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let numbers: Option<Vec<usize>> =
            value.split_whitespace().map(|number| number.parse().ok()).collect();
        let numbers = numbers.and_then(|numbers| <[usize; 3]>::try_from(numbers).ok());
        let wrong =
            || ReadError::header(format!("gleaner {key}: three whole numbers are expected"));
        *into = Some(numbers.ok_or_else(wrong)?);
        Ok(())
    }

    /// The place of a brick of `size` voxels; none where nothing was said of one.
    pub(super) fn place(&self, size: [usize; 3]) -> Result<Option<BrickPlace>, ReadError> {
        let (Some(whole), Some(from), Some(to)) = (self.whole, self.from, self.to) else {
            return Ok(None);
        };
        let cells = [0, 1, 2].map(|axis| from[axis]..to[axis]);
        let voxels = whole
            .iter()
            .try_fold(1_u64, |product, side| product.checked_mul(u64::try_from(*side).ok()?));
        let is_volume = voxels.is_some_and(|count| (1..=WHOLE_VOXELS_MAX).contains(&count));
        let is_in = |axis: usize| from[axis] <= to[axis] && to[axis] < whole[axis];
        let is_brick = is_volume && (0..3).all(is_in) && Brick::sides(whole, &cells) == size;
        if is_brick {
            return Ok(Some(BrickPlace { whole, cells, step: self.step }));
        }
        Err(ReadError::header(format!(
            "its remarks of gleaner are of another brick: {from:?} to {to:?} of {whole:?} with \
             {size:?} voxels"
        )))
    }
}

/// Writes a volume as NRRD file; `place` is that of a brick.
///
/// # Errors
/// `file` cannot be written.
pub(crate) fn write_nrrd(
    volume: &Volume,
    place: Option<&BrickPlace>,
    mut file: impl Write,
) -> std::io::Result<()> {
    let scalar = match volume.voxels() {
        Voxels::U8(_) => "uint8",
        Voxels::U16(_) => "uint16",
        Voxels::F32(_) => "float",
    };
    let ([x, y, z], [dx, dy, dz]) = (volume.size(), volume.spacing());
    writeln!(file, "NRRD0005\ntype: {scalar}\ndimension: 3\nsizes: {x} {y} {z}")?;
    writeln!(file, "spacings: {dx:?} {dy:?} {dz:?}\nendian: little\nencoding: raw")?;
    if let Some(BrickPlace { whole, cells, step }) = place {
        let spacing = volume.spacing();
        let mins = [0, 1, 2].map(|axis| cells[axis].start.saturating_sub(1) as f64 * spacing[axis]);
        writeln!(file, "axis mins: {:?} {:?} {:?}", mins[0], mins[1], mins[2])?;
        let [a, b, c] = whole;
        writeln!(file, "gleaner whole:={a} {b} {c}")?;
        let [a, b, c] = cells;
        writeln!(file, "gleaner from:={} {} {}", a.start, b.start, c.start)?;
        writeln!(file, "gleaner to:={} {} {}", a.end, b.end, c.end)?;
        if let Some(step) = step {
            writeln!(file, "gleaner step:={step}")?;
        }
    }
    writeln!(file)?;
    match volume.voxels() {
        Voxels::U8(samples) => file.write_all(samples),
        Voxels::U16(samples) => write_each(samples, &mut file, u16::to_le_bytes),
        Voxels::F32(samples) => write_each(samples, &mut file, f32::to_le_bytes),
    }
}

fn write_each<T: Copy, const N: usize>(
    samples: &[T],
    file: &mut impl Write,
    bytes: impl Fn(T) -> [u8; N],
) -> std::io::Result<()> {
    let mut piece = Vec::with_capacity(PIECE_SAMPLES * N);
    for samples in samples.chunks(PIECE_SAMPLES) {
        piece.clear();
        piece.extend(samples.iter().flat_map(|sample| bytes(*sample)));
        file.write_all(&piece)?;
    }
    Ok(())
}

/// Samples that are converted at once.
const PIECE_SAMPLES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::nrrd::read_header;
    use super::super::read_nrrd;
    use super::*;

    #[test]
    fn a_brick_comes_back_with_its_place() {
        let voxels = (0..140).map(|at| at as f32 / 7.0).collect();
        let volume = Volume::new([7, 5, 4], [0.1, 2.0, 3.5], Voxels::F32(voxels));
        for brick in Brick::cut(&volume.expect("a volume"), [3, 2, 1]) {
            let (whole, cells) = (brick.whole_size(), brick.cells().clone());
            let place = BrickPlace { whole, cells, step: Some(7) };
            let mut file = Vec::new();
            write_nrrd(brick.voxels(), Some(&place), &mut file).expect("memory");
            let read = read_nrrd(&file[..]).expect("a volume");
            assert_eq!(&read, brick.voxels());
            let (header, _) = read_header(&mut &file[..]).expect("a header");
            assert_eq!(header.brick(), Some(&place));
            let again = Brick::placed(Arc::new(read), &place);
            assert_eq!((again.first(), again.cells()), (brick.first(), brick.cells()));
        }
    }

    #[test]
    fn a_brick_that_does_not_fit_its_volume_is_refused() {
        let header = |remarks: &str| {
            let text = format!(
                "NRRD0005\ntype: uint8\ndimension: 3\nsizes: 3 3 3\nencoding: raw\n{remarks}\n\n"
            );
            read_header(&mut text.as_bytes()).map(|(header, _)| header.brick().cloned())
        };
        let whole = "gleaner whole:=3 3 3\ngleaner from:=0 0 0\ngleaner to:=2 2 2";
        assert!(header(whole).expect("a header").is_some());
        assert!(header("gleaner whole:=3 3 3").expect("a header").is_none());
        for (from, to) in [
            ("whole:=3 3 3", "whole:=9 3 3"),
            ("whole:=3 3 3", "whole:=0 3 3"),
            ("whole:=3 3 3", "whole:=18446744073709551615 3 3"),
            ("to:=2 2 2", "to:=3 2 2"),
            ("from:=0 0 0", "from:=2 0 0"),
            ("from:=0 0 0", "from:=0 0"),
        ] {
            let told = header(&whole.replace(from, to)).expect_err(to).to_string();
            assert!(told.contains("gleaner"), "{told}");
        }
    }
}
