// Which voxels are inside of a surface, a bit for each. Before it stand piece.wgsl, and, from the
// processor's side, the constants BLOCK, and VOXEL_BITS of one voxel: 8 or 16 of a whole number, or 32
// of single precision.

@group(0) @binding(1) var<storage, read> voxels: array<u32>;
@group(0) @binding(2) var<storage, read_write> bits: array<u32>;

// In the order of the values. Compared as numbers, some devices would take small ones for zero.
fn key(voxel: u32) -> u32 {
    if VOXEL_BITS < 32u {
        return voxel;
    }
    // There are two zeros.
    let number = select(voxel, 0u, voxel == 0x80000000u);
    return select(number | 0x80000000u, ~number, (number >> 31u) == 1u);
}

@compute @workgroup_size(BLOCK)
fn inside(@builtin(global_invocation_id) thread: vec3<u32>) {
    let word = piece.first + thread.x;
    if word >= piece.end {
        return;
    }
    let loaded = 32u / VOXEL_BITS;
    var found = 0u;
    for (var load = 0u; load < VOXEL_BITS; load++) {
        let together = voxels[word * VOXEL_BITS + load];
        for (var at = 0u; at < loaded; at++) {
            let voxel = extractBits(together, at * VOXEL_BITS, VOXEL_BITS);
            found |= u32(key(voxel) >= piece.threshold) << (load * loaded + at);
        }
    }
    bits[word] = found;
}
