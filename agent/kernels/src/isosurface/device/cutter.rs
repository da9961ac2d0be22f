//! What cuts cells on a GPU.

use std::ops::Range;
use std::sync::Arc;

use wgpu::{BindGroup, BindingType, Buffer};

use super::piece::{Piece, voxel_bits};
use super::room::{BLOCK, BLOCK_WORDS, Room, WORD};
use super::slab::Slab;
use super::tally::{Counted, Share};
use crate::gpu::{Gpu, GpuError, Program, READ, UNIFORM, WRITTEN, side};
use crate::limits::{DEVICE_GROUPS_MAX, DEVICE_MESH_NUMBERS_MAX, DEVICE_STAGING_BYTES};
use crate::volume::Volume;

/// Makes surfaces of slabs of one volume on a GPU.
#[derive(Debug)]
pub(super) struct Cutter {
    gpu: Arc<Gpu>,
    /// What all pieces have in common.
    piece: Piece,
    room: Room,
    inside: Step,
    count: Step,
    cut: Step,
    vertices: Step,
}

/// A program with what it is to compute with.
#[derive(Debug)]
struct Step {
    program: Program,
    bound: BindGroup,
}

/// A part of a mesh, as a device has made it.
pub(super) struct Made {
    numbers: Vec<u32>,
    vertices: usize,
}

/// Numbers that are made for a vertex, and for a triangle.
const VERTEX_NUMBERS: usize = 7;
const TRIANGLE_NUMBERS: usize = 3;
// There is room for the most that can be in a block: all edges of each of its cells.
const _: () =
    assert!((12 * VERTEX_NUMBERS + 5 * TRIANGLE_NUMBERS) * BLOCK <= DEVICE_MESH_NUMBERS_MAX);

impl Made {
    /// Of each vertex three times the voxel of the slab that its edge leads from, and its axis.
    pub(super) fn edges(&self) -> &[u32] {
        &self.numbers[..self.vertices]
    }

    /// The position and the normal of each vertex.
    pub(super) fn places(&self) -> &[[[f32; 3]; 2]] {
        bytemuck::cast_slice(&self.numbers[self.vertices..VERTEX_NUMBERS * self.vertices])
    }

    /// Vertices of each triangle.
    pub(super) fn triangles(&self) -> &[[u32; 3]] {
        bytemuck::cast_slice(&self.numbers[VERTEX_NUMBERS * self.vertices..])
    }
}

impl Cutter {
    /// Gets a GPU ready to make the surface of `value` in slabs of so many layers of a volume: all the
    /// memory that it will take.
    pub(super) fn new(
        gpu: Arc<Gpu>,
        volume: &Volume,
        value: f32,
        layers: usize,
    ) -> Result<Self, GpuError> {
        let [width, height, _] = volume.size();
        let what = format!("{layers} layers of {width} x {height} voxels");
        let bits = voxel_bits(volume.voxels());
        gpu.clone().checked(&what, || {
            let room = Room::new(&gpu, volume, layers);
            let Room { piece, cases, voxels, starts, counts, blocks, made, .. } = &room;
            let inside = &room.bits;
            let step = |name, bindings: &[(BindingType, &Buffer)]| {
                let (types, buffers): (Vec<_>, Vec<_>) = bindings.iter().copied().unzip();
                let program = Program::new(&gpu, name, &source(name, bits), &types);
                let bound = program.bind(&gpu, buffers.into_iter().map(Buffer::as_entire_binding));
                Step { program, bound }
            };
            let (piece, cases) = ((UNIFORM, piece), (UNIFORM, cases));
            let looked = [piece, (READ, voxels), (WRITTEN, inside)];
            let counted = [piece, cases, (READ, inside), (WRITTEN, starts), (WRITTEN, counts)];
            let cut =
                [piece, cases, (READ, inside), (READ, starts), (READ, blocks), (WRITTEN, made)];
            let placed = [piece, (READ, voxels), (WRITTEN, made)];
            Ok(Self {
                piece: Piece::of(volume, value),
                inside: step("inside", &looked),
                count: step("count", &counted),
                cut: step("cut", &cut),
                vertices: step("vertices", &placed),
                room,
                gpu: gpu.clone(),
            })
        })
    }

    /// Writes bytes of voxels, from the one of this number on.
    pub(super) fn send(&self, first: usize, bytes: &[u8]) -> Result<(), GpuError> {
        let parts = bytes.chunks(DEVICE_STAGING_BYTES);
        for (at, part) in (first..).step_by(DEVICE_STAGING_BYTES).zip(parts) {
            // Words are sent: what does not fill the last one is filled up.
            let (words, rest) = part.as_chunks::<4>();
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            let words = words.as_flattened();
            let end = at + words.len();
            let parcels = [(&self.room.voxels, at, words), (&self.room.voxels, end, &last)];
            let parcels = if rest.is_empty() { &parcels[..1] } else { &parcels };
            self.gpu.checked("voxels", || self.room.staging.send(&self.gpu, parcels))?;
        }
        Ok(())
    }

    /// Looks which voxels are inside, in some blocks of a slab's.
    pub(super) fn look(&self, slab: &Slab, blocks: Range<usize>) -> Result<(), GpuError> {
        let mut piece = self.piece.of_slab(slab);
        let words = piece.voxels().div_ceil(WORD);
        for blocks in in_dispatches(blocks) {
            piece.first = side(blocks.start * BLOCK_WORDS);
            piece.end = side((blocks.end * BLOCK_WORDS).min(words));
            self.gpu.checked("voxels", || {
                let parcel = (&self.room.piece, 0, bytemuck::bytes_of(&piece));
                let copy = self.room.staging.packed(&self.gpu, &[parcel])?;
                self.gpu.wait(self.gpu.submitted("inside", |commands| {
                    copy(commands);
                    self.inside.program.dispatch(commands, &self.inside.bound, blocks.len());
                }))
            })?;
        }
        Ok(())
    }

    /// Counts what there is to be made in some blocks of a slab's cells.
    pub(super) fn count(
        &self,
        slab: &Slab,
        blocks: Range<usize>,
    ) -> Result<Vec<Counted>, GpuError> {
        let mut piece = self.piece.of_slab(slab);
        let mut counted = Vec::with_capacity(blocks.len());
        for blocks in in_dispatches(blocks) {
            piece.first = side(blocks.start);
            counted.extend(self.counted(&piece, blocks.len())?);
        }
        Ok(counted)
    }

    /// Counts nothing in one block, of no cells.
    pub(super) fn count_nothing(&self) -> Result<(), GpuError> {
        self.counted(&self.piece, 1).map(drop)
    }

    fn counted(&self, piece: &Piece, blocks: usize) -> Result<Vec<Counted>, GpuError> {
        let bytes = (blocks * size_of::<Counted>()) as u64;
        self.gpu.checked("cells", || {
            let parcel = (&self.room.piece, 0, bytemuck::bytes_of(piece));
            let copy = self.room.staging.packed(&self.gpu, &[parcel])?;
            let submission = self.gpu.submitted("count", |commands| {
                copy(commands);
                self.count.program.dispatch(commands, &self.count.bound, blocks);
                commands.copy_buffer_to_buffer(&self.room.counts, 0, &self.room.back, 0, bytes);
            });
            let read = self.gpu.read(&self.room.back, bytes, submission)?;
            Ok(bytemuck::pod_collect_to_vec(&read))
        })
    }

    /// Says which number each block's first vertex has.
    pub(super) fn number(&self, numbers: &[u32]) -> Result<(), GpuError> {
        self.gpu.checked("vertices", || {
            let parcel = (&self.room.blocks, 0, bytemuck::cast_slice(numbers));
            self.room.staging.send(&self.gpu, &[parcel])
        })
    }

    /// How many of some shares are made in one go: one at least.
    pub(super) fn at_once(shares: &[Share]) -> usize {
        let mut numbers = 0;
        let fits = |share: &&Share| {
            numbers += VERTEX_NUMBERS * share.vertices + TRIANGLE_NUMBERS * share.triangles;
            numbers <= DEVICE_MESH_NUMBERS_MAX
        };
        shares.iter().take(DEVICE_GROUPS_MAX).take_while(fits).count().max(1)
    }

    /// Makes some shares, as many as are made in one go, whose first vertex has this number.
    pub(super) fn cut(
        &self,
        slab: &Slab,
        first_vertex: u32,
        shares: &[Share],
    ) -> Result<Made, GpuError> {
        let (mut vertices, mut triangles) = (0, 0);
        let mut list = Vec::with_capacity(2 * shares.len());
        for share in shares {
            list.extend([side(share.block), side(triangles)]);
            vertices += share.vertices;
            triangles += share.triangles;
        }
        let mut piece = self.piece.of_slab(slab);
        piece.list = side(self.room.list);
        (piece.vertices, piece.first_vertex) = (side(vertices), first_vertex);
        let bytes = 4 * (VERTEX_NUMBERS * vertices + TRIANGLE_NUMBERS * triangles) as u64;
        self.gpu.checked("a mesh", || {
            let parcels = [
                (&self.room.piece, 0, bytemuck::bytes_of(&piece)),
                (&self.room.blocks, 4 * self.room.list, bytemuck::cast_slice(&list)),
            ];
            let copy = self.room.staging.packed(&self.gpu, &parcels)?;
            let submission = self.gpu.submitted("mesh", |commands| {
                copy(commands);
                self.cut.program.dispatch(commands, &self.cut.bound, shares.len());
                let groups = vertices.div_ceil(BLOCK_WORDS);
                self.vertices.program.dispatch(commands, &self.vertices.bound, groups);
                commands.copy_buffer_to_buffer(&self.room.made, 0, &self.room.back, 0, bytes);
            });
            let read = self.gpu.read(&self.room.back, bytes, submission)?;
            Ok(Made { numbers: bytemuck::pod_collect_to_vec(&read), vertices })
        })
    }
}

/// Workgroups of one dispatch after the other.
fn in_dispatches(groups: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = groups.end;
    let firsts = groups.step_by(DEVICE_GROUPS_MAX);
    firsts.map(move |first| first..(first + DEVICE_GROUPS_MAX).min(end))
}

/// The program of this name, for voxels of so many bits.
fn source(name: &str, voxel_bits: usize) -> String {
    let piece = include_str!("piece.wgsl");
    let (before, program) = match name {
        "inside" => ("", include_str!("inside.wgsl")),
        "count" => (include_str!("cells.wgsl"), include_str!("count.wgsl")),
        "cut" => (include_str!("cells.wgsl"), include_str!("cut.wgsl")),
        _ => (include_str!("double.wgsl"), include_str!("vertices.wgsl")),
    };
    format!(
        "const BLOCK = {BLOCK_WORDS}u;\n\
         const VOXEL_BITS = {voxel_bits}u;\n\
         {piece}{before}{program}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_shares_are_made_at_once_as_there_is_room_for() {
        let share = |vertices| Share { block: 0, vertices, triangles: 0 };
        let most = DEVICE_MESH_NUMBERS_MAX / VERTEX_NUMBERS;
        assert_eq!(Cutter::at_once(&[share(most - 1), share(1), share(1)]), 2);
        assert_eq!(Cutter::at_once(&[share(1); 3]), 3);
        assert_eq!(Cutter::at_once(&[share(most + 1)]), 1);
    }
}
