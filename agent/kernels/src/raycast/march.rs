//! One ray through one brick.

use super::camera::Ray;
use super::grid::{Grid, LANES, nearest};
use super::scene::{Scene, Shading};
use super::transfer::TABLE_ENTRIES;
use crate::image::Rgba;
use crate::limits::{MACRO_CELL, THROUGH_MIN};
use crate::volume::Voxel;

/// A ray in voxels of a brick, a step long.
pub(super) struct Path {
    pub(super) origin: [f64; 3],
    pub(super) step: [f64; 3],
    /// One over each part of the step.
    inverse: [f64; 3],
    /// The whole numbers of steps, from the first to before the second, that end in the brick.
    pub(super) samples: (f64, f64),
}

/// What a ray meets in a scene.
#[inline(always)]
pub(super) fn march<T: Voxel>(scene: &Scene, grid: &Grid<'_, T>, ray: &Ray) -> Rgba {
    let Some(path) = Path::of(scene, ray) else { return [0.0; 4] };
    // Light comes from the eye.
    let light = ray.direction.map(|part| part as f32);
    let mut seen = [0.0; 4];
    let mut through = 1.0_f32;
    let (mut sample, end) = path.samples;
    while sample < end {
        let at = [0, 1, 2].map(|axis| path.origin[axis] + sample * path.step[axis]);
        if let Some(next) = path.beyond_empty(scene, &at) {
            sample = next.max(sample + 1.0);
            continue;
        }
        let count = (end - sample).min(LANES as f64) as usize;
        batch(scene, grid, &at, &path.step, count, &light, &mut seen, &mut through);
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
    pub(super) fn of(scene: &Scene, ray: &Ray) -> Option<Self> {
        let spacing = scene.brick.voxels().spacing();
        let first = scene.brick.first();
        // The borders of bricks are met in the whole volume's numbers, the same for both sides.
        let global = [0, 1, 2].map(|axis| ray.origin[axis] / spacing[axis]);
        let step = [0, 1, 2].map(|axis| ray.direction[axis] * scene.step / spacing[axis]);
        let inverse = step.map(|part| 1.0 / part);
        let mut samples = (0.0_f64, f64::INFINITY);
        for axis in 0..3 {
            let cells = &scene.brick.cells()[axis];
            let (low, high) = (cells.start as f64, cells.end as f64);
            if step[axis] == 0.0 {
                if !(low <= global[axis] && global[axis] < high) {
                    return None;
                }
                continue;
            }
            let to_low = ((low - global[axis]) * inverse[axis]).ceil();
            let to_high = ((high - global[axis]) * inverse[axis]).ceil();
            samples.0 = samples.0.max(to_low.min(to_high));
            samples.1 = samples.1.min(to_low.max(to_high));
        }
        if samples.0 >= samples.1 || !samples.1.is_finite() {
            return None;
        }
        let origin = [0, 1, 2].map(|axis| global[axis] - first[axis] as f64);
        Some(Self { origin, step, inverse, samples })
    }

    /// The first sample beyond the empty blocks around a position, if it is in one.
    #[inline(always)]
    fn beyond_empty(&self, scene: &Scene, at: &[f64; 3]) -> Option<f64> {
        const BLOCK: f64 = MACRO_CELL as f64;
        let block = [0, 1, 2].map(|axis| {
            let block = (at[axis] * (1.0 / BLOCK)).max(0.0) as i32;
            block.min(scene.blocks[axis] as i32 - 1)
        });
        let index = block[0] as usize
            + scene.blocks[0] * (block[1] as usize + scene.blocks[1] * block[2] as usize);
        let distance = i32::from(scene.distances[index]);
        if distance == 0 {
            return None;
        }
        let mut nearest = f64::INFINITY;
        for (axis, block) in block.into_iter().enumerate() {
            let step = self.step[axis];
            if step != 0.0 {
                let blocks = block + if step > 0.0 { distance } else { 1 - distance };
                let border = f64::from(blocks) * BLOCK;
                nearest = nearest.min((border - self.origin[axis]) * self.inverse[axis]);
            }
        }
        Some(nearest.ceil())
    }
}

/// Takes the next samples and puts the first `count` of them behind what is `seen`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the inner loop; a struct of them costs its speed")]
fn batch<T: Voxel>(
    scene: &Scene,
    grid: &Grid<'_, T>,
    at: &[f64; 3],
    step: &[f64; 3],
    count: usize,
    light: &[f32; 3],
    seen: &mut Rgba,
    through: &mut f32,
) {
    let (at, step) = (at.map(|part| part as f32), step.map(|part| part as f32));
    let mut positions = [[0.0; LANES]; 3];
    for (lanes, (at, step)) in positions.iter_mut().zip(at.into_iter().zip(step)) {
        for (l, position) in lanes.iter_mut().enumerate() {
            *position = at + l as f32 * step;
        }
    }
    let values = grid.values(&positions[0], &positions[1], &positions[2]);
    let table = &scene.table;
    let mut scaled = [0.0; LANES];
    for l in 0..LANES {
        let entry = (values[l] - table.low) * table.scale;
        scaled[l] = entry.max(0.0).min((TABLE_ENTRIES - 1) as f32);
    }
    let entries = nearest(&scaled);
    if let Some(shading) = &scene.shading {
        for l in 0..count.min(LANES) {
            let mut colour = table.entries[entries[l] as usize % TABLE_ENTRIES];
            if colour[3] > 0.0 {
                let at = [0, 1, 2].map(|axis| positions[axis][l]);
                let slope = slope(grid, at, scene.brick.voxels().spacing());
                lit(&mut colour, shading, slope, light);
                behind(seen, through, &colour);
            }
        }
    } else {
        for entry in &entries[..count.min(LANES)] {
            behind(seen, through, &table.entries[*entry as usize % TABLE_ENTRIES]);
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

/// The gradient at a position, from differences over two voxels (one at the volume's rim).
#[inline(always)]
fn slope<T: Voxel>(grid: &Grid<'_, T>, at: [f32; 3], spacing: [f64; 3]) -> [f32; 3] {
    let mut around = [[0.0; LANES]; 3];
    for axis in 0..3 {
        around[axis] = [at[axis]; LANES];
        around[axis][2 * axis] = (at[axis] - 1.0).max(0.0);
        around[axis][2 * axis + 1] = (at[axis] + 1.0).min(grid.last[axis]);
    }
    let values = grid.values(&around[0], &around[1], &around[2]);
    [0, 1, 2].map(|axis| {
        let way = around[axis][2 * axis + 1] - around[axis][2 * axis];
        (values[2 * axis + 1] - values[2 * axis]) / (way * spacing[axis] as f32)
    })
}

/// Lights a premultiplied colour. A place without a slope faces nowhere.
#[inline(always)]
fn lit(colour: &mut Rgba, shading: &Shading, slope: [f32; 3], light: &[f32; 3]) {
    let length = dot32(slope, slope).sqrt();
    let facing = if length > 0.0 { (dot32(slope, *light) / length).abs().min(1.0) } else { 0.0 };
    let share = shading.ambient + shading.diffuse * facing;
    let highlight = if shading.specular > 0.0 {
        shading.specular * facing.powi(i32::from(shading.shininess)) * colour[3]
    } else {
        0.0
    };
    let opacity = colour[3];
    for channel in &mut colour[..3] {
        *channel = (*channel * share + highlight).min(opacity);
    }
}

#[inline(always)]
fn dot32(a: [f32; 3], b: [f32; 3]) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}
