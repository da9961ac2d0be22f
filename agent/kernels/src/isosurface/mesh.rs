//! Triangles that share vertices.

use std::collections::HashMap;

use thiserror::Error;

use crate::limits::MESH_VERTICES_MAX;

/// Triangles that share vertices.
///
/// # Invariants
/// There are as many normals and edges as positions, and triangles name positions that are there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mesh {
    pub(super) positions: Vec<[f32; 3]>,
    pub(super) normals: Vec<[f32; 3]>,
    pub(super) triangles: Vec<[u32; 3]>,
    /// The edge of the volume's grid that each vertex is on.
    pub(super) edges: Vec<u64>,
}

/// Why there is no mesh or no file of it.
#[derive(Debug, Error)]
pub enum MeshError {
    /// More vertices than one mesh may have.
    #[error(
        "a mesh of more than {MESH_VERTICES_MAX} vertices: crop the volume, or leave out voxels"
    )]
    TooLarge,
    /// Less memory than it needs.
    #[error(
        "no memory is left after {vertices} vertices: give it more, crop the volume, or leave out voxels"
    )]
    Memory {
        /// How many there were.
        vertices: usize,
    },
    /// The file cannot be written.
    #[error("write a mesh: {0}")]
    Write(#[from] std::io::Error),
    /// A file that is no mesh of a brick.
    #[error("this is no mesh of a brick: {0}")]
    NoPart(String),
}

/// One mesh out of those of one volume's bricks, as they come.
#[derive(Debug, Default)]
pub struct JoinedMesh {
    whole: Mesh,
    /// Vertices by their edges.
    places: HashMap<u64, u32>,
}

impl JoinedMesh {
    /// Adds the mesh of a brick.
    ///
    /// # Errors
    /// There would be too many vertices.
    pub fn add(&mut self, part: &Mesh) -> Result<(), MeshError> {
        let Self { whole, places } = self;
        let mut place_in_whole = Vec::with_capacity(part.edges.len());
        for (vertex, edge) in part.edges.iter().enumerate() {
            let place = match places.get(edge) {
                Some(place) => *place,
                None => {
                    let place = whole.push(part.positions[vertex], part.normals[vertex], *edge)?;
                    places.insert(*edge, place);
                    place
                }
            };
            place_in_whole.push(place);
        }
        whole.grow(0, part.triangles.len())?;
        let triangles = part.triangles.iter();
        whole
            .triangles
            .extend(triangles.map(|corners| corners.map(|at| place_in_whole[at as usize])));
        Ok(())
    }

    /// All that was added.
    #[must_use]
    pub const fn whole(&self) -> &Mesh {
        &self.whole
    }
}

impl Mesh {
    /// Where the vertices are, in the unit of the volume's spacing.
    #[must_use]
    pub fn positions(&self) -> &[[f32; 3]] {
        &self.positions
    }

    /// Where the surface faces at each vertex: towards smaller values. Of length one.
    #[must_use]
    pub fn normals(&self) -> &[[f32; 3]] {
        &self.normals
    }

    /// Vertices of each triangle, counter-clockwise as seen from where its normals point.
    #[must_use]
    pub fn triangles(&self) -> &[[u32; 3]] {
        &self.triangles
    }

    /// One mesh out of those of one volume's bricks: a vertex that several have is one.
    ///
    /// # Errors
    /// It would have too many vertices.
    pub fn join(parts: &[Self]) -> Result<Self, MeshError> {
        let mut joined = JoinedMesh::default();
        parts.iter().try_for_each(|part| joined.add(part))?;
        Ok(joined.whole)
    }

    /// Adds a vertex and says which one it is.
    pub(super) fn push(
        &mut self,
        position: [f32; 3],
        normal: [f32; 3],
        edge: u64,
    ) -> Result<u32, MeshError> {
        let place = u32::try_from(self.positions.len()).unwrap_or(u32::MAX);
        if place >= MESH_VERTICES_MAX {
            return Err(MeshError::TooLarge);
        }
        self.grow(1, 0)?;
        self.positions.push(position);
        self.normals.push(normal);
        self.edges.push(edge);
        Ok(place)
    }

    /// Adds a triangle of vertices that are there.
    pub(super) fn push_triangle(&mut self, corners: [u32; 3]) -> Result<(), MeshError> {
        self.grow(0, 1)?;
        self.triangles.push(corners);
        Ok(())
    }

    /// Makes room for more: how many there will be nobody knows before.
    pub(super) fn grow(&mut self, vertices: usize, triangles: usize) -> Result<(), MeshError> {
        let Self { positions, normals, edges, .. } = self;
        let grown = positions
            .try_reserve(vertices)
            .and_then(|()| normals.try_reserve(vertices))
            .and_then(|()| edges.try_reserve(vertices))
            .and_then(|()| self.triangles.try_reserve(triangles));
        grown.map_err(|_| MeshError::Memory { vertices: self.positions.len() })
    }
}
