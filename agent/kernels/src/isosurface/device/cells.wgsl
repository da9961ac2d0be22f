// Cells, 32 at a time: which of them a surface goes through, and which vertices are theirs. Before it
// stands piece.wgsl, and, from the processor's side, the constant BLOCK.
//
// A vertex belongs to the first cell that has its edge. So of a cell's edges, those are its own that
// are on no cell before it, along neither of the two other axes.

// Of each case: its edges in the order in which its triangles name them, four bits each, and, in the
// second word, how many of them and of triangles there are; then the triangles' corners, as places in
// that order.
@group(0) @binding(1) var<uniform> cases: array<vec4<u32>, 256>;
// Which voxels are inside.
@group(0) @binding(2) var<storage, read> bits: array<u32>;

// Corners of cells, and the cells that there are; of these, those that have none before them.
struct Word {
    near: vec4<u32>,
    far: vec4<u32>,
    cells: u32,
    low: vec3<u32>,
}

// The 32 bits from one on.
fn window(at: u32) -> u32 {
    let word = at >> 5u;
    let shift = at & 31u;
    return (bits[word] >> shift) | ((bits[word + 1u] << 1u) << (31u - shift));
}

// Of four corners, x fastest.
fn corners(at: u32) -> vec4<u32> {
    let above = at + piece.size.x;
    return vec4(window(at), window(at + 1u), window(above), window(above + 1u));
}

// `count` ones, which is not zero.
fn ones(count: u32) -> u32 {
    return 0xffffffffu >> (32u - count);
}

fn cells_of(word: u32) -> Word {
    let first = word * 32u;
    var found = Word(corners(first), corners(first + piece.size.x * piece.size.y), 0u, vec3(0u));
    var row = first / piece.size.x;
    var x = first % piece.size.x;
    // Row by row: the last voxel of one has no cell.
    for (var at = 0u; at < 32u; ) {
        let length = min(piece.size.x - x, 32u - at);
        let y = row % piece.size.y;
        let z = row / piece.size.y;
        let is_whole = x + length == piece.size.x;
        if y + 1u < piece.size.y && z < piece.cell_layers && (length > 1u || !is_whole) {
            let here = ones(length - u32(is_whole)) << at;
            found.cells |= here;
            found.low |= select(vec3(0u), vec3(1u << at, here, here),
                vec3(x == 0u, y == 0u, z + piece.first_layer == 0u));
        }
        at += length;
        row += 1u;
        x = 0u;
    }
    return found;
}

// Cells with corners inside and outside.
fn cut_cells(word: Word) -> u32 {
    let some = word.near | word.far;
    let every = word.near & word.far;
    return word.cells & (some.x | some.y | some.z | some.w) & ~(every.x & every.y & every.z & every.w);
}

// Those of a word's cells that are cut with this slab.
fn own_cells(word: u32) -> u32 {
    let first = word * 32u;
    if first >= piece.first_cell {
        return 0xffffffffu;
    }
    let before = piece.first_cell - first;
    return select(0xffffffffu << before, 0u, before >= 32u);
}

// How many vertices are those of some cells.
fn vertices_of(word: Word, those: u32) -> u32 {
    let low = word.low;
    // Along x, on the edges that begin at (0, 0), (1, 0), (0, 1) and (1, 1) of y and z; and so on.
    let along_x = (word.near.xz ^ word.near.yw) & vec2(low.y & low.z, low.z);
    let along_x_far = (word.far.xz ^ word.far.yw) & vec2(low.y, those);
    let along_y = (word.near.xy ^ word.near.zw) & vec2(low.x & low.z, low.z);
    let along_y_far = (word.far.xy ^ word.far.zw) & vec2(low.x, those);
    let along_z = (word.near ^ word.far) & vec4(low.x & low.y, low.y, low.x, those);
    let counts = countOneBits(along_x & vec2(those)) + countOneBits(along_x_far & vec2(those))
        + countOneBits(along_y & vec2(those)) + countOneBits(along_y_far & vec2(those));
    let counts_z = countOneBits(along_z & vec4(those));
    return counts.x + counts.y + counts_z.x + counts_z.y + counts_z.z + counts_z.w;
}

// Which of a cell's corners are inside, the corner of x, y, z as bit x + 2 y + 4 z.
fn case_of(word: Word, cell: u32) -> u32 {
    let near = ((word.near >> vec4(cell)) & vec4(1u)) << vec4(0u, 1u, 2u, 3u);
    let far = ((word.far >> vec4(cell)) & vec4(1u)) << vec4(4u, 5u, 6u, 7u);
    let both = near | far;
    return both.x | both.y | both.z | both.w;
}

fn edge_count(kind: vec4<u32>) -> u32 {
    return extractBits(kind.y, 16u, 4u);
}

fn triangle_count(kind: vec4<u32>) -> u32 {
    return extractBits(kind.y, 20u, 4u);
}

// The place of four bits in two words.
fn nibble(low: u32, high: u32, at: u32) -> u32 {
    return extractBits(select(high, low, at < 8u), 4u * (at & 7u), 4u);
}

// What the invocations before each have in all, and all of them.
var<workgroup> added: array<vec3<u32>, BLOCK>;

fn sums_before(thread: u32, own: vec3<u32>) -> vec3<u32> {
    added[thread] = own;
    workgroupBarrier();
    for (var step = 1u; step < BLOCK; step *= 2u) {
        var before = vec3(0u);
        if thread >= step {
            before = added[thread - step];
        }
        workgroupBarrier();
        added[thread] += before;
        workgroupBarrier();
    }
    return added[thread] - own;
}
