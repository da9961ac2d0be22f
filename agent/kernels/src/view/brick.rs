//! Bricks as views look at them.

use std::io::Read;
use std::sync::Arc;
#[cfg(feature = "gpu")]
use std::sync::OnceLock;

use gleaner_protocol::{ViewShading, ViewState};

use super::{Layer, ViewError, checked};
use crate::raycast::{
    Borders, Camera, ControlPoint, Look, Projection, Scene, Shading, Transfer, cast,
};
use crate::volume::{Brick, COARSE, MacroCells, Voxels, read_brick};

/// What a file of a dataset is of its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A brick, or all of it.
    Fine,
    /// All of it, with an eighth of the voxels along each side.
    Coarse,
}

/// A brick that was read, with what is known of it whatever it looks like.
#[derive(Debug, Clone)]
pub struct ViewBrick {
    brick: Brick,
    level: Level,
    /// The smallest and the largest value in each block of its cells.
    ranges: Arc<[(f32, f32)]>,
}

/// A brick made ready to be looked at in one way, from anywhere.
#[derive(Debug, Clone)]
pub struct ViewScene {
    pub(super) scene: Arc<Scene>,
    level: Level,
    /// Whether GPUs see the same of it as processors, once somebody asked.
    #[cfg(feature = "gpu")]
    pub(super) is_alike: OnceLock<bool>,
    #[cfg(feature = "gpu")]
    pub(super) look: Look,
}

impl ViewBrick {
    /// Reads the file of a brick, NRRD as a dataset has it.
    ///
    /// # Errors
    /// It is none, or ends too soon.
    pub fn read(file: impl Read, level: Level) -> Result<Self, ViewError> {
        Ok(Self::of(read_brick(file)?, level))
    }

    /// Of a brick that is in memory.
    #[must_use]
    pub fn of(brick: Brick, level: Level) -> Self {
        let cells = MacroCells::new(&brick);
        let layers = 0..cells.size()[2];
        let ranges = layers.flat_map(|layer| cells.ranges(layer, &brick)).collect();
        Self { brick, level, ranges }
    }

    /// What it is of its volume.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// How values of it look in a state of a view.
    ///
    /// # Errors
    /// The state's transfer function is none.
    pub fn look(&self, state: &ViewState) -> Result<Look, ViewError> {
        let points = state.transfer.iter().map(|point| ControlPoint {
            value: point.value,
            colour: point.colour,
            opacity: point.opacity,
        });
        let transfer = Transfer::new(points.collect(), state.opacity_unit)?;
        let nearest = self.brick.voxels().spacing().into_iter().fold(f64::MAX, f64::min);
        // A coarse voxel is so large that a ray would miss thin layers of it.
        let step = (self.level == Level::Coarse).then_some(nearest / 2.0);
        let shading = state.shading.map(|ViewShading { ambient, diffuse, specular, shininess }| {
            Shading { ambient, diffuse, specular, shininess }
        });
        Ok(Look { transfer, step, shading })
    }

    /// Makes it ready for a look. What another brick of the volume was made ready with for the same one is
    /// used again.
    ///
    /// # Errors
    /// The look is none for it.
    pub fn scene(&self, look: &Look, like: Option<&ViewScene>) -> Result<ViewScene, ViewError> {
        let like = like.map(|like| &*like.scene);
        let scene = Scene::of(self.brick.clone(), &self.ranges, look, like)?;
        Ok(ViewScene {
            scene,
            level: self.level,
            #[cfg(feature = "gpu")]
            is_alike: OnceLock::new(),
            #[cfg(feature = "gpu")]
            look: look.clone(),
        })
    }

    /// Memory that it takes, about, with a scene of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let samples = match self.brick.voxels().voxels() {
            Voxels::U8(samples) => size_of_val(&samples[..]),
            Voxels::U16(samples) => size_of_val(&samples[..]),
            Voxels::F32(samples) => size_of_val(&samples[..]),
        };
        // A scene has a byte for each block, and a table of colours.
        (samples + size_of_val(&*self.ranges) + self.ranges.len() + SCENE_BYTES) as u64
    }
}

/// What a scene takes beside its blocks, at most: 65536 colours, and a number for each.
const SCENE_BYTES: usize = (16 + 4) << 16;

impl ViewScene {
    /// Draws it: all that shows of it in a picture of this size.
    ///
    /// # Errors
    /// There are too many pixels, or the state's camera is none.
    pub fn draw(&self, state: &ViewState, size: [u32; 2]) -> Result<Layer, ViewError> {
        let (camera, clip) = self.placed(state, size)?;
        Ok(Layer::new(cast(&self.scene, &camera, &clip), size))
    }

    /// The camera of a state, and between which voxels of the volume something is seen, as this level
    /// counts them.
    pub(super) fn placed(
        &self,
        state: &ViewState,
        size: [u32; 2],
    ) -> Result<(Camera, Borders), ViewError> {
        let sides = checked(size)?;
        let brick = self.scene.brick();
        let (whole, spacing) = (brick.whole_size(), brick.voxels().spacing());
        let view = state.camera;
        // A coarse voxel is the middle of those that it stands for.
        let shift = match self.level {
            Level::Fine => [0.0; 3],
            Level::Coarse => spacing.map(|spacing| spacing * FIRST_MIDDLE / COARSE as f64),
        };
        let place = |at: [f64; 3]| [0, 1, 2].map(|axis| at[axis] - shift[axis]);
        let projection = Projection::Perspective { fov_degrees: view.fov_degrees };
        let camera = Camera::new(place(view.eye), place(view.target), view.up, projection, sides)?;
        let clip = [0, 1, 2].map(|axis| {
            let [from, to] = state.clip[axis].map(|part| match self.level {
                Level::Fine => part * (whole[axis] - 1) as f64,
                // The last of them may stand for fewer: how many is not known here.
                Level::Coarse => {
                    let fine = part * (whole[axis] * COARSE - 1) as f64;
                    (fine - FIRST_MIDDLE) / COARSE as f64
                }
            });
            (from, to)
        });
        Ok((camera, clip))
    }
}

/// Where the middle of the first coarse voxel is, in fine ones.
const FIRST_MIDDLE: f64 = (COARSE - 1) as f64 / 2.0;
