// One sample of a brick. Before it stands, from the processor's side, `alias Voxel`; `look` and
// `voxels` are bound by whoever takes samples.

struct Look {
    // The last position along each axis that still has a voxel after it.
    last: vec3<f32>,
    // The value of the table's first entry, and entries per value.
    first: f32,
    spacing: vec3<f32>,
    scale: f32,
    blocks: vec3<i32>,
    is_lit: u32,
    ambient: f32,
    diffuse: f32,
    specular: f32,
    shininess: u32,
    entry_last: f32,
}

fn voxel(at: vec3<i32>) -> f32 {
    return f32(textureLoad(voxels, at, 0).x);
}

fn between(low: f32, high: f32, share: f32) -> f32 {
    return low + share * (high - low);
}

// Trilinear between voxels; what is outside is moved to the rim. Not by a sampler: these know 256
// places between two voxels.
fn value(position: vec3<f32>) -> f32 {
    let inside = clamp(position, vec3(0.0), look.last);
    let low = floor(inside);
    let share = inside - low;
    let at = vec3<i32>(low);
    let near_low = between(voxel(at), voxel(at + vec3(1, 0, 0)), share.x);
    let near_high = between(voxel(at + vec3(0, 1, 0)), voxel(at + vec3(1, 1, 0)), share.x);
    let far_low = between(voxel(at + vec3(0, 0, 1)), voxel(at + vec3(1, 0, 1)), share.x);
    let far_high = between(voxel(at + vec3(0, 1, 1)), voxel(at + vec3(1, 1, 1)), share.x);
    let near = between(near_low, near_high, share.y);
    let far = between(far_low, far_high, share.y);
    return between(near, far, share.z);
}
