//! The picture of a scene in one go, where it shows at all.

use std::ops::Range;

use super::camera::Camera;
use super::depth::Depth;
use super::grid::{Grid, padded};
use super::march::march;
use super::scene::{Borders, Scene};
use crate::image::Rgba;
use crate::limits::TILE;
use crate::volume::{Voxel, with_voxels};

/// The part of a picture in which a brick may show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    /// Its columns of the picture.
    pub(crate) columns: Range<usize>,
    /// Its rows of the picture.
    pub(crate) rows: Range<usize>,
    /// Its pixels, row by row.
    pub(crate) pixels: Vec<Rgba>,
    /// Where the brick is among the bricks of its volume, seen from this camera.
    pub(crate) depth: Depth,
}

/// Takes the picture of what a scene has between these voxels of the whole volume, along each axis from the
/// first to the second.
pub(crate) fn cast(scene: &Scene, camera: &Camera, clip: &Borders) -> Window {
    let depth = Depth::of(&scene.brick, camera);
    let nothing = Window { columns: 0..0, rows: 0..0, pixels: Vec::new(), depth };
    let within = |a: (f64, f64), b: (f64, f64)| (a.0.max(b.0), a.1.min(b.1));
    let borders = [0, 1, 2].map(|axis| within(scene.borders[axis], clip[axis]));
    let Some(cells) = scene.seen_cells() else { return nothing };
    // What is in a block is seen up to where rounding takes it.
    let shown = [0, 1, 2].map(|axis| {
        let Range { start, end } = cells[axis];
        within(borders[axis], (start as f64 - MARGIN, end as f64 + MARGIN))
    });
    // A sheet of voxels is infinitely thin.
    if shown.iter().any(|(low, high)| low >= high) {
        return nothing;
    }
    let spacing = scene.brick.voxels().spacing();
    let low = [0, 1, 2].map(|axis| shown[axis].0 * spacing[axis]);
    let high = [0, 1, 2].map(|axis| shown[axis].1 * spacing[axis]);
    let [columns, rows] = camera.window(low, high);
    let mut pixels = vec![[0.0; 4]; columns.len() * rows.len()];
    let voxels = scene.brick.voxels();
    with_voxels!(voxels.voxels(), samples => {
        let samples = padded(samples, voxels.size());
        let grid = Grid::new(&samples, voxels.size());
        let (columns, rows) = (columns.clone(), rows.clone());
        let pixels = &mut pixels;
        // Compiled once more for newer processors, and chosen where the machine has one.
        let part = Part { scene, borders: &borders, camera, grid: &grid, columns, rows, pixels };
        pulp::Arch::new().dispatch(part);
    });
    Window { columns, rows, pixels, depth }
}

/// Voxels around a block in which it may be met: a position on its border counts as in either.
const MARGIN: f64 = 0.5;

/// A part of a picture.
struct Part<'a, T> {
    scene: &'a Scene,
    borders: &'a Borders,
    camera: &'a Camera,
    grid: &'a Grid<'a, T>,
    columns: Range<usize>,
    rows: Range<usize>,
    pixels: &'a mut [Rgba],
}

impl<T: Voxel> pulp::NullaryFnOnce for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (left, top, width) = (self.columns.start, self.rows.start, self.columns.len());
        // Rays beside each other meet the same voxels.
        for first_y in self.rows.clone().step_by(TILE) {
            for first_x in self.columns.clone().step_by(TILE) {
                for y in first_y..(first_y + TILE).min(self.rows.end) {
                    let row = (y - top) * width;
                    for x in first_x..(first_x + TILE).min(self.columns.end) {
                        let ray = self.camera.ray(x, y);
                        self.pixels[row + x - left] =
                            march(self.scene, self.borders, self.grid, &ray, [0.0; 4]);
                    }
                }
            }
        }
    }
}
