//! One ray through one brick.

use super::camera::Ray;
use super::grid::{Grid, nearest};
use super::scene::{Borders, Scene, Shading};
use crate::image::Rgba;
use crate::limits::{MACRO_CELL, RAY_STEPS_MAX, THROUGH_MIN};
use crate::volume::Voxel;

/// Samples that a ray takes at once: two registers of a processor that has wide ones, so that it has
/// something to do while it waits for one of these.
const LANES: usize = 16;
/// Samples that are lit at once.
const LIT: usize = 2;
/// The neighbours of each along the axes, in a register.
const AROUND: usize = 8;

/// A ray in voxels of a brick, a step long.
struct Path {
    origin: [f64; 3],
    step: [f64; 3],
    /// One over each part of the step.
    inverse: [f64; 3],
    /// The whole numbers of steps, from the first to before the second, that end in the brick.
    samples: (f64, f64),
}

/// What a ray has seen once it comes out of a scene, or of the part of it within some borders, behind
/// what it saw before.
#[inline(always)]
pub(super) fn march<T: Voxel>(
    scene: &Scene,
    borders: &Borders,
    grid: &Grid<'_, T>,
    ray: &Ray,
    before: Rgba,
) -> Rgba {
    let Some(path) = Path::of(scene, borders, ray) else { return before };
    // Light comes from the eye.
    let light = ray.direction.map(|part| part as f32);
    let step = path.step.map(|part| part as f32);
    let mut seen = before;
    let mut through = 1.0 - before[3];
    let (mut sample, end) = path.samples;
    while sample < end {
        let at = [0, 1, 2].map(|axis| (path.origin[axis] + sample * path.step[axis]) as f32);
        if scene.has_empty
            && let Some(next) = path.beyond_empty(scene, &at)
        {
            sample = next.max(sample + 1.0);
            continue;
        }
        let left = ((end - sample) as f32).min(LANES as f32);
        batch(scene, grid, &at, &step, left, &light, &mut seen, &mut through);
        if through < THROUGH_MIN {
            break;
        }
        sample += LANES as f64;
    }
    seen
}

impl Path {
    /// The path of a ray through a scene, if it takes a sample there.
    #[inline(always)]
    fn of(scene: &Scene, borders: &Borders, ray: &Ray) -> Option<Self> {
        let (density, first) = (scene.density, scene.brick.first());
        // The borders of bricks are met in the whole volume's numbers, the same for both sides.
        let global = [0, 1, 2].map(|axis| ray.origin[axis] * density[axis]);
        let step = [0, 1, 2].map(|axis| ray.direction[axis] * (scene.step * density[axis]));
        let inverse = step.map(|part| 1.0 / part);
        let mut samples = (0.0_f64, f64::INFINITY);
        for axis in 0..3 {
            let (low, high) = borders[axis];
            let to_low = steps(low - global[axis], inverse[axis]).ceil();
            let to_high = steps(high - global[axis], inverse[axis]).ceil();
            let is_inside = (low <= global[axis]) & (global[axis] < high);
            let (enters, leaves) = if step[axis] != 0.0 {
                (lower(to_low, to_high), upper(to_low, to_high))
            } else if is_inside {
                (f64::NEG_INFINITY, f64::INFINITY)
            } else {
                (f64::INFINITY, f64::NEG_INFINITY)
            };
            samples = (upper(enters, samples.0), lower(leaves, samples.1));
        }
        // So far out samples are not told apart.
        if samples.0 >= samples.1 || samples.1 > RAY_STEPS_MAX as f64 {
            return None;
        }
        let origin = [0, 1, 2].map(|axis| global[axis] - first[axis] as f64);
        Some(Self { origin, step, inverse, samples })
    }

    /// The first sample beyond the empty blocks around a position, if it is in one.
    #[inline(always)]
    fn beyond_empty(&self, scene: &Scene, at: &[f32; 3]) -> Option<f64> {
        const BLOCK: f64 = MACRO_CELL as f64;
        let [bx, by, bz] = blocks(at, &scene.blocks);
        let index = bx as usize + scene.blocks[0] * (by as usize + scene.blocks[1] * bz as usize);
        let distance = i32::from(scene.distances[index]);
        if distance == 0 {
            return None;
        }
        let mut nearest = f64::INFINITY;
        for (axis, block) in [bx, by, bz].into_iter().enumerate() {
            let step = self.step[axis];
            if step != 0.0 {
                let blocks = block as i32 + if step > 0.0 { distance } else { 1 - distance };
                let border = f64::from(blocks) * BLOCK;
                nearest = lower((border - self.origin[axis]) * self.inverse[axis], nearest);
            }
        }
        Some(nearest.ceil())
    }
}

/// Steps to a border. What rounding alone makes of a sample on a border would be inside for one ray
/// and outside for the next: such a sample counts as one on it.
#[inline(always)]
pub(super) fn steps(way: f64, inverse: f64) -> f64 {
    way * inverse - ON_BORDER
}

/// Steps from a sample to a border that it is on.
pub(super) const ON_BORDER: f64 = 1e-9;

/// The lower one, or the second where one is no number: one instruction.
#[inline(always)]
fn lower(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The upper one, or the second where one is no number.
#[inline(always)]
fn upper(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The block of cells that a position is in, of so many; one on a border is in either.
#[inline(always)]
fn blocks(at: &[f32; 3], counts: &[usize; 3]) -> [u32; 3] {
    let mut middles = [0.0; 4];
    for axis in 0..3 {
        let last = (counts[axis] - 1) as f32;
        middles[axis] = (at[axis] * (1.0 / MACRO_CELL as f32) - 0.5).max(0.0).min(last);
    }
    let [x, y, z, ..] = nearest(&middles);
    [x, y, z]
}

/// Takes the next samples and puts those that are `left` behind what is `seen`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the inner loop; a struct of them costs its speed")]
fn batch<T: Voxel>(
    scene: &Scene,
    grid: &Grid<'_, T>,
    at: &[f32; 3],
    step: &[f32; 3],
    left: f32,
    light: &[f32; 3],
    seen: &mut Rgba,
    through: &mut f32,
) {
    let mut positions = [[0.0; LANES]; 3];
    for (lanes, (at, step)) in positions.iter_mut().zip(at.iter().zip(step)) {
        for (l, position) in lanes.iter_mut().enumerate() {
            *position = at + l as f32 * step;
        }
    }
    let values = grid.values(&positions[0], &positions[1], &positions[2]);
    let table = &scene.table;
    let mut scaled = [0.0; LANES];
    for l in 0..LANES {
        scaled[l] = table.place(values[l]).max(0.0).min(table.last);
    }
    if table.has_clear && !table.is_any_seen(&scaled) {
        return;
    }
    let mut entries = nearest(&scaled);
    for (l, entry) in entries.iter_mut().enumerate() {
        *entry = if (l as f32) < left { *entry } else { table.clear };
    }
    if let Some(shading) = &scene.shading {
        let (mut lanes, mut count) = ([0; LANES], 0);
        for (l, entry) in entries.iter().enumerate() {
            lanes[count] = l;
            count += usize::from(table.entries[*entry as usize][3] > 0.0);
        }
        for lanes in lanes[..count].chunks(LIT) {
            // The last one may be alone.
            let at = [lanes[0], lanes[lanes.len() - 1]]
                .map(|l| [0, 1, 2].map(|axis| positions[axis][l]));
            let slopes = slopes(grid, &at, &scene.proportions);
            for (l, slope) in lanes.iter().zip(slopes) {
                let mut colour = table.entries[entries[*l] as usize];
                lit(&mut colour, shading, slope, light);
                behind(seen, through, &colour);
            }
        }
    } else {
        for entry in entries {
            behind(seen, through, &table.entries[entry as usize]);
        }
    }
}

/// Puts a colour behind what is `seen`.
#[inline(always)]
fn behind(seen: &mut Rgba, through: &mut f32, colour: &Rgba) {
    for (seen, channel) in seen.iter_mut().zip(colour) {
        *seen += *through * channel;
    }
    *through *= 1.0 - colour[3];
}

/// The gradients at positions, from differences over two voxels (one at the volume's rim).
#[inline(always)]
fn slopes<T: Voxel>(
    grid: &Grid<'_, T>,
    at: &[[f32; 3]; LIT],
    proportions: &[f32; 3],
) -> [[f32; 3]; LIT] {
    let mut around = [[0.0; LIT * AROUND]; 3];
    for (i, at) in at.iter().enumerate() {
        for axis in 0..3 {
            let around = &mut around[axis][i * AROUND..(i + 1) * AROUND];
            around.fill(at[axis]);
            around[2 * axis] = (at[axis] - 1.0).max(0.0);
            around[2 * axis + 1] = (at[axis] + 1.0).min(grid.last[axis]);
        }
    }
    let values = grid.values(&around[0], &around[1], &around[2]);
    let mut slopes = [[0.0; 3]; LIT];
    for (i, slope) in slopes.iter_mut().enumerate() {
        for axis in 0..3 {
            let (low, high) = (i * AROUND + 2 * axis, i * AROUND + 2 * axis + 1);
            let way = around[axis][high] - around[axis][low];
            slope[axis] = (values[high] - values[low]) / (way * proportions[axis]);
        }
    }
    slopes
}

/// Lights a premultiplied colour. A place without a slope faces nowhere.
#[inline(always)]
fn lit(colour: &mut Rgba, shading: &Shading, slope: [f32; 3], light: &[f32; 3]) {
    let length = dot32(slope, slope).sqrt();
    let facing = if length > 0.0 { (dot32(slope, *light) / length).abs().min(1.0) } else { 0.0 };
    let share = shading.ambient + shading.diffuse * facing;
    let highlight = if shading.specular > 0.0 {
        shading.specular * power(facing, shading.shininess) * colour[3]
    } else {
        0.0
    };
    let opacity = colour[3];
    for channel in &mut colour[..3] {
        *channel = (*channel * share + highlight).min(opacity);
    }
}

/// By squares; what the library has for it is called, and calls in the inner loop cost its registers.
#[inline(always)]
fn power(mut base: f32, mut exponent: u16) -> f32 {
    let mut power = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            power *= base;
        }
        base *= base;
        exponent /= 2;
    }
    power
}

#[inline(always)]
fn dot32(a: [f32; 3], b: [f32; 3]) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}
