// Where vertices are, and where the surface faces there: what the processor computes, step by step.
// Before it stand piece.wgsl and double.wgsl, and, from the processor's side, the constants BLOCK, and
// VOXEL_BITS of one voxel.

@group(0) @binding(1) var<storage, read> voxels: array<u32>;
// The edge of each vertex; then its position and its normal.
@group(0) @binding(2) var<storage, read_write> made: array<u32>;

fn sample(at: u32) -> Double {
    if VOXEL_BITS == 32u {
        return of_single(voxels[at]);
    }
    let together = 32u / VOXEL_BITS;
    let word = voxels[at / together];
    return of_whole(extractBits(word, at % together * VOXEL_BITS, VOXEL_BITS));
}

fn number(parts: vec4<u32>) -> Double {
    return Double(parts.xy, bitcast<i32>(parts.z), parts.w == 1u);
}

// From differences over two voxels, or one at the volume's rim.
fn slope(at: u32, place: vec3<u32>, axis: u32, stride: u32) -> Double {
    let whole = vec3(piece.size.xy, piece.whole_layers);
    let before = u32(place[axis] > 0u);
    let after = u32(place[axis] + 1u < whole[axis]);
    let rise = difference(sample(at + after * stride), sample(at - before * stride));
    return quotient(rise, number(piece.ways[2u * axis + before + after - 1u]));
}

@compute @workgroup_size(BLOCK)
fn vertices(@builtin(global_invocation_id) thread: vec3<u32>) {
    if thread.x >= piece.vertices {
        return;
    }
    let edge = made[thread.x];
    let from_voxel = edge / 3u;
    let along = edge % 3u;
    let layer = piece.size.x * piece.size.y;
    let strides = vec3(1u, piece.size.x, layer);
    let to_voxel = from_voxel + strides[along];
    let from_place = vec3(
        from_voxel % piece.size.x,
        from_voxel / piece.size.x % piece.size.y,
        from_voxel / layer + piece.first_layer,
    );
    var to_place = from_place;
    to_place[along] += 1u;

    let low = sample(from_voxel);
    let rise = difference(sample(to_voxel), low);
    // One is inside and the other is not, so they differ.
    let share = quotient(difference(of_single(piece.value), low), rise);
    let first = piece.vertices + 6u * thread.x;
    var slopes: array<Double, 3>;
    var squares = zero(false);
    for (var axis = 0u; axis < 3u; axis++) {
        var place = of_whole(from_place[axis]);
        if axis == along {
            place = sum(place, share);
        }
        made[first + axis] = to_single(product(place, number(piece.spacing[axis])));
        let at_low = slope(from_voxel, from_place, axis, strides[axis]);
        let at_high = slope(to_voxel, to_place, axis, strides[axis]);
        slopes[axis] = sum(at_low, product(share, difference(at_high, at_low)));
        squares = sum(squares, product(slopes[axis], slopes[axis]));
    }
    let length = root(squares);
    for (var axis = 0u; axis < 3u; axis++) {
        var normal = zero(false);
        if !is_zero(length) {
            normal = quotient(negated(slopes[axis]), length);
        } else if axis == along {
            // Slopes that cancel out; the edge itself leads downwards.
            normal = of_whole(1u);
            normal.negative = !rise.negative;
        }
        made[first + 3u + axis] = to_single(normal);
    }
}
