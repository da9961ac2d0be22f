//! From voxels to triangles, row by row of cells.

use thiserror::Error;

use super::cases::CASES;
use super::mesh::{Mesh, MeshError};
use crate::plan::{Plan, Slice};
use crate::volume::{Brick, Voxel, with_voxels};

/// Makes the surface of one value in a brick. Its units are rows of cells along x.
#[derive(Debug)]
pub struct IsosurfacePlan {
    brick: Brick,
    value: f32,
    /// Cells along x, y, z.
    cells: [usize; 3],
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
        let layer = || vec![NONE; 3 * (cells[0] + 1) * (cells[1] + 1)];
        let vertices = [layer(), layer()];
        Ok(Box::new(Self { brick, value, cells, vertices, mesh: Mesh::default() }))
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
        let Self { brick, value, cells, vertices, mesh } = self;
        with_voxels!(brick.voxels().voxels(), samples => {
            let mut rows = Rows { brick, samples, value: *value, cells: *cells, vertices, mesh };
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
        // The brick's first cell, in voxels of the whole volume and in those that it holds.
        let start = [0, 1, 2].map(|axis| self.brick.cells()[axis].start);
        let rim = [0, 1, 2].map(|axis| start[axis] - self.brick.first()[axis]);
        let held = self.brick.voxels().size();
        let row_at = |dy: usize, dz: usize| {
            rim[0] + held[0] * ((y + dy + rim[1]) + held[1] * (z + dz + rim[2]))
        };
        let count = self.cells[0] + 1;
        let rows = [row_at(0, 0), row_at(1, 0), row_at(0, 1), row_at(1, 1)];
        let samples = self.samples;
        let rows = rows.map(|row| &samples[row..row + count]);
        let column = |x: usize| {
            let inside = |row: usize| u8::from(rows[row][x].value() >= self.value);
            inside(0) | inside(1) << 2 | inside(2) << 4 | inside(3) << 6
        };
        let mut before = column(0);
        for x in 0..self.cells[0] {
            let after = column(x + 1);
            let case = before | after << 1;
            before = after;
            if case == 0 || case == 0xff {
                continue;
            }
            for triangle in &CASES[usize::from(case)] {
                let mut corners = [0; 3];
                for (corner, edge) in corners.iter_mut().zip(triangle) {
                    let bit = |axis: u8| usize::from(edge.corner >> axis & 1);
                    let voxel = [x + bit(0), y + bit(1), z + bit(2)];
                    let axis = usize::from(edge.axis);
                    let slot = 3 * (voxel[0] + count * voxel[1]) + axis;
                    let layer = voxel[2] % 2;
                    let known = self.vertices[layer][slot];
                    *corner = if known == NONE {
                        let place = [0, 1, 2].map(|axis| voxel[axis] + start[axis]);
                        let vertex = push_vertex(
                            self.mesh,
                            self.brick,
                            self.samples,
                            self.value,
                            place,
                            axis,
                        )?;
                        self.vertices[layer][slot] = vertex;
                        vertex
                    } else {
                        known
                    };
                }
                self.mesh.triangles.push(corners);
            }
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
