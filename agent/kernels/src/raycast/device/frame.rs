//! The picture of a scene on a GPU.

use std::ops::Range;
use std::sync::Arc;

use super::super::camera::Camera;
use super::super::frame::{TILES_AT_ONCE, rows, rows_mut};
use super::super::grid::{Grid, padded};
use super::super::march::march;
use super::super::scene::{Borders, Scene};
use super::super::window::Shown;
use super::caster::UNSURE;
use super::scene::DeviceScene;
use super::tile::{DeviceTile, DeviceView};
use crate::gpu::GpuError;
use crate::image::{ByteImage, Image, Picture, Rgba, byte_pixel};
use crate::limits::{DEVICE_RAY_SAMPLES, THROUGH_MIN, TILE};
use crate::plan::{Plan, Slice};
use crate::threads;
use crate::volume::{Voxel, with_voxels};

/// Takes the picture of a scene on a GPU, behind what a picture shows already. Its units are tiles:
/// all of them for the first samples of their rays, all of them for the next, where rays are long.
/// They are taken from all over the picture by turns, so that slices are alike: in order, those of
/// an empty sky would make one much too long where the first mountain is met.
#[derive(Debug)]
pub struct DeviceFramePlan {
    scene: Arc<DeviceScene>,
    camera: Camera,
    view: DeviceView,
    /// Between which its rays take samples.
    borders: Borders,
    /// The first column and the first row of the camera's picture that are taken.
    corner: [usize; 2],
    across: usize,
    tiles: usize,
    /// From one tile to the next that is taken. It has no divisor in common with their number, so
    /// each is taken once.
    stride: usize,
    /// How often all tiles are gone through.
    pub(super) rounds: usize,
    picture: Picture,
    /// Whether nothing is in front of the scene.
    is_fresh: bool,
    /// Rays that were left to the processor.
    unsure: usize,
}

/// What a GPU has taken.
#[derive(Debug)]
pub struct Cast {
    /// The picture.
    pub picture: Picture,
    /// Rays that the processor went along, as the device could not tell which samples they take.
    pub unsure: usize,
}

impl DeviceFramePlan {
    /// Gets ready to take a camera's picture, and to put it behind another one of its size.
    #[must_use]
    pub fn new(on_device: Arc<DeviceScene>, camera: Camera, front: Option<Image>) -> Box<Self> {
        let is_fresh = front.is_none();
        let image = front.unwrap_or_else(|| Image::transparent(camera.width(), camera.height()));
        let borders = on_device.scene.borders;
        Self::of(on_device, camera, (&borders, [0; 2]), Picture::Full(image), is_fresh)
    }

    /// Gets ready to take the part of a camera's picture in which a part of the scene shows.
    #[must_use]
    pub(crate) fn of_shown(
        on_device: Arc<DeviceScene>,
        camera: Camera,
        shown: &Shown,
    ) -> Box<Self> {
        let Shown { borders, columns, rows } = shown;
        let image = Picture::Full(Image::transparent(columns.len(), rows.len()));
        Self::of(on_device, camera, (borders, [columns.start, rows.start]), image, true)
    }

    /// Gets ready to take a camera's picture in eight bits a channel, where rays are not so long that
    /// they are gone along in several rounds: a quarter of what comes back is enough for these.
    #[must_use]
    pub fn in_bytes(on_device: Arc<DeviceScene>, camera: Camera) -> Box<Self> {
        if rounds(&on_device.scene) > 1 {
            return Self::new(on_device, camera, None);
        }
        let image = ByteImage::transparent(camera.width(), camera.height());
        let borders = on_device.scene.borders;
        let picture = Picture::Bytes { image, seen: 0 };
        Self::of(on_device, camera, (&borders, [0; 2]), picture, true)
    }

    fn of(
        on_device: Arc<DeviceScene>,
        camera: Camera,
        (borders, corner): (&Borders, [usize; 2]),
        picture: Picture,
        is_fresh: bool,
    ) -> Box<Self> {
        let [across, down] = size(&picture).map(|side| side.div_ceil(TILE));
        let tiles = across * down;
        Box::new(Self {
            view: DeviceView::of(&on_device.scene, &camera),
            borders: *borders,
            corner,
            across,
            tiles,
            stride: stride(tiles),
            rounds: rounds(&on_device.scene),
            picture,
            is_fresh,
            unsure: 0,
            scene: on_device,
            camera,
        })
    }

    /// What the rays of a tile have in common, if they are gone through in a round.
    fn tile(&self, round: usize, tile: usize) -> Option<DeviceTile> {
        let place = [tile % self.across * TILE, tile / self.across * TILE];
        let corner = [0, 1].map(|axis| self.corner[axis] + place[axis]);
        let is_fresh = self.is_fresh && round == 0;
        let first = round * DEVICE_RAY_SAMPLES;
        let (scene, borders) = (&self.scene.scene, &self.borders);
        let told = DeviceTile::of(scene, borders, &self.camera, corner, first, is_fresh)?;
        (is_fresh || !self.is_opaque(tile)).then_some(told)
    }

    /// Whether nothing shines through a tile.
    fn is_opaque(&self, tile: usize) -> bool {
        let Picture::Full(image) = &self.picture else { return false };
        let is_opaque = |pixel: &Rgba| 1.0 - pixel[3] < THROUGH_MIN;
        let mut seen = rows(tile, self.across, image.width(), image.pixels());
        seen.all(|row| row.iter().all(is_opaque))
    }

    /// Goes on with tiles, as many as are cast at once.
    fn cast(&mut self, round: usize, tiles: &[usize]) -> Result<(), GpuError> {
        let runs: Vec<&[usize]> = tiles.chunks(TILES_AT_ONCE).collect();
        let of_run = |run: usize| -> Vec<(usize, DeviceTile)> {
            let told = |tile: &usize| Some((*tile, self.tile(round, *tile)?));
            runs[run].iter().filter_map(told).collect()
        };
        let (tiles, told): (Vec<usize>, Vec<DeviceTile>) =
            threads::map(0..runs.len(), of_run).into_iter().flatten().unzip();
        if tiles.is_empty() {
            return Ok(());
        }
        let ([width, _], across) = (size(&self.picture), self.across);
        let (caster, bound) = (&self.scene.caster, &self.scene.room.bound);
        // A tile's pixel, of those in the picture.
        let mut unsure = Vec::new();
        let mut leave = |tile: usize, x: usize, y: usize| {
            unsure.push([tile % across * TILE + x, tile / across * TILE + y]);
        };
        match &mut self.picture {
            Picture::Full(image) => {
                let mut before: Vec<Rgba> = Vec::new();
                if !self.is_fresh || round > 0 {
                    before.resize(tiles.len() * TILE * TILE, [0.0; 4]);
                    for (tile, pixels) in tiles.iter().zip(before.chunks_mut(TILE * TILE)) {
                        let parts = rows(*tile, across, width, image.pixels());
                        parts.zip(pixels.chunks_mut(TILE)).for_each(|(part, row)| {
                            row[..part.len()].copy_from_slice(part);
                        });
                    }
                }
                caster.cast(bound, &self.view, &told, &before, |seen| {
                    for (tile, pixels) in tiles.iter().zip(seen.chunks(TILE * TILE)) {
                        let parts = rows_mut(*tile, across, width, image.pixels_mut());
                        for (y, (part, row)) in parts.zip(pixels.chunks(TILE)).enumerate() {
                            for (x, (pixel, seen)) in part.iter_mut().zip(row).enumerate() {
                                if seen[3] == UNSURE {
                                    leave(*tile, x, y);
                                } else {
                                    *pixel = *seen;
                                }
                            }
                        }
                    }
                })?;
            }
            Picture::Bytes { image, seen } => {
                caster.cast_in_bytes(bound, &self.view, &told, |shown| {
                    for (tile, shown) in tiles.iter().zip(shown) {
                        *seen += shown.seen();
                        let parts = rows_mut(*tile, across, width, image.pixels_mut());
                        for (y, (part, row)) in parts.zip(&shown.rows).enumerate() {
                            part.copy_from_slice(&row[..part.len()]);
                            let flags = shown.unsure(y);
                            if flags != 0 {
                                let columns = (0..part.len()).filter(|x| flags >> x & 1 == 1);
                                columns.for_each(|x| leave(*tile, x, y));
                            }
                        }
                    }
                })?;
            }
        }
        // These went all their way in the first round.
        if round == 0 {
            self.go_along(&unsure);
        }
        Ok(())
    }

    /// Goes along the rays of pixels that the device leaves to the processor.
    fn go_along(&mut self, pixels: &[[usize; 2]]) {
        if pixels.is_empty() {
            return;
        }
        self.unsure += pixels.len();
        let [width, _] = size(&self.picture);
        let runs: Vec<&[[usize; 2]]> = pixels.chunks(RAYS_AT_ONCE).collect();
        let (scene, camera) = (&*self.scene.scene, &self.camera);
        let (borders, corner) = (&self.borders, self.corner);
        let before = match &self.picture {
            Picture::Full(image) => Some(image.pixels()),
            Picture::Bytes { .. } => None,
        };
        let seen_before = |[x, y]: &[usize; 2]| before.map_or([0.0; 4], |all| all[x + y * width]);
        let voxels = scene.brick.voxels();
        let seen = with_voxels!(voxels.voxels(), samples => {
            let samples = padded(samples, voxels.size());
            let grid = Grid::new(&samples, voxels.size());
            threads::map(0..runs.len(), |run| {
                let pixels = runs[run];
                let seen = pixels.iter().map(seen_before).collect();
                let grid = &grid;
                let rays = Rays { scene, borders, camera, corner, grid, pixels, seen };
                pulp::Arch::new().dispatch(rays)
            })
        });
        for ([x, y], pixel) in pixels.iter().zip(seen.into_iter().flatten()) {
            match &mut self.picture {
                Picture::Full(image) => image.pixels_mut()[x + y * width] = pixel,
                Picture::Bytes { image, seen } => {
                    image.pixels_mut()[x + y * width] = byte_pixel(&pixel);
                    *seen += usize::from(pixel[3] > 0.0);
                }
            }
        }
    }
}

/// Pixels in a row, and rows.
fn size(picture: &Picture) -> [usize; 2] {
    match picture {
        Picture::Full(image) => [image.width(), image.height()],
        Picture::Bytes { image, .. } => [image.width(), image.height()],
    }
}

/// How often all rays are gone through until the longest one comes to its end.
fn rounds(scene: &Scene) -> usize {
    let (cells, spacing) = (scene.brick.cells(), scene.brick.voxels().spacing());
    let extents = [0, 1, 2].map(|axis| cells[axis].len() as f64 * spacing[axis]);
    let diagonal = extents.iter().map(|extent| extent * extent).sum::<f64>().sqrt();
    let samples = (diagonal / scene.step).ceil() as usize + 1;
    samples.div_ceil(DEVICE_RAY_SAMPLES)
}

/// Rays that one thread goes along in one go.
const RAYS_AT_ONCE: usize = 64;

/// Some rays, and what they have seen.
struct Rays<'a, T> {
    scene: &'a Scene,
    borders: &'a Borders,
    camera: &'a Camera,
    /// Where the picture that the pixels are of begins in the camera's.
    corner: [usize; 2],
    grid: &'a Grid<'a, T>,
    pixels: &'a [[usize; 2]],
    seen: Vec<Rgba>,
}

impl<T: Voxel> pulp::NullaryFnOnce for Rays<'_, T> {
    type Output = Vec<Rgba>;

    #[inline(always)]
    fn call(mut self) -> Vec<Rgba> {
        for ([x, y], seen) in self.pixels.iter().zip(&mut self.seen) {
            if 1.0 - seen[3] >= THROUGH_MIN {
                let ray = self.camera.ray(self.corner[0] + x, self.corner[1] + y);
                *seen = march(self.scene, self.borders, self.grid, &ray, *seen);
            }
        }
        self.seen
    }
}

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
        let tile = [DeviceTile::NONE];
        let (caster, bound) = (&self.scene.caster, &self.scene.room.bound);
        match self.picture {
            Picture::Full(_) => caster.cast(bound, &self.view, &tile, &[], |_| true),
            Picture::Bytes { .. } => caster.cast_in_bytes(bound, &self.view, &tile, |_| true),
        }
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
        Ok(Cast { picture: self.picture, unsure: self.unsure })
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
