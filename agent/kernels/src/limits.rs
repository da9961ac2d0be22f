//! Named bounds of what a kernel takes in and how long it goes on without looking up.

#[cfg(feature = "gpu")]
use std::time::Duration;

use gleaner_protocol::Span;
use gleaner_protocol::limits::CONTROL_MESSAGE_BYTES_MAX;

/// What a slice is sized for. A release waits for half of it on average.
pub(crate) const SLICE_TARGET: Span = Span::from_millis(3);
/// What it is sized for at most, where much of it is not work but what a device takes for any slice:
/// half of the time between two frames of a screen, so that what its user moves does not stand still.
pub(crate) const SLICE_TARGET_MAX: Span = Span::from_millis(8);
/// Of a slice, the share that this may be is one part in so many. With it goes twice as much that is not
/// seen where there is no work, for a device has to come to it, finds its caches cold and ends it
/// unevenly: then slices cost 5 % at most.
pub(crate) const SLICE_BESIDE_SHARE: u64 = 80;
/// How often what a slice takes beside its units is measured: the first time gets a device ready.
pub(crate) const SLICE_REHEARSALS: usize = 2;
/// A slice has at most this many times the units of the longest one of its kind before it: one
/// slice that was quick by chance does not make the next one long.
pub(crate) const SLICE_GROWTH_MAX: u64 = 4;
/// Threads that share out work: as many as the largest machines have cores. Where a process has tens of
/// thousands, the system gives their stacks no more room.
pub(crate) const THREADS_MAX: usize = 1024;
/// Voxels that are held in one piece: indices in 32 bits, with a sign.
pub(crate) const VOXELS_MAX: usize = (1 << 31) - 1;
/// Most voxels of a volume that bricks are of: edges of its grid are numbered with 64 bits.
pub(crate) const WHOLE_VOXELS_MAX: u64 = 1 << 48;
/// Voxels along each side of a volume in a NIfTI-1 file, and volumes in it: numbers of sixteen bits
/// with a sign.
pub(crate) const NIFTI_SIDE_MAX: u16 = i16::MAX.unsigned_abs();
/// How far voxels are apart at most, and the inverse of it at least: positions in the largest volume,
/// and squares of distances between neighbours, are numbers of single precision, and squares of slopes
/// in double precision are far from its ends whatever the voxels are.
pub(crate) const SPACING_MAX: f64 = 1e19;
/// Bytes of a volume's header, where it is text: usual ones have one KiB or two.
pub(crate) const HEADER_BYTES_MAX: u64 = 64 << 10;
/// Cells along each side of a block that is passed over in one go where nothing is to be seen. What is
/// known of blocks is a byte for each 64 voxels.
pub(crate) const MACRO_CELL: usize = 4;
/// Pixels of one picture: 4 GiB of colours.
pub(crate) const PIXELS_MAX: usize = 1 << 28;
/// Pictures of one animation: four digits tell them apart.
pub(crate) const ANIMATION_FRAMES_MAX: usize = 10_000;
/// Keys that the path of a camera has: more than anybody sets by hand.
pub(crate) const ANIMATION_KEYS_MAX: usize = 1000;
/// Samples that one ray takes of a volume: 37 in each voxel on the diagonal of 1024³.
pub(crate) const RAY_SAMPLES_MAX: usize = 1 << 16;
/// Steps from where a ray begins to where it leaves a volume. A sample that is so far is where it should be
/// to a thousandth of a step; much farther out steps would not be told apart, and rays would not end.
pub(crate) const RAY_STEPS_MAX: u64 = 1 << 42;
/// What shines through less than this is not followed any further: half of what a picture of
/// eight bits a channel tells apart.
pub(crate) const THROUGH_MIN: f32 = 1.0 / 512.0;
/// A picture in which no pixel is as opaque shows nothing to the eye.
pub(crate) const VISIBLE_MIN: f32 = 0.05;
/// What neighbours in the table of a look may differ by, in any channel, before which of the two a
/// value is rounded to is seen.
pub(crate) const STEEPNESS_MAX: f32 = 0.5 / 255.0;
/// Pixels along each side of the tiles that a picture is taken in: one workgroup of a device has 64
/// invocations.
pub(crate) const TILE: usize = 8;
/// Parts that put one picture together. Where each sends to each, that is 16 million transfers.
pub(crate) const PARTS_MAX: usize = 4096;
/// Bytes of a message between them, encoded: a quarter of what the control link carries in one, so
/// that whatever else has to go there soon is never behind more than that.
pub(crate) const PART_MESSAGE_BYTES_MAX: usize = CONTROL_MESSAGE_BYTES_MAX / 4;
/// Bytes of such a message beside its pixels: nine numbers, of ten bytes each at most.
pub(crate) const PART_MESSAGE_BYTES_BESIDE: usize = 90;
/// Pixels in such a message: four numbers of four bytes each.
pub(crate) const PART_MESSAGE_PIXELS_MAX: usize =
    (PART_MESSAGE_BYTES_MAX - PART_MESSAGE_BYTES_BESIDE) / 16;
/// How far beyond 0 and 1 a colour may be: what rounding makes of one over all samples of a long
/// ray.
pub(crate) const COLOUR_SLACK: f32 = 0.01;
/// Cells along x that are passed over in one go where no surface goes through them: a few registers.
pub(crate) const CELL_RUN: usize = 32;
/// Vertices of one mesh: PLY numbers them with a sign.
pub(crate) const MESH_VERTICES_MAX: u32 = 1 << 28;
/// Rows and columns of a block of sums of squares and products: 128 KiB of sums.
pub(crate) const GRAM_BLOCK: usize = 128;
/// Products that are summed up for it in one go, of 2 MiB of numbers on each side.
pub(crate) const GRAM_DEPTH: usize = 2048;
/// The smaller side of a matrix whose components are found: sums of 2 GiB.
pub(crate) const GRAM_SIDE_MAX: usize = 16_384;
/// Rows that are averaged, centred or multiplied in one go.
pub(crate) const PCA_ROWS: usize = 64;
/// Steps that an eigenvector may take to be found; two are usual.
pub(crate) const INVERSE_ITERATIONS_MAX: usize = 8;
/// Numbers of a component that are at least this share of its largest one are taken for as large.
pub(crate) const SIGN_SHARE: f64 = 0.99;
/// Of more than this share of all eigenvectors, all are found at once.
pub(crate) const LEADING_SHARE_MAX: usize = 8;
/// Vectors that go with those that are wanted, at least, where eigenvectors are found by products.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_EXTRA_MIN: usize = 16;
/// How much more than others the largest eigenvector may grow before vectors are made anew.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_GROWTH_MAX: f64 = 1e8;
/// Products before vectors are made anew.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_DEGREE_MAX: usize = 24;
/// How much of a vector of length one may be of eigenvectors that are not wanted.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_RESIDUAL: f64 = 1e-9;
/// Eigenvalues whose roots are this share of the largest apart are told apart.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_APART: f64 = 2e-5;
/// What rounding leaves of a product with such a vector, as a share of the largest eigenvalue.
#[cfg(feature = "gpu")]
pub(crate) const SUBSPACE_ROUNDING: f64 = 1e-16;
/// Classes of scans that are told apart: canonical variates are one fewer, and each is a map.
pub(crate) const CLASSES_MAX: usize = 64;
/// Scans of each class that a half has at least: one alone says nothing about how it varies.
pub(crate) const SCANS_PER_CLASS_MIN: usize = 2;
/// Splits of scans in halves, of one analysis: more than there are of sixteen subjects.
pub(crate) const SPLITS_MAX: usize = 10_000;
/// Of so many groups all splits are listed, 6435 at most; of more, some are drawn.
pub(crate) const SPLIT_GROUPS_LISTED: usize = 16;
/// Draws for each split that is wanted, before there are no more.
pub(crate) const SPLIT_TRIES: usize = 20;
/// Draws in a row that give no other split, before there are no more.
pub(crate) const SPLIT_MISSES_MAX: usize = 1000;
/// Voxels of a map that are summed up in one go: 32 KiB of sums.
pub(crate) const MAP_VOXELS: usize = 4096;
/// Of what varies in a canonical variate, the least share that is within classes: less is what
/// rounding leaves of nothing.
pub(crate) const WITHIN_SHARE_MIN: f64 = 1e-10;
/// Bytes of a file before its first voxel: no more than a job's file has in all.
pub(crate) const SKIPPED_BYTES_MAX: u64 = 1 << 30;
/// Bytes that are counted after the last voxel, to say how many there are.
pub(crate) const EXTRA_COUNTED_MAX: u64 = 16 << 20;
/// So many bytes of what a header promises have room before they come: those of a chunk.
pub(crate) const RESERVED_MAX: usize = 64 << 20;
/// Bytes of a table as text: no more than a job's file has.
pub(crate) const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of one field of it: a double with all of its digits has 1077.
pub(crate) const TABLE_FIELD_BYTES_MAX: usize = 4096;
/// Names of its columns that are shown when it was read.
pub(crate) const COLUMNS_SHOWN_MAX: usize = 8;
/// Characters of a line of a specification that are shown where it is wrong: two of a terminal.
pub(crate) const LINE_SHOWN_MAX: usize = 160;
/// Characters of a name, or of what stands in the place of a number, that are shown.
pub(crate) const NAME_SHOWN_MAX: usize = 80;
/// Numbers of components that one run tries: each is an analysis by itself.
pub(crate) const COMPONENT_COUNTS_MAX: usize = 1000;
/// Voxels along each side of a brick on a device, where it allows as many: a layer of bytes is sent
/// in a slice.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SIDE_MAX: usize = 2048;
/// Bytes of the voxels of a brick on a device: what small ones hold beside what they are shown.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_BRICK_BYTES_MAX: usize = 1 << 30;
/// Of the memory that a driver says is free, what is used, in percent: that is an estimate.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_MEMORY_PERCENT: u8 = 90;
/// Bytes of a device's memory that a task takes beside its data: pixels, tiles of sums, what
/// is on its way there, and its driver's own.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_OVERHEAD_BYTES: u64 = 128 << 20;
/// Bytes that the data of a task may take there at least: with less it goes there in so many pieces
/// that a processor is as fast.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_DATA_BYTES_MIN: u64 = 128 << 20;
/// Bytes of voxels that are sent to a device in one go, or one layer of them.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_UPLOAD_BYTES: usize = 64 << 20;
/// Workgroups in a row that every device takes in one dispatch.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_GROUPS_MAX: usize = 65_535;
/// Tiles of one dispatch: 8 MiB of pixels.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_TILES_MAX: usize = 8192;
/// Samples of a brick's rays from which on a device draws it for a view: a processor needs 3 to 15 ms for
/// as many, which is longer than a device needs to be told of them and to bring back what they see.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_VIEW_SAMPLES_MIN: u64 = 1 << 19;
/// Samples that a ray takes in one dispatch: what is on a device cannot be called back.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_RAY_SAMPLES: usize = 4096;
/// Rows and columns of a tile of sums on a device: sixteen invocations along each side have four.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_PRODUCT_TILE: usize = 64;
/// Products that a tile sums up in one step: their digits' sums are far from the limits of 32 bits. A
/// slice on a device is one such step at least, and as many as fit in its time: on one that is
/// software, a dispatch of twice as many was what a release waited for, 20 to 30 ms.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_PRODUCT_DEPTH: usize = 128;
/// Tiles of sums on a device at once: 32 MiB.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_PRODUCT_TILES_MAX: usize = 512;
/// Tiles of sums of squares and products that are summed up at once, where there is enough to sum
/// up: 65536 invocations.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_PRODUCT_TILES_FULL: usize = 256;
/// Products that are summed up before sums come back: 64 bits hold those of the largest digits.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SUMMED_MAX: usize = 1 << 22;
/// Tiles of sums that come back in one go: 4 MiB.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_FETCH_TILES_MAX: usize = 64;
/// Rows of sums whose few largest eigenvalues are found by products on a device, at least: of fewer, a
/// processor has them as soon.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SOLUTION_SIDE_MIN: usize = 1024;
/// Products that are tried for them, before they are left to the processor.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SOLUTION_PRODUCTS_MAX: usize = 256;
/// Bytes of a slab of a matrix on a device: what every device binds.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SLAB_BYTES_MAX: usize = 128 << 20;
/// Of a matrix' longer side, what a slab has of it.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_SLAB_SIDE_MAX: usize = 1 << 16;
/// Bytes of numbers that are sent to a device in one go. A line of a slab is shorter.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_STAGING_BYTES: usize = 8 << 20;
/// Bytes of a matrix that is whole on a device; of a larger one, a slab at a time is.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_MATRIX_BYTES_MAX: usize = 1 << 30;
/// Bytes of voxels that are sent to a device for a surface in one go, at least.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_VOXELS_BYTES: usize = 1 << 20;
/// Blocks of voxels that are looked at for it at least: on a device that is software, a tenth of a
/// millisecond.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_LOOK_BLOCKS: usize = 128;
/// Blocks of cells that are counted for it at least, which takes as long.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_COUNT_BLOCKS: usize = 32;
/// Numbers of a mesh that come back from a device in one go: 8 MiB, of 150000 vertices.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_MESH_NUMBERS_MAX: usize = 2 << 20;
/// How long a slice on a device may take before nothing is expected of it any more.
#[cfg(feature = "gpu")]
pub(crate) const DEVICE_WAIT_MAX: Duration = Duration::from_secs(60);
