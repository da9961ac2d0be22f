//! The surface of one value in a volume, on a GPU, slice by slice.

use std::ops::Range;
use std::sync::Arc;

use super::cutter::Cutter;
use super::room::{BLOCK, Room};
use super::slab::Slab;
use super::tally::Tally;
use crate::gpu::Gpu;
use crate::isosurface::extract::IsosurfaceError;
use crate::isosurface::mesh::{Mesh, MeshError};
use crate::limits::{
    DEVICE_COUNT_BLOCKS, DEVICE_LOOK_BLOCKS, DEVICE_VOXELS_BYTES, MESH_VERTICES_MAX,
};
use crate::plan::{Plan, Slice, Stretch, phases};
use crate::volume::{Volume, with_voxels};

/// Makes the surface of one value in a volume on a GPU. Its units are, for each slab, runs of voxels
/// that are sent there, runs of blocks that are looked at, others whose cells are counted, and as many
/// equal parts of what was counted as there are blocks, which come back.
#[derive(Debug)]
pub struct DeviceIsosurfacePlan {
    volume: Arc<Volume>,
    cutter: Cutter,
    slabs: Vec<Slab>,
    /// Units of each phase of each slab.
    lengths: Vec<usize>,
    /// Of the slab at hand.
    tally: Tally,
    mesh: Mesh,
}

/// Phases of a slab.
const PHASES: usize = 4;
const SENT: usize = 0;
const LOOKED_AT: usize = 1;
const COUNTED: usize = 2;

impl DeviceIsosurfacePlan {
    /// Gets ready to make the surface of `value`; none where the device holds fewer layers of such
    /// a volume than there have to be at once.
    ///
    /// # Errors
    /// The value is not finite; the device has no memory left for it, was lost, or refuses.
    pub fn new(
        gpu: Arc<Gpu>,
        volume: Arc<Volume>,
        value: f32,
    ) -> Result<Option<Box<Self>>, IsosurfaceError> {
        if !value.is_finite() {
            return Err(IsosurfaceError::Value(value));
        }
        let [width, height, layers] = volume.size();
        let held = Room::layers_max(&gpu, &volume).min(layers);
        // A sheet of voxels has no cells.
        let is_sheet = width < 2 || height < 2;
        let slabs = if is_sheet { Some(Vec::new()) } else { Slab::all(layers, held) };
        let Some(slabs) = slabs.filter(|_| held > 0) else { return Ok(None) };
        let cutter = Cutter::new(gpu, &volume, value, held)?;
        let bytes = voxel_bytes(&volume);
        let lengths = slabs.iter().flat_map(|slab| {
            let voxels = width * height * slab.voxels.len();
            let cells = (width * height * slab.cell_layers()).div_ceil(BLOCK);
            let sent = (voxels * bytes).div_ceil(DEVICE_VOXELS_BYTES);
            let looked_at = voxels.div_ceil(BLOCK).div_ceil(DEVICE_LOOK_BLOCKS);
            [sent, looked_at, cells.div_ceil(DEVICE_COUNT_BLOCKS), cells]
        });
        let (lengths, tally, mesh) = (lengths.collect(), Tally::default(), Mesh::default());
        Ok(Some(Box::new(Self { cutter, slabs, lengths, tally, mesh, volume })))
    }

    /// How many slabs there are.
    #[cfg(test)]
    pub(super) const fn slabs(&self) -> usize {
        self.slabs.len()
    }

    /// Sends runs of a slab's voxels.
    fn send(&self, slab: &Slab, runs: Range<usize>) -> Result<(), IsosurfaceError> {
        let [width, height, _] = self.volume.size();
        let layer = width * height;
        let all: &[u8] = with_voxels!(self.volume.voxels(), samples => {
            bytemuck::cast_slice(&samples[layer * slab.voxels.start..layer * slab.voxels.end])
        });
        let first = runs.start * DEVICE_VOXELS_BYTES;
        let end = (runs.end * DEVICE_VOXELS_BYTES).min(all.len());
        Ok(self.cutter.send(first, &all[first..end])?)
    }

    /// Looks at runs of a slab's blocks.
    fn look(&self, slab: &Slab, runs: Range<usize>) -> Result<(), IsosurfaceError> {
        let [width, height, _] = self.volume.size();
        let all = (width * height * slab.voxels.len()).div_ceil(BLOCK);
        Ok(self.cutter.look(slab, blocks(runs, DEVICE_LOOK_BLOCKS, all))?)
    }

    /// Counts what there is in runs of a slab's blocks.
    fn count(&mut self, slab: &Slab, runs: Range<usize>) -> Result<(), IsosurfaceError> {
        if runs.start == 0 {
            self.tally = Tally::default();
        }
        let [width, height, _] = self.volume.size();
        let all = (width * height * slab.cell_layers()).div_ceil(BLOCK);
        let blocks = blocks(runs, DEVICE_COUNT_BLOCKS, all);
        let is_last = blocks.end == all;
        self.tally.add(&self.cutter.count(slab, blocks)?);
        if !is_last {
            return Ok(());
        }
        let first = self.first_vertex();
        if u64::from(first) + self.tally.vertices() > u64::from(MESH_VERTICES_MAX) {
            return Err(MeshError::TooLarge.into());
        }
        Ok(self.cutter.number(&self.tally.numbers(first))?)
    }

    /// Makes what has its turn by the end of the first `part` of `parts` of a slab.
    fn cut(&mut self, slab: &Slab, part: usize, parts: usize) -> Result<(), IsosurfaceError> {
        let [width, height, _] = self.volume.size();
        let first_edge = 3 * (width * height * slab.voxels.start) as u64;
        let due = self.tally.due(part, parts);
        let mut left = due.as_slice();
        while !left.is_empty() {
            let (shares, rest) = left.split_at(Cutter::at_once(left));
            let made = self.cutter.cut(slab, self.first_vertex(), shares)?;
            self.mesh.grow(made.places().len(), made.triangles().len())?;
            let Mesh { positions, normals, triangles, edges } = &mut self.mesh;
            positions.extend(made.places().iter().map(|[position, _]| position));
            normals.extend(made.places().iter().map(|[_, normal]| normal));
            triangles.extend_from_slice(made.triangles());
            edges.extend(made.edges().iter().map(|edge| first_edge + u64::from(*edge)));
            left = rest;
        }
        Ok(())
    }

    /// The number of the vertex that is made next.
    fn first_vertex(&self) -> u32 {
        u32::try_from(self.mesh.positions.len()).unwrap_or(u32::MAX)
    }
}

/// The blocks of some runs of so many each, of all that there are.
fn blocks(runs: Range<usize>, each: usize, all: usize) -> Range<usize> {
    runs.start * each..(runs.end * each).min(all)
}

fn voxel_bytes(volume: &Volume) -> usize {
    with_voxels!(volume.voxels(), samples => samples.first().map_or(1, size_of_val))
}

impl Plan for DeviceIsosurfacePlan {
    type Output = Mesh;
    type Error = IsosurfaceError;

    fn units(&self) -> u64 {
        self.lengths.iter().sum::<usize>() as u64
    }

    fn stretch(&self, unit: u64) -> Stretch {
        let Stretch { kind, end } = Stretch::of(unit, &self.lengths);
        Stretch { kind: kind % PHASES, end }
    }

    /// One block is counted that has no cells.
    fn rehearse(&mut self) -> Result<bool, IsosurfaceError> {
        self.cutter.count_nothing()?;
        Ok(true)
    }

    fn run(&mut self, slice: &Slice) -> Result<(), IsosurfaceError> {
        for (phase, units) in phases(slice, &self.lengths) {
            let length = self.lengths[phase];
            let slab = self.slabs[phase / PHASES].clone();
            match phase % PHASES {
                SENT => self.send(&slab, units)?,
                LOOKED_AT => self.look(&slab, units)?,
                COUNTED => self.count(&slab, units)?,
                _ => self.cut(&slab, units.end, length)?,
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Mesh, IsosurfaceError> {
        Ok(self.mesh)
    }
}
