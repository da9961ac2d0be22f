// Rays beside each other along the last axis that do nothing but take samples. Before it stands
// sample.wgsl.

@group(0) @binding(0) var<uniform> look: Look;
// One number of each ray, so that no sample is left out.
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var voxels: texture_3d<Voxel>;

@compute @workgroup_size(8, 8)
fn limit(@builtin(workgroup_id) tile: vec3<u32>, @builtin(local_invocation_id) pixel: vec3<u32>) {
    // The last place is the last voxel's, or just before it.
    let across = (u32(ceil(look.last.x)) + 1u) / 8u;
    let corner = vec2(tile.x % across, tile.x / across) * 8u;
    let place = vec2<f32>(corner + pixel.xy) + 0.5;
    var sum = 0.0;
    for (var depth = 0.5; depth < look.last.z; depth += 1.0) {
        sum += value(vec3(place, depth));
    }
    sums[tile.x * 64u + pixel.y * 8u + pixel.x] = sum;
}
