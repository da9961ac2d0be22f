// The edges that vertices are on, and the triangles between these. Before it stand piece.wgsl and
// cells.wgsl.

@group(0) @binding(3) var<storage, read> starts: array<u32>;
// The number of each block's first vertex; then, from `piece.list` on, blocks that are cut, each with
// how many triangles there are before its own.
@group(0) @binding(4) var<storage, read> blocks: array<u32>;
// The edge of each vertex: three times the voxel that it leads from, and its axis. Then six numbers
// for each that others write, and three vertices of each triangle.
@group(0) @binding(5) var<storage, read_write> made: array<u32>;

// An edge of a cell: its axis, and at which end of the two other axes it is, the lower axis first.
struct Edge {
    axis: u32,
    ends: vec2<u32>,
}

fn edge_of(number: u32) -> Edge {
    return Edge(number >> 2u, vec2(number & 1u, (number >> 1u) & 1u));
}

// The two axes that are not this one.
fn others(axis: u32) -> vec2<u32> {
    return vec2(u32(axis == 0u), select(2u, 1u, axis == 2u));
}

// Whether an edge is one of the cell's own, which is the first along some axes.
fn is_own(edge: Edge, is_low: vec3<bool>) -> bool {
    let axes = others(edge.axis);
    return (edge.ends.x == 1u || is_low[axes.x]) && (edge.ends.y == 1u || is_low[axes.y]);
}

fn is_low(word: Word, cell: u32) -> vec3<bool> {
    return ((word.low >> vec3(cell)) & vec3(1u)) == vec3(1u);
}

// The number of the first vertex of a cell's own.
fn first_vertex(at: u32, word: Word, cell: u32) -> u32 {
    let before = cut_cells(word) & ~(0xffffffffu << cell);
    return blocks[at / BLOCK] + starts[at] + vertices_of(word, before);
}

// The number of the vertex on an edge of a cell's own.
fn vertex_on(cell: u32, edge: u32) -> u32 {
    let at = cell / 32u;
    let word = cells_of(at);
    let low = is_low(word, cell % 32u);
    let kind = cases[case_of(word, cell % 32u)];
    var number = first_vertex(at, word, cell % 32u);
    for (var place = 0u; place < edge_count(kind); place++) {
        let other = nibble(kind.x, kind.y, place);
        if other == edge {
            break;
        }
        number += u32(is_own(edge_of(other), low));
    }
    return number;
}

@compute @workgroup_size(BLOCK)
fn cut(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let listed = piece.list + 2u * group.x;
    let at = blocks[listed] * BLOCK + thread;
    let word = cells_of(at);
    let cells = cut_cells(word) & own_cells(at);
    var count = 0u;
    for (var left = cells; left != 0u; left &= left - 1u) {
        count += triangle_count(cases[case_of(word, firstTrailingBit(left))]);
    }
    let before = blocks[listed + 1u] + sums_before(thread, vec3(count, 0u, 0u)).x;
    var corner = 7u * piece.vertices + 3u * before;
    let strides = vec3(1u, piece.size.x, piece.size.x * piece.size.y);
    for (var left = cells; left != 0u; left &= left - 1u) {
        let bit = firstTrailingBit(left);
        let cell = at * 32u + bit;
        let kind = cases[case_of(word, bit)];
        let low = is_low(word, bit);
        var own = first_vertex(at, word, bit);
        var numbers: array<u32, 12>;
        for (var place = 0u; place < edge_count(kind); place++) {
            let number = nibble(kind.x, kind.y, place);
            let edge = edge_of(number);
            let axes = others(edge.axis);
            if is_own(edge, low) {
                let voxel = cell + edge.ends.x * strides[axes.x] + edge.ends.y * strides[axes.y];
                made[own - piece.first_vertex] = 3u * voxel + edge.axis;
                numbers[place] = own;
                own += 1u;
            } else {
                // Of the first cell that has it, it is at the other end.
                let back = vec2(
                    u32(edge.ends.x == 0u && !low[axes.x]),
                    u32(edge.ends.y == 0u && !low[axes.y]),
                );
                let first = cell - back.x * strides[axes.x] - back.y * strides[axes.y];
                numbers[place] = vertex_on(first, number + back.x + 2u * back.y);
            }
        }
        for (var place = 0u; place < 3u * triangle_count(kind); place++) {
            made[corner] = numbers[nibble(kind.z, kind.w, place)];
            corner += 1u;
        }
    }
}
