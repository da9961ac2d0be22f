//! What multiplies on a GPU.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use wgpu::{BindGroup, Buffer, BufferUsages};

use super::fixed::{self, Fixed};
use super::layout::{Layout, NUMBER_BYTES, Tile};
use super::schedule::Group;
use crate::gpu::{Gpu, GpuError, Program, READ, Staging, UNIFORM, WRITTEN, side};
use crate::limits::{
    DEVICE_FETCH_TILES_MAX, DEVICE_PRODUCT_DEPTH, DEVICE_PRODUCT_TILE, DEVICE_STAGING_BYTES,
};

/// Sums of a tile.
pub(super) const TILE_SUMS: usize = DEVICE_PRODUCT_TILE * DEVICE_PRODUCT_TILE;
/// Bytes of a tile: each sum in two parts of 64 bits.
const TILE_BYTES: usize = TILE_SUMS * 2 * size_of::<i64>();

/// Multiplies rows of whole numbers with each other, on a GPU.
#[derive(Debug)]
pub(super) struct Multiplier {
    gpu: Arc<Gpu>,
    program: Program,
    staging: Staging,
    piece: Buffer,
    tiles: Buffer,
    slabs: Vec<Numbers>,
    strip: Numbers,
    sums: Buffer,
    back: Buffer,
    /// Each slab with itself.
    with_itself: Vec<BindGroup>,
    /// Each slab with a strip of eigenvectors.
    with_strip: Vec<BindGroup>,
}

/// Room for whole numbers: all upper halves, then all lower ones.
#[derive(Debug)]
struct Numbers {
    buffer: Buffer,
    count: usize,
}

/// Where numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In this slab of those that are there at once.
    Slab(usize),
    /// In the strip of eigenvectors.
    Strip,
}

/// One side of products, as the device reads it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Side {
    rows: u32,
    row_stride: u32,
    depth_stride: u32,
    plane: u32,
}

/// What one dispatch does, as the device reads it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Piece {
    left: Side,
    right: Side,
    depths: [u32; 2],
    layer: u32,
    end: u32,
    first_tile: u32,
    is_first: u32,
    padding: [u32; 2],
}

/// A tile, as the device reads it.
type PlacedTile = [u32; 4];

/// Rows of numbers somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) count: usize,
    /// From one row to the next, and from one number of a row to the next.
    pub(super) strides: [usize; 2],
}

/// What a group of tiles sums up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    /// The slab of those that are there at once, and its rows.
    pub(super) left: (usize, Rows),
    pub(super) right: (Place, Rows),
    /// From one layer to the next, and numbers of a row.
    pub(super) layer: usize,
    pub(super) end: usize,
}

/// Which numbers of each row are summed up.
#[derive(Debug, Clone)]
pub(super) struct Depths {
    /// Those of each layer, counted from its first.
    pub(super) range: Range<usize>,
    /// From one layer to the next.
    pub(super) layer: usize,
    /// Numbers of a row.
    pub(super) end: usize,
    /// Whether there are no sums yet.
    pub(super) begins: bool,
}

impl Multiplier {
    /// Gets a GPU ready for a matrix: all the memory that it will take.
    pub(super) fn new(gpu: Arc<Gpu>, layout: &Layout) -> Result<Self, GpuError> {
        let slab_numbers = layout.slab_numbers();
        let bytes = slab_numbers * NUMBER_BYTES * layout.held;
        let what = format!("{} MiB of a matrix and its sums", bytes.div_ceil(1 << 20));
        gpu.clone().checked(&what, || {
            let sent = BufferUsages::STORAGE | BufferUsages::COPY_DST;
            let numbers = |count: usize| Numbers {
                buffer: gpu.buffer("numbers", count * NUMBER_BYTES, sent),
                count,
            };
            let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
            let piece = gpu.buffer("piece", size_of::<Piece>(), uniform);
            let tiles = gpu.buffer("tiles", layout.tiles * size_of::<PlacedTile>(), sent);
            let summed = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
            let sums = gpu.buffer("sums", layout.tiles * TILE_BYTES, summed);
            let mapped = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            let back = layout.tiles.min(DEVICE_FETCH_TILES_MAX) * TILE_BYTES;
            let back = gpu.buffer("back", back, mapped);
            let slabs: Vec<Numbers> = (0..layout.held).map(|_| numbers(slab_numbers)).collect();
            let vectors = if layout.is_upright { DEVICE_PRODUCT_TILE } else { 1 };
            let strip = numbers(layout.short_side * vectors);
            let source = format!(
                "const TILE: u32 = {DEVICE_PRODUCT_TILE}u;\n\
                 const STEP: u32 = {DEVICE_PRODUCT_DEPTH}u;\n{}",
                include_str!("products.wgsl")
            );
            let bindings = [UNIFORM, READ, READ, READ, WRITTEN];
            let program = Program::new(&gpu, "products", &source, &bindings);
            let bind = |left: &Numbers, right: &Numbers| {
                let buffers = [&piece, &tiles, &left.buffer, &right.buffer, &sums];
                program.bind(&gpu, buffers.map(Buffer::as_entire_binding))
            };
            Ok(Self {
                with_itself: slabs.iter().map(|slab| bind(slab, slab)).collect(),
                with_strip: slabs.iter().map(|slab| bind(slab, &strip)).collect(),
                program,
                staging: Staging::new(&gpu, DEVICE_STAGING_BYTES),
                piece,
                tiles,
                slabs,
                strip,
                sums,
                back,
                gpu: gpu.clone(),
            })
        })
    }

    fn numbers(&self, place: Place) -> &Numbers {
        match place {
            Place::Slab(slab) => &self.slabs[slab],
            Place::Strip => &self.strip,
        }
    }

    /// Writes numbers, as many as are sent in one go, from the one of this number on.
    pub(super) fn send(
        &self,
        place: Place,
        first: usize,
        numbers: &[Fixed],
    ) -> Result<(), GpuError> {
        let to = self.numbers(place);
        let halves: [Vec<i32>; 2] = [
            numbers.iter().map(|number| number.high).collect(),
            numbers.iter().map(|number| number.low).collect(),
        ];
        self.gpu.checked("numbers", || {
            let parcels = [0, 1].map(|plane| {
                let first = (plane * to.count + first) * size_of::<i32>();
                (&to.buffer, first, bytemuck::cast_slice(&halves[plane]))
            });
            self.staging.send(&self.gpu, &parcels)
        })
    }

    /// Says which tiles are summed up from now on.
    pub(super) fn place_tiles(&self, tiles: &[Tile]) -> Result<(), GpuError> {
        let placed = |tile: &Tile| [side(tile.row), side(tile.column), side(tile.layer), 0];
        let placed: Vec<PlacedTile> = tiles.iter().map(placed).collect();
        self.gpu.checked("tiles", || {
            let parcel = (&self.tiles, 0, bytemuck::cast_slice(&placed));
            self.staging.send(&self.gpu, &[parcel])
        })
    }

    /// Adds products of some numbers of each row of a slab and of `right` to some tiles, and waits
    /// for it.
    pub(super) fn multiply(
        &self,
        (slab, left): (usize, Rows),
        (right_place, right): (Place, Rows),
        depths: &Depths,
        tiles: Range<usize>,
    ) -> Result<(), GpuError> {
        let as_read = |place, rows: Rows| Side {
            rows: side(rows.count),
            row_stride: side(rows.strides[0]),
            depth_stride: side(rows.strides[1]),
            plane: side(self.numbers(place).count),
        };
        let piece = Piece {
            left: as_read(Place::Slab(slab), left),
            right: as_read(right_place, right),
            depths: [side(depths.range.start), side(depths.range.end)],
            layer: side(depths.layer),
            end: side(depths.end),
            first_tile: side(tiles.start),
            is_first: depths.begins.into(),
            padding: [0; 2],
        };
        let bound = match right_place {
            Place::Slab(_) => &self.with_itself[slab],
            Place::Strip => &self.with_strip[slab],
        };
        self.gpu.checked("products", || {
            let parcel = (&self.piece, 0, bytemuck::bytes_of(&piece));
            let copy = self.staging.packed(&self.gpu, &[parcel])?;
            self.gpu.wait(self.gpu.submitted("products", |commands| {
                copy(commands);
                self.program.dispatch(commands, bound, tiles.len());
            }))
        })
    }

    /// Multiplies tiles of a group: all of them for the first numbers, all for the next; in one
    /// dispatch where it is all of them for several.
    pub(super) fn multiply_group(
        &self,
        factors: &Factors,
        (group, tiles): (&Group, &[Tile]),
        units: Range<usize>,
    ) -> Result<(), GpuError> {
        if units.start == 0 {
            self.place_tiles(&tiles[group.tiles()])?;
        }
        let Factors { left, right, layer, end } = *factors;
        let mut unit = units.start;
        while unit < units.end {
            let (depth, first) = (unit / group.count, unit % group.count);
            let count = (group.count - first).min(units.end - unit);
            let deep = ((units.end - unit) / group.count).max(1);
            let deep = if first == 0 { deep } else { 1 };
            let begin = depth * DEVICE_PRODUCT_DEPTH;
            let range = begin..begin + deep * DEVICE_PRODUCT_DEPTH;
            let depths = Depths { range, layer, end, begins: group.begins && depth == 0 };
            self.multiply(left, right, &depths, first..first + count)?;
            unit += deep * count;
        }
        Ok(())
    }

    /// Hands over some tiles, each with what gives the sum of a row and a column of it.
    pub(super) fn fetch_each(
        &self,
        tiles: Range<usize>,
        mut each: impl FnMut(usize, &dyn Fn(usize, usize) -> f64),
    ) -> Result<(), GpuError> {
        for first in tiles.clone().step_by(DEVICE_FETCH_TILES_MAX) {
            let end = (first + DEVICE_FETCH_TILES_MAX).min(tiles.end);
            let sums = self.fetch(first..end)?;
            for (tile, sums) in (first..end).zip(sums.chunks_exact(2 * TILE_SUMS)) {
                let (upper, lower) = sums.split_at(TILE_SUMS);
                each(tile, &|row, column| {
                    let at = row * DEVICE_PRODUCT_TILE + column;
                    fixed::sum(upper[at], lower[at])
                });
            }
        }
        Ok(())
    }

    /// The sums of some tiles, each tile's upper parts and then its lower ones, row by row.
    pub(super) fn fetch(&self, tiles: Range<usize>) -> Result<Vec<i64>, GpuError> {
        let bytes = (tiles.len() * TILE_BYTES) as u64;
        let first = (tiles.start * TILE_BYTES) as u64;
        self.gpu.checked("sums", || {
            let submission = self.gpu.copied(&self.sums, first, &self.back, bytes);
            let read = self.gpu.read(&self.back, bytes, submission)?;
            Ok(bytemuck::pod_collect_to_vec(&read))
        })
    }
}
