// What one dispatch works on. A slab's voxels are counted one after another, x fastest, and its cells
// by the voxel at their low corner. A word is 32 voxels or cells, a block is BLOCK words.

struct Piece {
    // Voxels that are there, of which all rows and columns are the volume's.
    size: vec3<u32>,
    // Which of the volume's layers is the first one.
    first_layer: u32,
    // Layers of the volume, and of cells that are there.
    whole_layers: u32,
    cell_layers: u32,
    // The first cell that is cut. Those before it were, with the slab before: their vertices are known.
    first_cell: u32,
    // The surface's value, as `key` has it and in single precision.
    threshold: u32,
    value: u32,
    // Words, blocks, or listed blocks.
    first: u32,
    end: u32,
    // Where blocks are listed.
    list: u32,
    // Vertices that are made, and how many there are before them.
    vertices: u32,
    first_vertex: u32,
    unused: vec2<u32>,
    // From voxel to voxel, and over one or two of these, for each axis.
    spacing: array<vec4<u32>, 3>,
    ways: array<vec4<u32>, 6>,
}

@group(0) @binding(0) var<uniform> piece: Piece;
