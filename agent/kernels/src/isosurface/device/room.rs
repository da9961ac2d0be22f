//! The memory of a device that a surface takes.

use wgpu::{Buffer, BufferUsages};

use super::piece::{Piece, voxel_bits};
use super::table::table;
use super::tally::Counted;
use crate::gpu::{Gpu, Staging};
use crate::limits::{DEVICE_MESH_NUMBERS_MAX, DEVICE_SLAB_BYTES_MAX, DEVICE_STAGING_BYTES};
use crate::volume::Volume;

/// Voxels or cells of a word, and words of a block.
pub(super) const WORD: usize = 32;
pub(super) const BLOCK_WORDS: usize = 64;
/// Voxels or cells of a block.
pub(super) const BLOCK: usize = WORD * BLOCK_WORDS;

/// Room for slabs of a volume, one at a time, and for what is made of them.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) piece: Buffer,
    pub(super) cases: Buffer,
    pub(super) voxels: Buffer,
    /// Which of these are inside.
    pub(super) bits: Buffer,
    /// Vertices of a block before each of its words of cells.
    pub(super) starts: Buffer,
    pub(super) counts: Buffer,
    /// The number of each block's first vertex, and then a list of blocks, from `list` on.
    pub(super) blocks: Buffer,
    pub(super) list: usize,
    pub(super) made: Buffer,
    /// What of that, or of the counts, comes back.
    pub(super) back: Buffer,
    pub(super) staging: Staging,
}

impl Room {
    /// How many of a volume's layers a device has room for.
    pub(super) fn layers_max(gpu: &Gpu, volume: &Volume) -> usize {
        let [width, height, _] = volume.size();
        let bits = voxel_bits(volume.voxels());
        // A bit for each voxel, and for each word of cells a number of as many bits.
        let held = gpu.data_bytes_max().saturating_mul(8) / (bits + 2);
        let bound = DEVICE_SLAB_BYTES_MAX * 8 / bits;
        held.min(bound) / (width * height)
    }

    /// Room for so many layers of a volume. Inside of [`Gpu::checked`].
    pub(super) fn new(gpu: &Gpu, volume: &Volume, layers: usize) -> Self {
        let [width, height, _] = volume.size();
        let voxels = width * height * layers;
        let voxel_words = (voxels * voxel_bits(volume.voxels())).div_ceil(WORD);
        let blocks = voxels.div_ceil(BLOCK);
        // Corners of the last cells are looked for beyond the last voxel.
        let beyond = (width * height + width + 1).div_ceil(WORD) + 1;
        let counts_words = blocks * size_of::<Counted>() / 4;
        let sent_words = voxel_words.min(DEVICE_STAGING_BYTES / 4).max(3 * blocks);
        let sent = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let fetched = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
        let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let mapped = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let words = |label, words: usize, usage| gpu.buffer(label, 4 * words, usage);
        let table = table();
        let cases = gpu.buffer("cases", size_of_val(&table[..]), uniform);
        gpu.queue().write_buffer(&cases, 0, bytemuck::cast_slice(&table));
        Self {
            piece: gpu.buffer("piece", size_of::<Piece>(), uniform),
            cases,
            voxels: words("voxels", voxel_words, sent),
            bits: words("bits", blocks * BLOCK_WORDS + beyond, BufferUsages::STORAGE),
            starts: words("starts", blocks * BLOCK_WORDS, BufferUsages::STORAGE),
            counts: words("counts", counts_words, fetched),
            blocks: words("blocks", 3 * blocks, sent),
            list: blocks,
            made: words("made", DEVICE_MESH_NUMBERS_MAX, fetched),
            back: words("back", counts_words.max(DEVICE_MESH_NUMBERS_MAX), mapped),
            staging: Staging::new(gpu, 4 * sent_words + size_of::<Piece>()),
        }
    }
}
