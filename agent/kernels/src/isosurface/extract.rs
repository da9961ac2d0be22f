//! From voxels to triangles, row by row of cells.

use thiserror::Error;

use super::cases::CASES;
use super::inside::Inside;
use super::mesh::{Mesh, MeshError};
#[cfg(feature = "gpu")]
use crate::gpu::GpuError;
use crate::memory::bytes_of;
use crate::plan::{Plan, Slice};
use crate::volume::{Brick, Voxel, with_voxels};

/// Makes the surface of one value in a brick. Its units are rows of cells along x.
#[derive(Debug)]
pub struct IsosurfacePlan {
    brick: Brick,
    value: f32,
    /// Cells along x, y, z.
    cells: [usize; 3],
    inside: Inside,
    /// Vertices on the edges that begin at the voxels of two neighbouring layers: three for each
    /// voxel, by axis. The layer of an even number comes first.
    vertices: [Vec<u32>; 2],
    mesh: Mesh,
}

/// Why there is no surface.
#[derive(Debug, Error)]
pub enum IsosurfaceError {
    /// A value that is none.
    #[error("isosurface of {0}: give a finite value")]
    Value(f32),
    /// Something with the mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// Something with the GPU.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Device(#[from] GpuError),
}

/// Not a vertex.
const NONE: u32 = u32::MAX;

impl IsosurfacePlan {
    /// Gets ready to make the surface of `value`.
    ///
    /// # Errors
    /// The value is not finite.
    pub fn new(brick: Brick, value: f32) -> Result<Box<Self>, IsosurfaceError> {
        if !value.is_finite() {
            return Err(IsosurfaceError::Value(value));
        }
        let cells = [0, 1, 2].map(|axis| brick.cells()[axis].len());
        let [width, height] = layer(cells);
        let edges = || vec![NONE; 3 * width * height];
        let vertices = [edges(), edges()];
        let inside = Inside::new(width, height);
        Ok(Box::new(Self { brick, value, cells, inside, vertices, mesh: Mesh::default() }))
    }

    /// Bytes of memory that it takes at least for so many cells along x, y, z, beside the mesh.
    pub(crate) fn bytes(cells: [usize; 3]) -> u64 {
        let [width, height] = layer(cells);
        bytes_of(&[2, 3 * size_of::<u32>() + Inside::VOXEL_BYTES, width, height])
    }
}

/// Voxels along x and y of the layers that are known at once: none where there is nothing to cut.
const fn layer(cells: [usize; 3]) -> [usize; 2] {
    match cells {
        [0, _, _] | [_, 0, _] | [_, _, 0] => [0; 2],
        [x, y, _] => [x + 1, y + 1],
    }
}

impl Plan for IsosurfacePlan {
    type Output = Mesh;
    type Error = MeshError;

    fn units(&self) -> u64 {
        // A sheet of voxels has no cells.
        if self.cells[0] == 0 { 0 } else { (self.cells[1] * self.cells[2]) as u64 }
    }

    fn run(&mut self, slice: &Slice) -> Result<(), MeshError> {
        let Self { brick, value, cells, inside, vertices, mesh } = self;
        let (value, cells) = (*value, *cells);
        with_voxels!(brick.voxels().voxels(), samples => {
            let mut rows = Rows { brick, samples, value, cells, inside, vertices, mesh };
            for unit in slice.units() {
                let unit = usize::try_from(unit).unwrap_or(usize::MAX);
                rows.cut(unit % cells[1], unit / cells[1])?;
            }
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Mesh, MeshError> {
        Ok(self.mesh)
    }
}

/// What a row of cells is cut with.
struct Rows<'a, T> {
    brick: &'a Brick,
    samples: &'a [T],
    value: f32,
    cells: [usize; 3],
    inside: &'a mut Inside,
    vertices: &'a mut [Vec<u32>; 2],
    mesh: &'a mut Mesh,
}

impl<T: Voxel> Rows<'_, T> {
    /// Cuts the row at `y` and `z`, counted in the brick's own cells.
    fn cut(&mut self, y: usize, z: usize) -> Result<(), MeshError> {
        if y == 0 {
            // The layer that is new.
            self.vertices[(z + 1) % 2].fill(NONE);
        }
        self.look(y, z);
        self.inside.gather(y, z);
        let mut from = 0;
        while let Some((x, case)) = self.inside.next(from) {
            self.fill([x, y, z], case)?;
            from = x + 1;
        }
        Ok(())
    }

    /// Looks at the rows of voxels around a row of cells that none of those before had around it.
    fn look(&mut self, y: usize, z: usize) {
        // The brick's first cell, in the voxels that it holds.
        let rim = [0, 1, 2].map(|axis| self.brick.cells()[axis].start - self.brick.first()[axis]);
        let held = self.brick.voxels().size();
        for layer in if z == 0 { 0..2 } else { z + 1..z + 2 } {
            for row in if y == 0 { 0..2 } else { y + 1..y + 2 } {
                let first = rim[0] + held[0] * ((row + rim[1]) + held[1] * (layer + rim[2]));
                let voxels = &self.samples[first..first + self.cells[0] + 1];
                self.inside.look(row, layer, voxels, self.value);
            }
        }
    }

    /// Makes the triangles of a cell.
    fn fill(&mut self, cell: [usize; 3], case: u8) -> Result<(), MeshError> {
        let count = self.cells[0] + 1;
        for triangle in &CASES[usize::from(case)] {
            let mut corners = [0; 3];
            for (corner, edge) in corners.iter_mut().zip(triangle) {
                let bit = |axis: usize| usize::from(edge.corner >> axis & 1);
                let voxel = [0, 1, 2].map(|axis| cell[axis] + bit(axis));
                let axis = usize::from(edge.axis);
                let slot = 3 * (voxel[0] + count * voxel[1]) + axis;
                let layer = voxel[2] % 2;
                let known = self.vertices[layer][slot];
                *corner = if known == NONE {
                    let start = [0, 1, 2].map(|axis| self.brick.cells()[axis].start);
                    let place = [0, 1, 2].map(|axis| voxel[axis] + start[axis]);
                    let Self { mesh, brick, samples, value, .. } = self;
                    let vertex = push_vertex(mesh, brick, samples, *value, place, axis)?;
                    self.vertices[layer][slot] = vertex;
                    vertex
                } else {
                    known
                };
            }
            self.mesh.push_triangle(corners)?;
        }
        Ok(())
    }
}

/// Adds the vertex on the edge that leads from a voxel of the whole volume along an axis.
fn push_vertex<T: Voxel>(
    mesh: &mut Mesh,
    brick: &Brick,
    samples: &[T],
    value: f32,
    from: [usize; 3],
    axis: usize,
) -> Result<u32, MeshError> {
    let (whole, first, held) = (brick.whole_size(), brick.first(), brick.voxels().size());
    let spacing = brick.voxels().spacing();
    let sample = |[x, y, z]: [usize; 3]| {
        let at = (x - first[0]) + held[0] * ((y - first[1]) + held[1] * (z - first[2]));
        f64::from(samples[at].value())
    };
    // From differences over two voxels, or one at the volume's rim.
    let slope = |voxel: [usize; 3]| {
        [0, 1, 2].map(|axis| {
            let (mut low, mut high) = (voxel, voxel);
            low[axis] = low[axis].saturating_sub(1);
            high[axis] = (high[axis] + 1).min(whole[axis] - 1);
            let way = (high[axis] - low[axis]) as f64 * spacing[axis];
            if way > 0.0 { (sample(high) - sample(low)) / way } else { 0.0 }
        })
    };
    let mut to = from;
    to[axis] += 1;
    let (low, high) = (sample(from), sample(to));
    // One is inside and the other is not, so they differ.
    let share = (f64::from(value) - low) / (high - low);
    let mut position = [0, 1, 2].map(|axis| from[axis] as f64);
    position[axis] += share;
    let position = [0, 1, 2].map(|axis| (position[axis] * spacing[axis]) as f32);
    let (at_low, at_high) = (slope(from), slope(to));
    let slope = [0, 1, 2].map(|axis| at_low[axis] + share * (at_high[axis] - at_low[axis]));
    let length = slope.iter().map(|part| part * part).sum::<f64>().sqrt();
    let normal = if length > 0.0 {
        slope.map(|part| (-part / length) as f32)
    } else {
        // Slopes that cancel out; the edge itself leads downwards.
        let mut along = [0.0; 3];
        along[axis] = if low > high { 1.0 } else { -1.0 };
        along
    };
    let voxel =
        from[0] as u64 + whole[0] as u64 * (from[1] as u64 + whole[1] as u64 * from[2] as u64);
    mesh.push(position, normal, 3 * voxel + axis as u64)
}
