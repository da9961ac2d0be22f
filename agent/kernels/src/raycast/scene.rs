//! A brick made ready to be looked at.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::camera::Camera;
use super::transfer::{Table, Transfer};
use crate::limits::{MACRO_CELL, RAY_SAMPLES_MAX, RAY_STEPS_MAX};
use crate::plan::{Plan, Slice};
use crate::volume::{Brick, MacroCells};

/// Light from where the eye is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shading {
    /// Share of the colour that is seen from all sides.
    pub ambient: f32,
    /// Share of the colour that is seen where a surface faces the light.
    pub diffuse: f32,
    /// Brightness of a highlight.
    pub specular: f32,
    /// The higher, the smaller is the highlight.
    pub shininess: u16,
}

/// How a volume is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What values look like.
    pub transfer: Transfer,
    /// Distance of samples along a ray, in the unit of the spacing; `None`: the smallest distance
    /// of voxels.
    pub step: Option<f64>,
    /// Surfaces are lit where this is given.
    pub shading: Option<Shading>,
}

impl Look {
    /// Whether processors and GPUs see the same of such a volume, within what pictures may differ by.
    pub(crate) fn is_sure(&self, size: [usize; 3], spacing: [f64; 3]) -> bool {
        let side = size.into_iter().fold(0, usize::max);
        self.transfer.is_sure(self.step_in(spacing), side)
    }

    /// That a camera is not so far from such a volume that samples on its rays are not told apart.
    ///
    /// # Errors
    /// It is.
    pub fn check_distance(
        &self,
        camera: &Camera,
        size: [usize; 3],
        spacing: [f64; 3],
    ) -> Result<(), SceneError> {
        let sides = [0, 1, 2].map(|axis| size[axis].saturating_sub(1) as f64 * spacing[axis]);
        let steps = camera.farthest(sides) / self.step_in(spacing);
        match steps <= RAY_STEPS_MAX as f64 {
            true => Ok(()),
            // No number is not near either.
            false => Err(SceneError::Far { steps }),
        }
    }

    fn step_in(&self, spacing: [f64; 3]) -> f64 {
        self.step.unwrap_or_else(|| spacing.into_iter().fold(f64::MAX, f64::min))
    }
}

/// Why a brick cannot be looked at.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SceneError {
    /// A step that leads nowhere.
    #[error("step {step}: give one above 0, of at least {least}, so that a ray ends")]
    Step {
        /// The step.
        step: f64,
        /// The shortest one for this volume.
        least: f64,
    },
    /// A camera that is too far away.
    #[error(
        "camera: from where its rays begin to behind the volume are {steps:.1e} steps, and more than \
         {RAY_STEPS_MAX:.1e} are not told apart: move `eye` nearer, or give a smaller field of view or height"
    )]
    Far {
        /// So many steps at least.
        steps: f64,
    },
    /// Light that is no number.
    #[error("shading: give finite numbers from 0")]
    Shading,
}

/// Where something begins and ends along each axis, in the whole volume's voxels.
pub(crate) type Borders = [(f64, f64); 3];

/// A brick made ready to be looked at from anywhere.
#[derive(Debug)]
pub struct Scene {
    pub(super) brick: Brick,
    pub(super) step: f64,
    pub(super) shading: Option<Shading>,
    /// Scenes of one look may share it.
    pub(super) table: Arc<Table>,
    pub(super) blocks: [usize; 3],
    /// For each block of cells, how far the nearest one is in which anything is to be seen.
    pub(super) distances: Vec<u8>,
    /// Whether there are blocks in which nothing is to be seen.
    pub(super) has_empty: bool,
    /// Where its cells begin and end along each axis, in the whole volume's voxels.
    pub(super) borders: Borders,
    /// Voxels per unit of space along each axis.
    pub(super) density: [f64; 3],
    /// How far voxels are apart along each axis, in a unit that keeps squares of slopes finite and
    /// above zero: of a slope nothing but its direction is seen.
    pub(super) proportions: [f32; 3],
}

/// Makes a scene: looks at all voxels once. Its units are layers of blocks, three times over.
#[derive(Debug)]
pub struct ScenePlan {
    cells: MacroCells,
    scene: Scene,
}

impl ScenePlan {
    /// Gets ready to look at a brick.
    ///
    /// # Errors
    /// The step is so small that rays would not end, or a number is out of its range.
    pub fn new(brick: Brick, look: &Look) -> Result<Box<Self>, SceneError> {
        let (cells, scene) = Scene::unseen(brick, look, None)?;
        Ok(Box::new(Self { cells, scene }))
    }
}

impl Scene {
    /// One that lacks what its blocks show.
    fn unseen(
        brick: Brick,
        look: &Look,
        like: Option<&Self>,
    ) -> Result<(MacroCells, Self), SceneError> {
        let (spacing, whole) = (brick.voxels().spacing(), brick.whole_size());
        let step = look.step_in(spacing);
        let extents = [0, 1, 2].map(|axis| (whole[axis] - 1) as f64 * spacing[axis]);
        let diagonal = extents.iter().map(|extent| extent * extent).sum::<f64>().sqrt();
        let least = diagonal / RAY_SAMPLES_MAX as f64;
        if !(step > 0.0 && step >= least && step.is_finite()) {
            return Err(SceneError::Step { step, least });
        }
        if let Some(light) = &look.shading
            && ![light.ambient, light.diffuse, light.specular]
                .iter()
                .all(|share| share.is_finite() && *share >= 0.0)
        {
            return Err(SceneError::Shading);
        }
        let cells = MacroCells::new(&brick);
        let borders = [0, 1, 2]
            .map(|axis| (brick.cells()[axis].start as f64, brick.cells()[axis].end as f64));
        let scene = Self {
            step,
            shading: look.shading,
            table: match like.filter(|like| like.step == step) {
                Some(like) => Arc::clone(&like.table),
                None => Arc::new(look.transfer.table(step)),
            },
            blocks: cells.size(),
            distances: Vec::with_capacity(cells.size().iter().product()),
            has_empty: false,
            borders,
            density: spacing.map(|spacing| 1.0 / spacing),
            proportions: proportions(spacing),
            brick,
        };
        Ok((cells, scene))
    }

    /// What a [`ScenePlan`] makes of a brick of whose blocks the [ranges](MacroCells::ranges) are known,
    /// layer by layer: another look takes a small part of the time then. `like` has the same look; its
    /// colours are used.
    ///
    /// # Errors
    /// As [`ScenePlan::new`].
    pub(crate) fn of(
        brick: Brick,
        ranges: &[(f32, f32)],
        look: &Look,
        like: Option<&Self>,
    ) -> Result<Arc<Self>, SceneError> {
        let (cells, mut scene) = Self::unseen(brick, look, like)?;
        let Self { table, distances, .. } = &mut scene;
        let is_seen = |(low, high): &(f32, f32)| table.is_seen(*low, *high);
        distances.extend(ranges.iter().map(|range| if is_seen(range) { 0 } else { u8::MAX }));
        let layers = cells.size()[2];
        (0..layers).for_each(|layer| cells.sweep(distances, layer, false));
        (0..layers).rev().for_each(|layer| cells.sweep(distances, layer, true));
        scene.has_empty = scene.distances.iter().any(|distance| *distance > 0);
        Ok(Arc::new(scene))
    }

    /// The cells of the whole volume beyond which nothing of the brick is seen; none where nothing is.
    pub(crate) fn seen_cells(&self) -> Option<[Range<usize>; 3]> {
        let mut seen: Option<[Range<usize>; 3]> = None;
        for (at, _) in self.distances.iter().enumerate().filter(|(_, distance)| **distance == 0) {
            let [x, y, _] = self.blocks;
            let block = [at % x, at / x % y, at / (x * y)];
            let first = self.brick.first();
            let own = [0, 1, 2].map(|axis| {
                let from = first[axis] + block[axis] * MACRO_CELL;
                from..from + MACRO_CELL
            });
            seen = Some(match seen {
                None => own,
                Some(seen) => [0, 1, 2].map(|axis| {
                    seen[axis].start.min(own[axis].start)..seen[axis].end.max(own[axis].end)
                }),
            });
        }
        seen
    }

    /// The brick.
    pub(crate) const fn brick(&self) -> &Brick {
        &self.brick
    }
}

/// Distances in a unit of a power of two between the smallest and the largest of them: no digit of
/// theirs is lost.
fn proportions(spacing: [f64; 3]) -> [f32; 3] {
    let exponents = spacing.map(f64::log2);
    let least = exponents.iter().copied().fold(f64::INFINITY, f64::min);
    let most = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let unit = (least.midpoint(most)).round().exp2();
    spacing.map(|spacing| (spacing / unit) as f32)
}

impl Plan for ScenePlan {
    type Output = Arc<Scene>;
    type Error = Infallible;

    fn units(&self) -> u64 {
        3 * self.cells.size()[2] as u64
    }

    fn run(&mut self, slice: &Slice) -> Result<(), Infallible> {
        let layers = self.cells.size()[2];
        for unit in slice.units() {
            let unit = usize::try_from(unit).unwrap_or(usize::MAX);
            match (unit / layers, unit % layers) {
                (0, layer) => {
                    let Scene { brick, table, distances, .. } = &mut self.scene;
                    let ranges = self.cells.ranges(layer, brick).into_iter();
                    let is_seen = |(low, high)| table.is_seen(low, high);
                    distances.extend(ranges.map(|range| if is_seen(range) { 0 } else { u8::MAX }));
                }
                (1, layer) => self.cells.sweep(&mut self.scene.distances, layer, false),
                (_, layer) => {
                    self.cells.sweep(&mut self.scene.distances, layers - 1 - layer, true);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Arc<Scene>, Infallible> {
        self.scene.has_empty = self.scene.distances.iter().any(|distance| *distance > 0);
        Ok(Arc::new(self.scene))
    }
}
