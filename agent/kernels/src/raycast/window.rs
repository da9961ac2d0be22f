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

impl Window {
    /// None of the picture.
    pub(crate) const fn nothing(depth: Depth) -> Self {
        Self { columns: 0..0, rows: 0..0, pixels: Vec::new(), depth }
    }
}

/// What a camera's picture shows of a scene, or of a part of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    /// Between which rays take samples, along each axis.
    pub(super) borders: Borders,
    /// Columns of the picture in which it may show.
    pub(crate) columns: Range<usize>,
    /// Rows of the picture in which it may show.
    pub(crate) rows: Range<usize>,
}

impl Shown {
    /// Of what a scene has between these voxels of the whole volume, along each axis from the first to the
    /// second; none where nothing shows of it.
    pub(crate) fn of(scene: &Scene, camera: &Camera, clip: &Borders) -> Option<Self> {
        let within = |a: (f64, f64), b: (f64, f64)| (a.0.max(b.0), a.1.min(b.1));
        let borders = [0, 1, 2].map(|axis| within(scene.borders[axis], clip[axis]));
        let cells = scene.seen_cells()?;
        // What is in a block is seen up to where rounding takes it.
        let shown = [0, 1, 2].map(|axis| {
            let Range { start, end } = cells[axis];
            within(borders[axis], (start as f64 - MARGIN, end as f64 + MARGIN))
        });
        // A sheet of voxels is infinitely thin.
        if shown.iter().any(|(low, high)| low >= high) {
            return None;
        }
        let spacing = scene.brick.voxels().spacing();
        let low = [0, 1, 2].map(|axis| shown[axis].0 * spacing[axis]);
        let high = [0, 1, 2].map(|axis| shown[axis].1 * spacing[axis]);
        let [columns, rows] = camera.window(low, high);
        Some(Self { borders, columns, rows })
    }

    /// Samples that all rays take together where each goes along the longest side of what shows: most take
    /// fewer, as what is empty is passed over and nothing is seen behind what is opaque.
    #[cfg(feature = "gpu")]
    pub(crate) fn samples_max(&self, scene: &Scene) -> u64 {
        let spacing = scene.brick.voxels().spacing();
        let sides =
            [0, 1, 2].map(|axis| (self.borders[axis].1 - self.borders[axis].0) * spacing[axis]);
        let of_ray = sides.into_iter().fold(0.0, f64::max) / scene.step;
        ((self.columns.len() * self.rows.len()) as f64 * of_ray) as u64
    }
}

/// Takes the picture of what a scene has between these voxels of the whole volume, along each axis from the
/// first to the second.
pub(crate) fn cast(scene: &Scene, camera: &Camera, clip: &Borders) -> Window {
    let depth = Depth::of(&scene.brick, camera);
    let Some(Shown { borders, columns, rows }) = Shown::of(scene, camera, clip) else {
        return Window::nothing(depth);
    };
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
