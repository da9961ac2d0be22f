//! What the rays of a tile have in common, and what a device makes them from.
//!
//! Which samples of a ray are in a brick is a question of the number of steps from the eye to the
//! brick's borders, rounded up: thousands, of which the last digit counts. The processor asks it in
//! double precision, ray by ray, and a device has single precision. So the large numbers are found
//! here, once for the ray through the middle of a tile, and the device adds by how much its other
//! rays differ from that one, which is a small number and so an exact one:
//!
//! ```text
//! steps to a border, along an axis      whole + part            of the middle ray, in f64
//!   of a ray that is turned (view.across, view.down)
//!                                     - way / step · turn / (step + turn)
//!   of a ray that is shifted          - shift / step
//! ```
//!
//! The device reckons with its own rounding, and with that of the numbers that it gets. Where it could
//! decide which samples are in the brick, or move them, the ray is left to the processor
//! ([`UNSURE`](super::caster)): of a million rays of an ordinary picture a few, and all of a view so
//! wide, so far or so distorted that single precision is not enough.

use bytemuck::{Pod, Zeroable};

use super::super::camera::{Camera, Pixel, Ray, dot};
use super::super::march::{ON_BORDER, steps};
use super::super::scene::{Borders, Scene};
use crate::limits::TILE;

/// What the rays of a tile have in common, as the device reads it. What has three parts has one for
/// each axis; places are in voxels of the brick.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DeviceTile {
    /// Where the middle ray's sample number `base` is.
    origin: [f32; 3],
    /// Steps from the eye from which on samples are counted.
    base: f32,
    /// From one sample of the middle ray to the next.
    step: [f32; 3],
    /// One over the middle ray's length between the eye and the plane at distance one.
    shorter: f32,
    /// Steps of the middle ray to the lower border, from `base`, rounded up, and what was added by
    /// that, from above -1 to 0.
    low_whole: [f32; 3],
    /// Axes, as bits, along which rays of the tile may go either way, or so slowly that its middle ray
    /// says nothing of the others: steps to borders are the way there over the ray's own step.
    /// [`DOUBTFUL`]: all that is said here is too coarse.
    either: u32,
    low_part: [f32; 3],
    /// Axes, as bits, along which no ray of the tile goes: all of `rays` are between their borders.
    still: u32,
    /// From the eye to the lower border, in voxels.
    low_way: [f32; 3],
    /// Bits of the rays that there are, row by row: the first 32 here.
    rays_above: u32,
    high_whole: [f32; 3],
    rays_below: u32,
    high_part: [f32; 3],
    /// The first sample of a ray in the brick that is not passed over.
    first: u32,
    high_way: [f32; 3],
    /// Whether nothing was seen before.
    is_fresh: u32,
}

/// From one pixel to others, as the device reads it.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DeviceView {
    /// To the next pixel of a row: by how much a direction is turned, in the unit of space at
    /// distance one, or, where rays are parallel, by how much they are shifted, in voxels.
    across: [f32; 3],
    is_parallel: u32,
    /// The same, to the next row.
    down: [f32; 3],
    unused: u32,
    /// Voxels of a step along each axis.
    pace: [f32; 3],
    unused_too: u32,
}

/// Steps from `base` that are counted in single precision; borders that are further away are found by a
/// ray's own step.
const COUNTED_MAX: f64 = 1e7;
/// More steps than any ray takes: to the borders of axes along which none goes. In ray.wgsl as well.
const NEVER: f32 = 1e30;
/// A bit beside those of the axes: no ray of the tile is sure.
const DOUBTFUL: u32 = 8;

impl DeviceView {
    pub(super) fn of(scene: &Scene, camera: &Camera) -> Self {
        let Pixel { across, down, is_parallel } = camera.pixel();
        let told = |way: [f64; 3]| {
            let scale = |axis: usize| if is_parallel { scene.density[axis] } else { 1.0 };
            [0, 1, 2].map(|axis| (way[axis] * scale(axis)) as f32)
        };
        Self {
            across: told(across),
            is_parallel: is_parallel.into(),
            down: told(down),
            unused: 0,
            pace: scene.density.map(|density| (scene.step * density) as f32),
            unused_too: 0,
        }
    }
}

impl DeviceTile {
    /// A tile of no rays.
    pub(super) const NONE: Self = Self {
        origin: [0.0; 3],
        base: 0.0,
        step: [0.0; 3],
        shorter: 0.0,
        low_whole: [0.0; 3],
        either: 0,
        low_part: [0.0; 3],
        still: 0,
        low_way: [0.0; 3],
        rays_above: 0,
        high_whole: [0.0; 3],
        rays_below: 0,
        high_part: [0.0; 3],
        first: 0,
        high_way: [0.0; 3],
        is_fresh: 1,
    };

    /// The tile whose first pixel is at `corner`, if its rays may come through what is between
    /// `borders` of the brick: their samples from the `first` on, behind what they saw before unless
    /// that `is_fresh`.
    pub(super) fn of(
        scene: &Scene,
        borders: &Borders,
        camera: &Camera,
        corner: [usize; 2],
        first: usize,
        is_fresh: bool,
    ) -> Option<Self> {
        let half = TILE as f64 / 2.0;
        let ray = camera.ray_through(corner[0] as f64 + half, corner[1] as f64 + half);
        let Pixel { across, down, is_parallel } = camera.pixel();
        let shorter = if is_parallel { 1.0 } else { dot(ray.direction, camera.forward()) };
        // How far a ray of the tile may be from its middle one, at distance one or everywhere.
        let reach = half * (dot(across, across).sqrt() + dot(down, down).sqrt()) * shorter;
        let ball = Ball::around(scene, borders, &ray);
        if ball.is_missed(reach, is_parallel) {
            return None;
        }

        let density = scene.density;
        let eye = [0, 1, 2].map(|axis| ray.origin[axis] * density[axis]);
        let step = [0, 1, 2].map(|axis| ray.direction[axis] * (scene.step * density[axis]));
        let ways = [0, 1, 2].map(|axis| {
            let (low, high) = borders[axis];
            [low - eye[axis], high - eye[axis]]
        });
        // As a ray's own path has it, so that it is the same number.
        let steps = [0, 1, 2].map(|axis| ways[axis].map(|way| steps(way, 1.0 / step[axis])));
        let is_still = step.map(|part| is_parallel && part == 0.0);
        // By how much a step may be longer or shorter, or the way to a border.
        let change = density.map(|voxels| match is_parallel {
            true => reach * voxels,
            false => reach * scene.step * voxels,
        });
        let is_turning =
            [0, 1, 2].map(|axis| !is_parallel && step[axis].abs() < 2.0 * change[axis]);
        let base = ((ball.along - ball.radius) / scene.step).floor().max(0.0);
        let is_either = [0, 1, 2].map(|axis| {
            let share = change[axis] / step[axis].abs();
            let is_far = |steps: f64| {
                let more = if is_parallel { share } else { 2.0 * share * steps.abs() };
                (steps - base).abs() + more > COUNTED_MAX
            };
            is_turning[axis] || !is_still[axis] && steps[axis].iter().any(|steps| is_far(*steps))
        });
        let bits = |axes: [bool; 3]| (0..3).map(|axis| u32::from(axes[axis]) << axis).sum();
        let side = |high: usize| {
            let of = |axis: usize| match (is_still[axis], is_either[axis]) {
                (true, _) => (if high == 0 { -f64::from(NEVER) } else { NEVER.into() }, 0.0),
                (_, true) => (0.0, -ON_BORDER),
                _ => {
                    let whole = steps[axis][high].ceil();
                    (whole - base, steps[axis][high] - whole)
                }
            };
            // One that is rounded to -1 would be a step less.
            let part = |axis: usize| (of(axis).1 as f32).max((-1.0_f32).next_up());
            (
                [0, 1, 2].map(|axis| of(axis).0 as f32),
                [0, 1, 2].map(part),
                [0, 1, 2].map(|axis| ways[axis][high] as f32),
            )
        };
        let ((low_whole, low_part, low_way), (high_whole, high_part, high_way)) =
            (side(0), side(1));
        let rays = rays((scene, borders), camera, corner, is_still, reach);
        if rays == 0 {
            return None;
        }
        let first_voxel = scene.brick.first();
        let mut told = Self {
            origin: [0, 1, 2]
                .map(|axis| (eye[axis] - first_voxel[axis] as f64 + base * step[axis]) as f32),
            base: base as f32,
            step: step.map(|part| part as f32),
            shorter: shorter as f32,
            low_whole,
            either: bits(is_either),
            low_part,
            still: bits(is_still),
            low_way,
            rays_above: rays as u32,
            high_whole,
            rays_below: (rays >> 32) as u32,
            high_part,
            first: u32::try_from(first).unwrap_or(u32::MAX),
            high_way,
            is_fresh: is_fresh.into(),
        };
        let DeviceView { across, down, pace, .. } = DeviceView::of(scene, camera);
        let places = [told.origin, told.step, told.low_way, told.high_way, across, down, pace];
        let steps = [told.low_whole, told.low_part, told.high_whole, told.high_part];
        let numbers = places.iter().chain(&steps).flatten().chain([&told.base, &told.shorter]);
        // Not so where one is no number either.
        if !numbers.into_iter().all(|number| number.abs() <= NEVER) {
            told.either = DOUBTFUL;
        }
        Some(told)
    }
}

/// The ball around what is between borders of a brick, as a ray sees it.
struct Ball {
    radius: f64,
    /// From where the ray begins to the middle.
    far: f64,
    /// How much of that is along the ray, and how much beside it.
    along: f64,
    beside: f64,
}

impl Ball {
    fn around(scene: &Scene, borders: &Borders, ray: &Ray) -> Self {
        let density = scene.density;
        let to_middle = [0, 1, 2].map(|axis| {
            let (low, high) = borders[axis];
            (low + high) / 2.0 / density[axis] - ray.origin[axis]
        });
        let halves = [0, 1, 2].map(|axis| {
            let (low, high) = borders[axis];
            (high - low) / 2.0 / density[axis]
        });
        let along = dot(to_middle, ray.direction);
        let beside = [0, 1, 2].map(|axis| to_middle[axis] - along * ray.direction[axis]);
        let [radius, far, beside] = [halves, to_middle, beside].map(|way| dot(way, way).sqrt());
        Self { radius, far, along, beside }
    }

    /// Whether no ray of a tile comes through it: they may be by `reach` beside this one, at distance
    /// one or everywhere.
    fn is_missed(&self, reach: f64, is_parallel: bool) -> bool {
        let slack = 1e-6 * self.far + if is_parallel { reach } else { reach * self.far };
        self.beside.max(-self.along) > self.radius + slack
    }
}

/// Bits of the rays that are in the picture, and between the borders of axes along which they do not go;
/// none is further than `reach` from the middle one.
fn rays(
    (scene, borders): (&Scene, &Borders),
    camera: &Camera,
    corner: [usize; 2],
    is_still: [bool; 3],
    reach: f64,
) -> u64 {
    let [columns, rows] =
        [camera.width() - corner[0], camera.height() - corner[1]].map(|left| left.min(TILE));
    let mut bits = 0;
    for y in 0..rows {
        bits |= (u64::MAX >> (u64::BITS as usize - columns)) << (y * TILE);
    }
    // How far inside of the nearest of their borders a ray is.
    let depth = |ray: &Ray| {
        let of_axis = |axis: usize| {
            let (low, high) = borders[axis];
            let place = ray.origin[axis] * scene.density[axis];
            ((place - low).min(high - place) / scene.density[axis], low <= place && place < high)
        };
        let still = (0..3).filter(|axis| is_still[*axis]).map(of_axis);
        still.fold((f64::INFINITY, true), |all, one| (all.0.min(one.0), all.1 && one.1))
    };
    if is_still.contains(&true) {
        let half = TILE as f64 / 2.0;
        let middle = camera.ray_through(corner[0] as f64 + half, corner[1] as f64 + half);
        let (inside, _) = depth(&middle);
        if inside.abs() > 2.0 * reach {
            return if inside > 0.0 { bits } else { 0 };
        }
        for pixel in 0..TILE * TILE {
            let ray = camera.ray(corner[0] + pixel % TILE, corner[1] + pixel / TILE);
            if !depth(&ray).1 {
                bits &= !(1 << pixel);
            }
        }
    }
    bits
}
