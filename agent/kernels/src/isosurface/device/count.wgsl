// How many vertices and triangles there are in each block. Before it stand piece.wgsl and cells.wgsl.

// Vertices of a block before each of its words.
@group(0) @binding(3) var<storage, read_write> starts: array<u32>;
// Vertices of each block, those of them that were made with the slab before, and triangles.
@group(0) @binding(4) var<storage, read_write> counts: array<vec4<u32>>;

@compute @workgroup_size(BLOCK)
fn count(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (piece.first + group.x) * BLOCK + thread;
    let word = cells_of(at);
    let cut = cut_cells(word);
    let own = own_cells(at);
    var found = vec3(0u);
    if cut != 0u {
        found.x = vertices_of(word, cut);
        found.y = vertices_of(word, cut & ~own);
        for (var left = cut & own; left != 0u; left &= left - 1u) {
            found.z += triangle_count(cases[case_of(word, firstTrailingBit(left))]);
        }
    }
    let before = sums_before(thread, found);
    starts[at] = before.x;
    if thread == BLOCK - 1u {
        counts[group.x] = vec4(before + found, 0u);
    }
}
