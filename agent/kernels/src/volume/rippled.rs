//! A volume to try things with.

use std::io::{self, Write};

use super::{Volume, VolumeError, Voxels, brick_file};

impl Volume {
    /// A bell with ripples, of `side` voxels along each axis; its bytes fall from the middle.
    ///
    /// # Errors
    /// It would have fewer than two voxels along a side, or too many in all.
    pub fn rippled(side: usize) -> Result<Self, VolumeError> {
        if side < 2 {
            return Err(VolumeError::Empty([side; 3]));
        }
        super::voxel_count([side; 3])?;
        // Both are products of what depends on one axis.
        let axis: Vec<[f64; 2]> = (0..side)
            .map(|index| 2.0 * index as f64 / (side - 1) as f64 - 1.0)
            .map(|at| [libm::exp(-3.0 * at * at), libm::cos(12.0 * at)])
            .collect();
        let mut voxels = Vec::with_capacity(side * side * side);
        for z in &axis {
            for y in &axis {
                let [bell, wave] = [0, 1].map(|of| z[of] * y[of]);
                let row = axis.iter().map(|x| 255.0 * bell * x[0] * (0.8 + 0.2 * wave * x[1]));
                voxels.extend(row.map(|value| value as u8));
            }
        }
        Self::new([side; 3], [1.0; 3], Voxels::U8(voxels))
    }

    /// Writes it as NRRD file, its samples as they are.
    ///
    /// # Errors
    /// `file` cannot be written.
    pub fn write_nrrd(&self, mut file: impl Write) -> io::Result<()> {
        brick_file::write_nrrd(self, None, &mut file)?;
        file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_nrrd;
    use super::*;

    #[test]
    fn a_volume_is_read_back_as_it_was_written() {
        let volumes = [
            Volume::rippled(7).expect("a volume"),
            Volume::new([2, 1, 1], [0.5, 1.0, 2.0], Voxels::U16(vec![1, 65_535])).expect("one"),
            Volume::new([1, 2, 1], [1.0; 3], Voxels::F32(vec![-0.1, 3e30])).expect("one"),
        ];
        for volume in volumes {
            let mut file = Vec::new();
            volume.write_nrrd(&mut file).expect("memory");
            assert_eq!(read_nrrd(&file[..]).expect("a volume"), volume);
        }
        assert_eq!(Volume::rippled(1), Err(VolumeError::Empty([1; 3])));
    }
}
