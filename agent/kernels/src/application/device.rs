//! Pictures of volumes on a GPU.

use std::sync::Arc;

use super::{ApplicationError, Stages};
use crate::gpu::Gpu;
use crate::image::Image;
use crate::raycast::{
    Camera, Caster, DeviceFramePlan, DeviceScene, DeviceScenePlan, Look, ScenePlan, bricks,
};
use crate::volume::{Brick, Volume};

/// Takes pictures of one volume on a GPU, brick by brick where it is too large for the device.
pub(super) struct DevicePhotographer {
    volume: Arc<Volume>,
    look: Look,
    /// Voxels of a brick along each side, and in all.
    brick_max: (usize, usize),
    ready: Ready,
}

/// What is on the device from one picture to the next.
enum Ready {
    /// No brick.
    Caster(Caster),
    /// The only one.
    Whole(DeviceScene),
}

impl DevicePhotographer {
    /// Gets a device ready to take pictures of `size`.
    pub(super) fn new(
        gpu: Arc<Gpu>,
        volume: Arc<Volume>,
        look: Look,
        size: [usize; 2],
    ) -> Result<Box<Self>, ApplicationError> {
        let brick_max = Caster::brick_max(&gpu, volume.voxels());
        let caster = Caster::new(gpu, volume.voxels(), size).map_err(ApplicationError::work)?;
        Ok(Box::new(Self { volume, look, brick_max, ready: Ready::Caster(caster) }))
    }

    /// A camera's picture, and what takes the next one. A volume in one brick stays on the device;
    /// the order of several is another one for each camera.
    pub(super) fn take(
        mut self: Box<Self>,
        stages: &mut Stages<'_>,
        stage: &str,
        camera: &Camera,
    ) -> Result<(Image, Box<Self>), ApplicationError> {
        let parts = bricks(&self.volume, camera, self.brick_max.0, self.brick_max.1);
        let count = parts.len();
        let mut image = None;
        for (at, cells) in parts.into_iter().enumerate() {
            let named = |what: &str| match count {
                1 => what.to_owned(),
                _ => format!("{what} ({} of {count})", at + 1),
            };
            let scene = match self.ready {
                Ready::Whole(scene) => scene,
                Ready::Caster(caster) => {
                    let brick = match count {
                        1 => Brick::whole(self.volume.clone()),
                        _ => Brick::cut_out(&self.volume, cells),
                    };
                    let plan =
                        ScenePlan::new(brick, &self.look).map_err(ApplicationError::value)?;
                    let scene = stages.perform(&named("scene"), plan)?;
                    let plan =
                        DeviceScenePlan::new(caster, scene).map_err(ApplicationError::work)?;
                    stages.perform(&named("to the GPU"), plan)?
                }
            };
            let plan = DeviceFramePlan::new(scene, camera.clone(), image);
            let cast = stages.perform(&named(stage), plan)?;
            image = Some(cast.image);
            self.ready = match count {
                1 => Ready::Whole(cast.scene),
                _ => Ready::Caster(cast.scene.into_caster()),
            };
        }
        let transparent = || Image::transparent(camera.width(), camera.height());
        Ok((image.unwrap_or_else(transparent), self))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gleaner_protocol::Time;

    use super::super::{Control, Device};
    use super::*;
    use crate::Preempt;
    use crate::gpu::tests::software;
    use crate::raycast::{ControlPoint, FramePlan, Projection, Shading, Transfer};

    #[test]
    fn a_picture_in_bricks_is_the_one_of_the_processor_and_tells_where_it_is() {
        let gpu = software();
        let (preempt, mut stages) = (Preempt::new(), Vec::new());
        let mut progress = |stage: &str, _: u16| {
            if stages.last().is_none_or(|last| last != stage) {
                stages.push(stage.to_owned());
            }
        };
        let mut control = Control {
            device: Device::Gpu(gpu.clone()),
            preempt: &preempt,
            clock: &|| Time::ZERO,
            free_bytes: &|| u64::MAX,
            progress: &mut progress,
            keep: &mut |_| Ok(()),
        };
        let mut performing = Stages { folder: Path::new(""), control: &mut control, turn: (0, 1) };
        let volume = Arc::new(Volume::rippled(32).expect("a volume"));
        let point =
            |value, opacity| ControlPoint { value, colour: [1.0, value / 255.0, 0.0], opacity };
        let points = vec![point(60.0, 0.0), point(120.0, 0.4), point(200.0, 0.1)];
        let shading = Shading { ambient: 0.3, diffuse: 0.6, specular: 0.2, shininess: 12 };
        let look = Look {
            transfer: Transfer::new(points, 1.0).expect("a function"),
            step: None,
            shading: Some(shading),
        };
        let projection = Projection::Perspective { fov_degrees: 30.0 };
        let (eye, up) = ([70.0, 60.0, 80.0], [0.0, 1.0, 0.0]);
        let camera = Camera::new(eye, [15.5; 3], up, projection, [70, 60]).expect("a camera");

        let photographer = || {
            DevicePhotographer::new(gpu.clone(), volume.clone(), look.clone(), [70, 60])
                .expect("a photographer")
        };
        let taken = photographer().take(&mut performing, "picture", &camera);
        let (whole, ready) = taken.expect("a picture");
        let (again, _) = ready.take(&mut performing, "another", &camera).expect("a picture");
        assert!(again == whole);
        let mut small = photographer();
        small.brick_max = (20, 20 * 20 * 20);
        let (parts, small) = small.take(&mut performing, "picture", &camera).expect("a picture");
        let (again, _) = small.take(&mut performing, "another", &camera).expect("a picture");
        assert!(again == parts);
        let plan = ScenePlan::new(Brick::whole(volume), &look).expect("a scene");
        let scene = performing.perform("own scene", plan).expect("a scene");
        let own = performing.perform("own picture", FramePlan::new(scene, camera));
        let own = own.expect("a picture").image;

        assert!(own.pixels().iter().any(|pixel| pixel[3] > 0.5), "nothing is seen");
        for image in [whole, parts] {
            let difference = image.difference(&own).expect("one size");
            assert!(difference < 1.0 / 255.0, "{difference}");
        }
        // What is there in one brick goes there once.
        let first = ["scene", "to the GPU", "picture", "another", "scene (1 of 8)"];
        assert_eq!(stages[..5], first);
        assert_eq!(stages[5 + 8 * 3 - 2..][..2], ["picture (8 of 8)", "scene (1 of 8)"]);
        let last = ["to the GPU (8 of 8)", "another (8 of 8)", "own scene", "own picture"];
        assert_eq!(stages[stages.len() - 4..], last);
    }
}
