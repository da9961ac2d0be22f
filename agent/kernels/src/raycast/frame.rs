//! The picture of a scene.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use super::camera::Camera;
use super::depth::Depth;
use super::grid::{Grid, padded};
use super::march::march;
use super::scene::Scene;
use crate::image::{Image, Rgba};
use crate::limits::TILE;
use crate::plan::{Plan, Slice};
use crate::threads;
use crate::volume::{Voxel, with_voxels};

/// The picture of a brick.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The picture.
    pub image: Image,
    /// Where the brick is among the bricks of its volume, seen from this camera.
    pub depth: Depth,
}

/// Takes the picture of a scene, tile by tile.
#[derive(Debug)]
pub struct FramePlan {
    scene: Arc<Scene>,
    camera: Camera,
    tiles: [usize; 2],
    image: Image,
}

impl FramePlan {
    /// Gets ready to take a picture; it shows nothing of what is [too far](super::Look::check_distance).
    #[must_use]
    pub fn new(scene: Arc<Scene>, camera: Camera) -> Box<Self> {
        let size = [camera.width(), camera.height()];
        let tiles = size.map(|side| side.div_ceil(TILE));
        Box::new(Self { scene, camera, tiles, image: Image::transparent(size[0], size[1]) })
    }
}

impl Plan for FramePlan {
    type Output = Frame;
    type Error = Infallible;

    fn units(&self) -> u64 {
        (self.tiles[0] * self.tiles[1]) as u64
    }

    fn run(&mut self, slice: &Slice) -> Result<(), Infallible> {
        let voxels = self.scene.brick.voxels();
        // A sheet of voxels is infinitely thin.
        if self.scene.brick.cells().iter().any(Range::is_empty) {
            return Ok(());
        }
        let units = |unit: u64| usize::try_from(unit).unwrap_or(usize::MAX);
        let tiles = units(slice.units().start)..units(slice.units().end);
        let size = [self.image.width(), self.image.height()];
        let across = self.tiles[0];
        let runs: Vec<Range<usize>> = tiles
            .clone()
            .step_by(TILES_AT_ONCE)
            .map(|first| first..(first + TILES_AT_ONCE).min(tiles.end))
            .collect();
        let taken = with_voxels!(voxels.voxels(), samples => {
            let samples = padded(samples, voxels.size());
            let grid = Grid::new(&samples, voxels.size());
            let (scene, camera) = (&*self.scene, &self.camera);
            threads::map(0..runs.len(), |run| {
                let mut pixels = vec![[0.0; 4]; runs[run].len() * TILE * TILE];
                // Compiled once more for newer processors, and chosen where the machine has one.
                pulp::Arch::new().dispatch(Tiles {
                    scene,
                    camera,
                    grid: &grid,
                    across,
                    tiles: runs[run].clone(),
                    size,
                    pixels: &mut pixels,
                });
                pixels
            })
        });
        for (tile, pixels) in tiles.zip(taken.iter().flat_map(|run| run.chunks(TILE * TILE))) {
            let parts = rows_mut(tile, across, size[0], self.image.pixels_mut());
            for (part, row) in parts.zip(pixels.chunks(TILE)) {
                part.copy_from_slice(&row[..part.len()]);
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Frame, Infallible> {
        let depth = Depth::of(&self.scene.brick, &self.camera);
        Ok(Frame { image: self.image, depth })
    }
}

/// Where a tile of a picture begins, and the columns that it has there.
fn place(tile: usize, across: usize, width: usize) -> (usize, Range<usize>) {
    let (left, top) = (tile % across * TILE, tile / across * TILE);
    (top, left..(left + TILE).min(width))
}

/// The parts of a picture's rows that are in a tile, from its top.
#[cfg(feature = "gpu")]
pub(super) fn rows<P>(
    tile: usize,
    across: usize,
    width: usize,
    pixels: &[P],
) -> impl Iterator<Item = &[P]> {
    let (top, columns) = place(tile, across, width);
    let rows = pixels.chunks(width).skip(top).take(TILE);
    rows.map(move |row| &row[columns.clone()])
}

/// The same, to be written.
pub(super) fn rows_mut<P>(
    tile: usize,
    across: usize,
    width: usize,
    pixels: &mut [P],
) -> impl Iterator<Item = &mut [P]> {
    let (top, columns) = place(tile, across, width);
    let rows = pixels.chunks_mut(width).skip(top).take(TILE);
    rows.map(move |row| &mut row[columns.clone()])
}

/// Tiles that one thread takes in one go.
pub(super) const TILES_AT_ONCE: usize = 16;

/// Some tiles of a picture, one after the other.
struct Tiles<'a, T> {
    scene: &'a Scene,
    camera: &'a Camera,
    grid: &'a Grid<'a, T>,
    across: usize,
    tiles: Range<usize>,
    size: [usize; 2],
    pixels: &'a mut [Rgba],
}

impl<T: Voxel> pulp::NullaryFnOnce for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (tile, pixels) in self.tiles.zip(self.pixels.chunks_exact_mut(TILE * TILE)) {
            let (left, top) = (tile % self.across * TILE, tile / self.across * TILE);
            for (y, row) in (top..self.size[1]).zip(pixels.chunks_exact_mut(TILE)) {
                for (x, pixel) in (left..self.size[0]).zip(row) {
                    let ray = self.camera.ray(x, y);
                    *pixel = march(self.scene, &self.scene.borders, self.grid, &ray, [0.0; 4]);
                }
            }
        }
    }
}
