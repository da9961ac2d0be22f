//! Surfaces of one value, as meshes of triangles.
//!
//! Source: Lorensen, Cline: Marching Cubes: A High Resolution 3D Surface Construction Algorithm,
//! 1987.
//!
//! A voxel is inside where its value is at least the surface's. A vertex is on an edge of the grid
//! that leads from inside to outside, and belongs to all triangles around; its normal points to
//! smaller values. Where the corners of a face are inside and outside by turns, those inside are
//! kept apart, in both cells that share the face. A GPU makes the same mesh as a processor.
//!
//! # Invariants
//! Within the volume a mesh has no holes: each side of a triangle is that of one other, the other
//! way around, unless it is on the volume's rim. Meshes of bricks, [joined](Mesh::join), are the
//! mesh of the whole volume: vertices on the border of bricks are the same to the bit.

mod cases;
#[cfg(feature = "gpu")]
mod device;
mod extract;
mod extremes;
mod gltf_file;
mod inside;
mod mesh;
mod ply_file;

#[cfg(test)]
mod tests;

#[cfg(feature = "gpu")]
pub use device::DeviceIsosurfacePlan;
pub use extract::{IsosurfaceError, IsosurfacePlan};
pub(crate) use extremes::ExtremesPlan;
pub use gltf_file::write_glb;
pub use mesh::{JoinedMesh, Mesh, MeshError};
pub use ply_file::{read_ply_part, write_ply, write_ply_part};
