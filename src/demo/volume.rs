//! The data that is rendered: a density on a regular grid, from a file in this repository.

use std::io::{self, Read};

use flate2::read::GzDecoder;

use super::vector::Vec3;

/// Electron density of a protein. Source: pyvista/vtk-data, Apache-2.0 (`data/SOURCE.md`).
pub(super) const NEGHIP: &[u8] = include_bytes!("data/neghip_64x64x64_uint8.raw.gz");
/// Its voxels along each side.
pub(super) const NEGHIP_SIDE: usize = 64;

/// A density between 0 and 1 on a cubic grid.
#[derive(Debug)]
pub(super) struct Volume {
    side: usize,
    /// x fastest.
    density: Vec<f32>,
}

impl Volume {
    /// The volume that this program carries.
    pub(super) fn neghip() -> Self {
        Self::from_gzip(NEGHIP, NEGHIP_SIDE).expect("the embedded volume is whole")
    }

    /// Reads a cube of bytes.
    fn from_gzip(bytes: &[u8], side: usize) -> io::Result<Self> {
        let voxels = side * side * side;
        let mut raw = Vec::with_capacity(voxels);
        GzDecoder::new(bytes).take(voxels as u64 + 1).read_to_end(&mut raw)?;
        if raw.len() != voxels {
            let problem = format!("{} voxels where {voxels} should be", raw.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let density = raw.into_iter().map(|voxel| f32::from(voxel) / 255.0).collect();
        Ok(Self { side, density })
    }

    /// Voxels along each edge.
    pub(super) const fn side(&self) -> usize {
        self.side
    }

    /// The density at a point in voxels, by trilinear interpolation; 0 outside.
    pub(super) fn at(&self, point: Vec3) -> f32 {
        let last = (self.side - 1) as f32;
        let inside = |value: f32| (0.0..last).contains(&value);
        if !(inside(point.x) && inside(point.y) && inside(point.z)) {
            return 0.0;
        }
        // Inside the grid by the check above, so the casts only cut the fraction off.
        let (x, y, z) = (point.x as usize, point.y as usize, point.z as usize);
        let (fx, fy, fz) = (point.x - x as f32, point.y - y as f32, point.z - z as f32);
        let row = |y: usize, z: usize| {
            let index = (z * self.side + y) * self.side + x;
            let (near, far) = (self.density[index], self.density[index + 1]);
            near + (far - near) * fx
        };
        let slice = |z: usize| {
            let (near, far) = (row(y, z), row(y + 1, z));
            near + (far - near) * fy
        };
        let (near, far) = (slice(z), slice(z + 1));
        near + (far - near) * fz
    }

    /// How the density grows around a point, by central differences over one voxel.
    pub(super) fn gradient(&self, point: Vec3) -> Vec3 {
        let along = |step: Vec3| self.at(point + step) - self.at(point - step);
        Vec3::new(
            along(Vec3::new(1.0, 0.0, 0.0)),
            along(Vec3::new(0.0, 1.0, 0.0)),
            along(Vec3::new(0.0, 0.0, 1.0)),
        ) * 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_voxels_the_density_is_linear() {
        let volume = Volume { side: 2, density: vec![0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0] };
        assert_eq!(volume.at(Vec3::new(0.25, 0.5, 0.9)), 0.25);
        assert_eq!(volume.at(Vec3::new(1.5, 0.5, 0.5)), 0.0, "outside");
        assert_eq!(volume.at(Vec3::all(f32::NAN)), 0.0, "nowhere");
    }

    #[test]
    fn the_embedded_volume_is_the_published_one() {
        let volume = Volume::neghip();
        assert_eq!(volume.density.len(), 64 * 64 * 64);
        assert_eq!(volume.density.iter().copied().fold(0.0, f32::max), 1.0);
    }

    #[test]
    fn a_cut_file_is_refused() {
        assert!(Volume::from_gzip(&NEGHIP[..NEGHIP.len() / 2], NEGHIP_SIDE).is_err());
        let error = Volume::from_gzip(NEGHIP, NEGHIP_SIDE - 1).expect_err("too long");
        assert!(error.to_string().contains("250047 should be"), "{error}");
    }
}
