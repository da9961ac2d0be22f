//! Pictures of volumes.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::animation::AnimationSpec;
use super::camera::CameraSpec;
#[cfg(feature = "gpu")]
use super::device::{DevicePhotographer, Pictures};
use super::faint::Taken;
use super::files::{check_name, has_end};
use super::{ApplicationError, Device, Finished, Inputs, Product, Stages, sides};
use crate::image::{Picture, Rgba, write_byte_png, write_exr, write_png};
use crate::memory::bytes_of;
use crate::pace::Pace;
use crate::raycast::{Camera, ControlPoint, FramePlan, Look, Scene, ScenePlan, Shading, Transfer};
use crate::volume::{Brick, read_grid};

/// What a picture is taken of, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeSpec {
    volume: PathBuf,
    picture: String,
    size: [usize; 2],
    step: Option<f64>,
    opacity_unit: f64,
    camera: CameraSpec,
    transfer: Vec<PointSpec>,
    shading: Option<ShadingSpec>,
    animation: Option<AnimationSpec>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointSpec {
    value: f32,
    colour: [f32; 3],
    opacity: f32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShadingSpec {
    ambient: f32,
    diffuse: f32,
    specular: f32,
    shininess: u16,
}

impl VolumeSpec {
    pub(super) fn check(&self) -> Result<(), ApplicationError> {
        check_name("picture", &self.picture, &[".png", ".exr"])?;
        self.camera.camera(self.size)?;
        self.transfer()?;
        self.animation.as_ref().map_or(Ok(()), |flight| flight.check(&self.camera, self.size))
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        vec![("volume", &self.volume)]
    }

    pub(super) fn outputs(&self) -> Vec<String> {
        match &self.animation {
            None => vec![self.picture.clone()],
            Some(animation) => animation.names(&self.picture),
        }
    }

    /// Each frame is a part.
    pub(super) fn parts(&self) -> Option<Vec<String>> {
        self.animation.as_ref().map(AnimationSpec::parts)
    }

    /// The part of this name.
    pub(super) fn only(self, part: &str) -> Option<Self> {
        let animation = self.animation.as_ref()?.only(part)?;
        Some(Self { animation: Some(animation), ..self })
    }

    fn transfer(&self) -> Result<Transfer, ApplicationError> {
        let points = self.transfer.iter().map(|point| {
            let PointSpec { value, colour, opacity } = *point;
            ControlPoint { value, colour, opacity }
        });
        Transfer::new(points.collect(), self.opacity_unit).map_err(ApplicationError::value)
    }

    /// Whether its look is so steep, for its volume and its step, that what is rounded of a value is
    /// seen. One whose volume nobody can tell counts as such.
    pub(super) fn is_steep(&self, folder: &Path) -> bool {
        let grid = read_grid(&folder.join(&self.volume)).ok();
        let look = self.look().ok();
        look.zip(grid).is_none_or(|(look, grid)| !look.is_sure(grid.size, grid.spacing))
    }

    /// Whether pictures are OpenEXR, and not PNG.
    fn is_exr(&self) -> bool {
        has_end(&self.picture, ".exr")
    }

    /// Bytes that a picture's file takes at least for each pixel, beside the picture.
    fn bytes_beside(&self) -> usize {
        // What is packed says nothing before that is done.
        if self.is_exr() { 0 } else { 4 }
    }

    fn look(&self) -> Result<Look, ApplicationError> {
        let shading = self.shading.as_ref().map(|light| Shading {
            ambient: light.ambient,
            diffuse: light.diffuse,
            specular: light.specular,
            shininess: light.shininess,
        });
        Ok(Look { transfer: self.transfer()?, step: self.step, shading })
    }

    fn cameras(&self) -> Result<Vec<Camera>, ApplicationError> {
        match &self.animation {
            None => Ok(vec![self.camera.camera(self.size)?]),
            Some(animation) => animation.cameras(&self.camera, self.size),
        }
    }

    pub(super) fn run(&self, stages: &mut Stages<'_>) -> Result<Finished, ApplicationError> {
        let (cameras, look) = (self.cameras()?, self.look()?);
        let volume = stages.volume(&self.volume)?;
        for camera in &cameras {
            look.check_distance(camera, volume.size(), volume.spacing())
                .map_err(ApplicationError::value)?;
        }
        let size = format!("{}@{}", sides(&volume.size()), sides(&self.size));
        let (frames, pixels) = (cameras.len(), self.size[0] * self.size[1]);
        stages.needs(
            || format!("a picture of {} x {} pixels", self.size[0], self.size[1]),
            bytes_of(&[pixels, size_of::<Rgba>() + self.bytes_beside()]),
        )?;
        let mut summary = Vec::new();
        let mut photographer = match stages.control.device.clone() {
            Device::Processor => {
                let plan = ScenePlan::new(Brick::whole(volume.clone()), &look);
                let plan = plan.map_err(ApplicationError::value)?;
                let scene = stages.perform("scene", plan)?;
                Photographer::Processor { scene, pace: Pace::new() }
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                summary.push(format!("taken by {}", gpu.name()));
                if !look.is_sure(volume.size(), volume.spacing()) {
                    summary.push(STEEP.to_owned());
                }
                let pictures =
                    Pictures { size: self.size, are_many: frames > 1, are_bytes: !self.is_exr() };
                let (volume, look) = (volume.clone(), look.clone());
                Photographer::Gpu(DevicePhotographer::new(gpu, volume, look, pictures)?)
            }
        };
        let (mut seen, mut frames_seen, mut opacity) = (0, 0, 0.0_f32);
        for (frame, (name, camera)) in self.outputs().into_iter().zip(&cameras).enumerate() {
            let stage = match frames {
                1 => "picture".to_owned(),
                _ => format!("picture {} of {frames}", frame + 1),
            };
            stages.turn = (frame, frames);
            let picture = photographer.take(stages, &stage, camera.clone())?;
            seen = picture.seen();
            opacity = opacity.max(picture.greatest_opacity());
            frames_seen += usize::from(seen > 0);
            stages.keep(product(name, picture)?)?;
        }
        summary.push(match frames {
            1 => format!("{seen} of {pixels} pixels show something"),
            _ => format!("{frames_seen} of {frames} pictures show something"),
        });
        drop(photographer);
        stages.turn = (0, 1);
        let (cameras, transfer) = (&cameras[..], &look.transfer);
        let taken = Taken { volume, cameras, transfer, opacity_unit: self.opacity_unit, opacity };
        summary.extend(taken.why_faint(stages)?);
        Ok(Finished { size, by: stages.by, summary })
    }
}

/// What is said of a look for which a job would not be given to GPUs.
#[cfg(feature = "gpu")]
const STEEP: &str = "colours or opacities jump from one value to the next: where a value is rounded to the \
                     other side, a pixel may differ by more than 1/255 from a processor's";

/// Takes pictures of one volume, which it has made ready.
enum Photographer {
    Processor {
        scene: Arc<Scene>,
        /// Of the last picture.
        pace: Pace,
    },
    #[cfg(feature = "gpu")]
    Gpu(Box<DevicePhotographer>),
}

impl Photographer {
    /// A camera's picture.
    fn take(
        &mut self,
        stages: &mut Stages<'_>,
        stage: &str,
        camera: Camera,
    ) -> Result<Picture, ApplicationError> {
        match self {
            Self::Processor { scene, pace } => {
                let frame = FramePlan::new(scene.clone(), camera);
                let frame = stages.perform_at(pace, stage, frame)?;
                pace.ease();
                Ok(Picture::Full(frame.image))
            }
            #[cfg(feature = "gpu")]
            Self::Gpu(photographer) => photographer.take(stages, stage, &camera),
        }
    }
}

/// A picture as the file that its name says.
fn product(name: String, picture: Picture) -> Result<Product, ApplicationError> {
    let mut file = Cursor::new(Vec::new());
    let written = match picture {
        Picture::Full(image) if has_end(&name, ".exr") => write_exr(&image, &mut file),
        Picture::Full(image) => write_png(&image, &mut file),
        Picture::Bytes { image, .. } => write_byte_png(&image, &mut file),
    };
    written.map_err(ApplicationError::work)?;
    Ok(Product { name, bytes: file.into_inner() })
}
