//! What one dispatch works on.

use bytemuck::{Pod, Zeroable};

use super::double::{Double, double};
use super::slab::Slab;
use crate::gpu::side;
use crate::volume::{Volume, Voxels};

/// What one dispatch works on, as `piece.wgsl` has it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Piece {
    size: [u32; 3],
    first_layer: u32,
    whole_layers: u32,
    cell_layers: u32,
    first_cell: u32,
    threshold: u32,
    value: u32,
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) list: u32,
    pub(super) vertices: u32,
    pub(super) first_vertex: u32,
    unused: [u32; 2],
    spacing: [Double; 3],
    ways: [[Double; 2]; 3],
}

impl Piece {
    /// What all pieces for the surface of a value in a volume have in common.
    pub(super) fn of(volume: &Volume, value: f32) -> Self {
        let [width, height, layers] = volume.size().map(side);
        let spacing = volume.spacing();
        Self {
            size: [width, height, layers],
            whole_layers: layers,
            threshold: threshold(volume.voxels(), value),
            value: value.to_bits(),
            spacing: spacing.map(double),
            ways: spacing.map(|spacing| [1.0, 2.0].map(|voxels| double(voxels * spacing))),
            ..Self::zeroed()
        }
    }

    /// And what all of those of a slab have.
    pub(super) fn of_slab(&self, slab: &Slab) -> Self {
        let [width, height, _] = self.size;
        Self {
            size: [width, height, side(slab.voxels.len())],
            first_layer: side(slab.voxels.start),
            cell_layers: side(slab.cell_layers()),
            first_cell: width * height * side(slab.layers_before()),
            ..*self
        }
    }

    /// Voxels that are there.
    pub(super) fn voxels(&self) -> usize {
        self.size.iter().map(|side| *side as usize).product()
    }
}

/// Bits of one voxel.
pub(super) const fn voxel_bits(voxels: &Voxels) -> usize {
    match voxels {
        Voxels::U8(_) => 8,
        Voxels::U16(_) => 16,
        Voxels::F32(_) => 32,
    }
}

/// The least voxel that is inside, as `inside.wgsl` orders them.
fn threshold(voxels: &Voxels, value: f32) -> u32 {
    match voxels {
        // What is below zero becomes zero.
        Voxels::U8(_) | Voxels::U16(_) => value.ceil() as u32,
        Voxels::F32(_) => {
            // There are two zeros.
            let bits = if value == 0.0 { 0 } else { value.to_bits() };
            if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_voxel_that_is_inside_is_the_one_of_the_value() {
        let whole = |value| threshold(&Voxels::U8(Vec::new()), value);
        assert_eq!([-3.0, 0.0, 6.5, 7.0, 1e20].map(whole), [0, 0, 7, 7, u32::MAX]);
        let numbers = [f32::MIN, -2.5, -1e-45, -0.0, 0.0, 1e-45, 1.0, f32::MAX];
        let keys = numbers.map(|value| threshold(&Voxels::F32(Vec::new()), value));
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(keys[3], keys[4]);
    }
}
