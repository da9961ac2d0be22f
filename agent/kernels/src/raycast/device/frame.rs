//! The picture of a scene on a GPU.

use std::ops::Range;

use super::super::camera::Camera;
use super::super::frame::{TILES_AT_ONCE, rows};
use super::super::march::Path;
use super::caster::DeviceRay;
use super::scene::DeviceScene;
use crate::gpu::GpuError;
use crate::image::{Image, Rgba};
use crate::limits::{DEVICE_RAY_SAMPLES, THROUGH_MIN, TILE};
use crate::plan::{Plan, Slice};
use crate::threads;

/// Takes the picture of a scene on a GPU, behind what a picture shows already. Its units are tiles:
/// all of them for the first samples of their rays, all of them for the next, where rays are long.
/// They are taken from all over the picture by turns, so that slices are alike: in order, those of
/// an empty sky would make one much too long where the first mountain is met.
#[derive(Debug)]
pub struct DeviceFramePlan {
    scene: DeviceScene,
    camera: Camera,
    across: usize,
    tiles: usize,
    /// From one tile to the next that is taken. It has no divisor in common with their number, so
    /// each is taken once.
    stride: usize,
    /// How often all tiles are gone through.
    pub(super) rounds: usize,
    image: Image,
}

/// What a GPU has taken.
#[derive(Debug)]
pub struct Cast {
    /// The picture.
    pub image: Image,
    /// Ready for the next one.
    pub scene: DeviceScene,
}

impl DeviceFramePlan {
    /// Gets ready to take a camera's picture, and to put it behind `image`, which is of the
    /// camera's size.
    #[must_use]
    pub fn new(on_device: DeviceScene, camera: Camera, image: Image) -> Box<Self> {
        let [across, down] = [camera.width(), camera.height()].map(|side| side.div_ceil(TILE));
        let (tiles, scene) = (across * down, &on_device.scene);
        let (cells, spacing) = (scene.brick.cells(), scene.brick.voxels().spacing());
        let extents = [0, 1, 2].map(|axis| cells[axis].len() as f64 * spacing[axis]);
        let diagonal = extents.iter().map(|extent| extent * extent).sum::<f64>().sqrt();
        let samples = (diagonal / scene.step).ceil() as usize + 1;
        Box::new(Self {
            across,
            tiles,
            stride: stride(tiles),
            rounds: samples.div_ceil(DEVICE_RAY_SAMPLES),
            scene: on_device,
            camera,
            image,
        })
    }

    /// The parts of the rays of tiles that are gone through in a round.
    fn rays(&self, round: usize, tiles: &[usize]) -> Vec<DeviceRay> {
        let runs: Vec<&[usize]> = tiles.chunks(TILES_AT_ONCE).collect();
        let (width, height) = (self.camera.width(), self.camera.height());
        let of_run = |run: usize| -> Vec<DeviceRay> {
            let mut rays = Vec::with_capacity(runs[run].len() * TILE * TILE);
            for tile in runs[run] {
                let (left, top) = (tile % self.across * TILE, tile / self.across * TILE);
                for y in top..top + TILE {
                    for x in left..left + TILE {
                        let is_in = x < width && y < height;
                        rays.push(if is_in { self.ray(round, x, y) } else { NO_RAY });
                    }
                }
            }
            rays
        };
        threads::map(0..runs.len(), of_run).concat()
    }

    fn ray(&self, round: usize, x: usize, y: usize) -> DeviceRay {
        let seen = self.image.pixels()[x + y * self.image.width()];
        let ray = self.camera.ray(x, y);
        let Some(path) = Path::of(&self.scene.scene, &ray) else { return NO_RAY };
        let first = path.samples.0 + (round * DEVICE_RAY_SAMPLES) as f64;
        let samples = (path.samples.1 - first).min(DEVICE_RAY_SAMPLES as f64);
        if samples <= 0.0 || 1.0 - seen[3] < THROUGH_MIN {
            return NO_RAY;
        }
        DeviceRay {
            origin: [0, 1, 2].map(|axis| (path.origin[axis] + first * path.step[axis]) as f32),
            samples: samples as u32,
            // Some devices take such a small number for zero, and some do not.
            step: path.step.map(|part| if part.abs() < STEP_MIN { 0.0 } else { part as f32 }),
            unused: 0,
        }
    }

    /// Goes on with tiles, as many as are cast at once.
    fn cast(&mut self, round: usize, tiles: &[usize]) -> Result<(), GpuError> {
        let rays = self.rays(round, tiles);
        if rays.iter().all(|ray| ray.samples == 0) {
            return Ok(());
        }
        let mut pixels: Vec<Rgba> = vec![[0.0; 4]; rays.len()];
        for (tile, pixels) in tiles.iter().zip(pixels.chunks_mut(TILE * TILE)) {
            let parts = rows(*tile, self.across, &mut self.image);
            parts.zip(pixels.chunks_mut(TILE)).for_each(|(part, row)| {
                row[..part.len()].copy_from_slice(part);
            });
        }
        let seen = self.scene.caster.cast(&self.scene.bound, &rays, &pixels)?;
        for (tile, pixels) in tiles.iter().zip(seen.chunks(TILE * TILE)) {
            let parts = rows(*tile, self.across, &mut self.image);
            parts.zip(pixels.chunks(TILE)).for_each(|(part, row)| {
                part.copy_from_slice(&row[..part.len()]);
            });
        }
        Ok(())
    }
}

/// A ray that takes no samples.
const NO_RAY: DeviceRay = DeviceRay { origin: [0.0; 3], samples: 0, step: [0.0; 3], unused: 0 };

/// A part of a step that leads nowhere: less than a voxel in all the samples that there can be.
const STEP_MIN: f64 = 1e-30;

/// The least number above 0.6 of `count` that has no divisor in common with it.
fn stride(count: usize) -> usize {
    const fn divisor(a: usize, b: usize) -> usize {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    (count * 3 / 5 + 1..=count).find(|stride| divisor(count, *stride) == 1).unwrap_or(1)
}

impl Plan for DeviceFramePlan {
    type Output = Cast;
    type Error = GpuError;

    fn units(&self) -> u64 {
        (self.rounds * self.tiles) as u64
    }

    /// A tile of no rays goes there and comes back.
    fn rehearse(&mut self) -> Result<bool, GpuError> {
        let (rays, pixels) = ([NO_RAY; TILE * TILE], [[0.0; 4]; TILE * TILE]);
        self.scene.caster.cast(&self.scene.bound, &rays, &pixels)?;
        Ok(true)
    }

    fn run(&mut self, slice: &Slice) -> Result<(), GpuError> {
        // A sheet of voxels is infinitely thin.
        if self.scene.scene.brick.cells().iter().any(Range::is_empty) {
            return Ok(());
        }
        let [mut from, to] = [slice.units().start, slice.units().end]
            .map(|unit| usize::try_from(unit).unwrap_or(usize::MAX));
        while from < to {
            let (round, first) = (from / self.tiles, from % self.tiles);
            // The next round goes on with what this one brings.
            let count = self.scene.caster.tiles_max().min(self.tiles - first).min(to - from);
            let tiles: Vec<usize> =
                (first..first + count).map(|at| at * self.stride % self.tiles).collect();
            self.cast(round, &tiles)?;
            from += count;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Cast, GpuError> {
        Ok(Cast { image: self.image, scene: self.scene })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_taken_from_all_over_and_each_once() {
        for count in (1..200).chain([1200, 4096, 65_536]) {
            let mut taken: Vec<usize> = (0..count).map(|at| at * stride(count) % count).collect();
            if count > 50 {
                let lower = taken[..16].iter().filter(|tile| **tile < count / 2).count();
                assert!((4..=12).contains(&lower), "{count}: {lower} of 16");
            }
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..count), "{count}");
        }
    }
}
