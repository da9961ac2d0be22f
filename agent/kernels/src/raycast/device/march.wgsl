// Rays through one brick, some samples of each. Before it stand sample.wgsl, and, from the
// processor's side, the constants BLOCK, BATCH, THROUGH_MIN, SAMPLES_MAX and UNSURE, and
// ray.wgsl.

@group(0) @binding(0) var<uniform> look: Look;
// Not a uniform: a device that is software compiles a program anew for each uniform that decides a branch,
// at each dispatch that comes with one.
@group(0) @binding(1) var<storage, read> view: View;
@group(0) @binding(2) var<storage, read> table: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> tiles: array<Tile>;
// What was seen before the first sample, and after the last one.
@group(0) @binding(4) var<storage, read_write> pixels: array<vec4<f32>>;
@group(0) @binding(5) var distances: texture_3d<u32>;
@group(0) @binding(6) var voxels: texture_3d<Voxel>;

fn slope_along(position: vec3<f32>, axis: u32) -> f32 {
    var before = position;
    var after = position;
    before[axis] = max(position[axis] - 1.0, 0.0);
    after[axis] = min(position[axis] + 1.0, look.last[axis]);
    let way = (after[axis] - before[axis]) * look.spacing[axis];
    return (value(after) - value(before)) / way;
}

// By squaring: `pow` is exact to few digits, and says nothing of zero.
fn power(base: f32, exponent: u32) -> f32 {
    var product = 1.0;
    var square = base;
    for (var left = exponent; left > 0u; left >>= 1u) {
        if (left & 1u) == 1u {
            product *= square;
        }
        square *= square;
    }
    return product;
}

fn lit(colour: vec4<f32>, position: vec3<f32>, light: vec3<f32>) -> vec4<f32> {
    let slope =
        vec3(slope_along(position, 0u), slope_along(position, 1u), slope_along(position, 2u));
    let steepness = sqrt(dot(slope, slope));
    var facing = 0.0;
    if steepness > 0.0 {
        facing = min(abs(dot(slope, light) / steepness), 1.0);
    }
    let share = look.ambient + look.diffuse * facing;
    let highlight = look.specular * power(facing, look.shininess) * colour.a;
    return vec4(min(colour.rgb * share + highlight, vec3(colour.a)), colour.a);
}

// How far the nearest block is in which anything is to be seen.
fn distance_of(block: vec3<i32>) -> i32 {
    return i32(textureLoad(distances, block, 0).x);
}

// The first sample beyond the empty blocks around one.
fn beyond(ray: Ray, block: vec3<i32>, empty: i32) -> u32 {
    var nearest = f32(ray.samples);
    for (var axis = 0u; axis < 3u; axis++) {
        let step = ray.step[axis];
        if step != 0.0 {
            let border = f32(block[axis] + select(1 - empty, empty, step > 0.0)) * BLOCK;
            nearest = min(nearest, (border - ray.origin[axis]) / step);
        }
    }
    return u32(max(ceil(nearest), 0.0));
}

@compute @workgroup_size(8, 8)
fn march(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) pixel: u32) {
    let at = group.x * 64u + pixel;
    let tile = tiles[group.x];
    var seen = select(pixels[at], vec4(0.0), tile.is_fresh == 1u);
    let found = ray_of(tile, pixel);
    let ray = found.ray;
    if !found.is_sure {
        pixels[at] = vec4(0.0, 0.0, 0.0, UNSURE);
        return;
    }
    if ray.samples == 0u || 1.0 - seen.a < THROUGH_MIN {
        pixels[at] = seen;
        return;
    }
    let light = normalize(ray.step * look.spacing);
    var through = 1.0 - seen.a;
    var sample = 0u;
    while sample < ray.samples {
        let position = ray.origin + f32(sample) * ray.step;
        let block = clamp(vec3<i32>(position * (1.0 / BLOCK)), vec3(0), look.blocks - 1);
        let empty = distance_of(block);
        if empty > 0 {
            sample = max(beyond(ray, block, empty), sample + 1u);
            continue;
        }
        let end = min(sample + BATCH, ray.samples);
        for (; sample < end; sample++) {
            let position = ray.origin + f32(sample) * ray.step;
            let entry = clamp((value(position) - look.first) * look.scale + 1.0, 0.0, look.entry_last);
            var colour = table[u32(round(entry))];
            if look.is_lit == 1u && colour.a > 0.0 {
                colour = lit(colour, position, light);
            }
            seen += through * colour;
            through *= 1.0 - colour.a;
        }
        if through < THROUGH_MIN {
            break;
        }
    }
    pixels[at] = seen;
}
