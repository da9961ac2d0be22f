// A tile's rays, from what they have in common: tile.rs says how. Before it stands sample.wgsl;
// `view` and `tiles` are bound by whoever casts them.

struct View {
    across: vec3<f32>,
    is_parallel: u32,
    down: vec3<f32>,
    unused: u32,
    pace: vec3<f32>,
    unused_too: u32,
}

struct Tile {
    origin: vec3<f32>,
    base: f32,
    step: vec3<f32>,
    shorter: f32,
    low_whole: vec3<f32>,
    either: u32,
    low_part: vec3<f32>,
    still: u32,
    low_way: vec3<f32>,
    rays_above: u32,
    high_whole: vec3<f32>,
    rays_below: u32,
    high_part: vec3<f32>,
    first: u32,
    high_way: vec3<f32>,
    is_fresh: u32,
}

struct Ray {
    // The first sample, in voxels of the brick.
    origin: vec3<f32>,
    samples: u32,
    // From one sample to the next.
    step: vec3<f32>,
}

struct Found {
    ray: Ray,
    // Whether rounding has no part in which samples it takes, and next to none in where.
    is_sure: bool,
}

// By how much a ray differs from the middle one of its tile, in voxels.
struct Change {
    // Of the whole ray.
    shift: vec3<f32>,
    // Of each step.
    turn: vec3<f32>,
    // How wrong the one of them may be that there is.
    error: vec3<f32>,
    // Whether it can be told at all.
    is_told: bool,
}

// Steps to a border along each axis, rounded up: the least and the most that they may be.
struct Steps {
    least: vec3<f32>,
    most: vec3<f32>,
}

// Some times what rounding makes of one.
const ROUNDING = 6e-7;
// The same of double precision, in which a tile's numbers were found.
const DOUBLE_ROUNDING = 1e-15;
// Voxels that a sample may be from its place: less than what a device makes of a hundredth of a step
// from black to white.
const OFF_MAX = 4e-3;
// More steps than any ray takes.
const NEVER = 1e30;
// Of all axes: no ray of the tile is sure.
const DOUBTFUL = 8u;
// Of the square of a direction's length, what has to be left by what is put to it.
const SHORT_MIN = 1e-3;
// No part of a step is shorter, but where it is zero: some devices take smaller numbers for that.
const STEP_MIN = 1e-30;

fn bits(axes: u32) -> vec3<bool> {
    return (vec3(axes) & vec3(1u, 2u, 4u)) != vec3(0u);
}

fn change_of(tile: Tile, pixel: u32) -> Change {
    let place = vec2(f32(pixel % 8u), f32(pixel / 8u)) - 3.5;
    let across = place.x * view.across * tile.shorter;
    let down = place.y * view.down * tile.shorter;
    let aside = across + down;
    if view.is_parallel == 1u {
        let error = ROUNDING * (abs(across) + abs(down))
            + DOUBLE_ROUNDING * (abs(tile.low_way) + abs(tile.high_way));
        return Change(aside, vec3(0.0), error, true);
    }
    // A direction of length one and what is put to it, made one of length one again.
    let middle = tile.step / view.pace;
    let longer = 2.0 * dot(middle, aside) + dot(aside, aside);
    let square = max(1.0 + longer, SHORT_MIN);
    let root = sqrt(square);
    let back = longer / (root * (1.0 + root));
    let turn = (aside - back * (middle + aside)) * view.pace;
    // The shorter it had become, the more of what it is comes from rounding.
    let error = (ROUNDING * length(aside) * (1.0 + 1.0 / square) + DOUBLE_ROUNDING) * view.pace;
    return Change(vec3(0.0), turn, error, square > SHORT_MIN);
}

// The step of a ray along each axis, in no case zero.
fn own_step(tile: Tile, change: Change) -> vec3<f32> {
    let step = tile.step + change.turn;
    return select(step, vec3(STEP_MIN), abs(step) < vec3(STEP_MIN));
}

// How wrong its turn may be.
fn error_of_turn(change: Change) -> vec3<f32> {
    return select(change.error, vec3(0.0), view.is_parallel == 1u);
}

// And how wrong that step, along axes of either way.
fn error_of_step(tile: Tile, change: Change) -> vec3<f32> {
    return error_of_turn(change) + ROUNDING * abs(tile.step);
}

fn steps_to(
    tile: Tile, change: Change, whole: vec3<f32>, part: vec3<f32>, way: vec3<f32>,
) -> Steps {
    let either = bits(tile.either);
    let own = own_step(tile, change);
    var more = -change.shift / own;
    var error = change.error / abs(own);
    if view.is_parallel == 0u {
        more = -(way / select(tile.step, vec3(1.0), either)) * (change.turn / own);
        error *= abs(way / own);
    }
    let by_own = (way - change.shift) / own;
    let of_way = ROUNDING * abs(way) + change.error - error_of_turn(change);
    let wrong = of_way / abs(own) + abs(by_own / own) * error_of_step(tile, change);
    more = select(more, by_own - tile.base, either);
    error = select(error, wrong + ROUNDING * tile.base, either);

    // Where rays are parallel and none of them is shifted along an axis, all are as the middle one.
    let is_same = bits(tile.still)
        | (!either & (change.shift == vec3(0.0)) & vec3(view.is_parallel == 1u));
    let steps = part + select(more, vec3(0.0), is_same);
    error = select(error + ROUNDING * (abs(part) + abs(more)), vec3(0.0), is_same);
    return Steps(whole + ceil(steps - error), whole + ceil(steps + error));
}

fn ray_of(tile: Tile, pixel: u32) -> Found {
    var found = Found(Ray(vec3(0.0), 0u, vec3(0.0)), true);
    if ((select(tile.rays_above, tile.rays_below, pixel >= 32u) >> (pixel % 32u)) & 1u) == 0u {
        return found;
    }
    let change = change_of(tile, pixel);
    if tile.either == DOUBTFUL || !change.is_told {
        found.is_sure = false;
        return found;
    }
    let low = steps_to(tile, change, tile.low_whole, tile.low_part, tile.low_way);
    let high = steps_to(tile, change, tile.high_whole, tile.high_part, tile.high_way);
    var near = Steps(min(low.least, high.least), min(low.most, high.most));
    var far = Steps(max(low.least, high.least), max(low.most, high.most));
    if view.is_parallel == 0u {
        // Which way these go is not known, but how slowly.
        let step = abs(own_step(tile, change));
        let error = error_of_step(tile, change);
        let is_unknown = bits(tile.either) & (step < 2.0 * error);
        let way = min(abs(tile.low_way), abs(tile.high_way));
        let least = way / (step + error) * (1.0 - ROUNDING) - tile.base * (1.0 + ROUNDING);
        let is_between = (tile.low_way < vec3(0.0)) & (tile.high_way > vec3(0.0));
        near.least = select(near.least, select(least, vec3(-NEVER), is_between), is_unknown);
        near.most = select(near.most, select(vec3(NEVER), vec3(-NEVER), is_between), is_unknown);
        far.least = select(far.least, select(vec3(-NEVER), least, is_between), is_unknown);
        far.most = select(far.most, vec3(NEVER), is_unknown);
    }
    // No sample is behind the eye.
    let enters = vec2(
        max(max(near.least.x, near.least.y), max(near.least.z, -tile.base)),
        max(max(near.most.x, near.most.y), max(near.most.z, -tile.base)),
    );
    let leaves = vec2(
        min(min(far.least.x, far.least.y), far.least.z),
        min(min(far.most.x, far.most.y), far.most.z),
    );
    if enters.x >= leaves.y {
        return found;
    }
    let farthest = max(abs(enters.x), abs(leaves.y));
    let off = (farthest + tile.base) * error_of_turn(change)
        + ROUNDING * (abs(tile.origin) + farthest * abs(tile.step));
    found.is_sure =
        enters.x == enters.y && leaves.x == leaves.y && all(off < vec3(OFF_MAX));
    let first = enters.x + f32(tile.first);
    let count = min(leaves.x - first, SAMPLES_MAX);
    if count > 0.0 {
        let step = tile.step + change.turn;
        found.ray.step = select(step, vec3(0.0), abs(step) < vec3(STEP_MIN));
        found.ray.origin = tile.origin + (change.shift + tile.base * change.turn) + first * step;
        found.ray.samples = u32(count);
    }
    return found;
}
