//! Surfaces on a GPU.
//!
//! The mesh is the processor's, to the bit and in the same order. What decides where the surface goes
//! is whole numbers: voxels are compared by the order of their bits, and the number of a vertex is how
//! many there are before it, as the processor counts them. Positions and normals are computed in
//! double precision, made of whole numbers too, for a device's own numbers are rounded as it likes.
//!
//! ```text
//! Volume ──Slab, layers──► voxels ──inside.wgsl──► bits ──count.wgsl──► how many in each block
//!                            │                      │                          │ Tally
//!                            │                      └──────cut.wgsl◄───────────┤
//!                            └──────vertices.wgsl◄────── edges │               │
//!                                        └─► positions, normals└─► triangles ──┴─► Mesh
//! ```
//!
//! A volume that is too large for a device goes there slab by slab, of whole layers. Cells of the
//! layer before a slab's are counted once more with it: some of its vertices are theirs.
//!
//! # Invariants
//! A dispatch is waited for before the next one. Memory is asked for before any work is done: what is
//! sent and what comes back goes through buffers that are there for it.

mod cutter;
mod double;
mod piece;
mod plan;
mod room;
mod slab;
mod table;
mod tally;

#[cfg(test)]
mod tests;

pub use plan::DeviceIsosurfacePlan;
