//! Pictures of volumes on a GPU.
//!
//! # Invariants
//! - What stays on the device from one picture to the next, and what comes beside it, is no more than
//!   its data may take.

use std::ops::Range;
use std::sync::Arc;

use super::{ApplicationError, Stages, sides};
use crate::gpu::Gpu;
use crate::image::{Image, Picture};
use crate::memory::bytes_of;
use crate::pace::Pace;
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
    /// Bytes that bricks may take there.
    data_bytes_max: usize,
    caster: Arc<Caster>,
    /// Bricks that stay on the device, with their cells.
    kept: Vec<(Cells, Arc<DeviceScene>)>,
    pictures: Pictures,
    /// Of the last picture.
    pace: Pace,
}

/// What pictures are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pictures {
    /// Pixels in a row, and rows.
    pub(super) size: [usize; 2],
    /// Whether there is more than one.
    pub(super) are_many: bool,
    /// Whether eight bits a channel are enough.
    pub(super) are_bytes: bool,
}

/// Those of a brick along each axis.
type Cells = [Range<usize>; 3];

impl DevicePhotographer {
    /// Gets a device ready to take pictures.
    pub(super) fn new(
        gpu: Arc<Gpu>,
        volume: Arc<Volume>,
        look: Look,
        pictures: Pictures,
    ) -> Result<Box<Self>, ApplicationError> {
        let brick_max = Caster::brick_max(&gpu, volume.voxels());
        let data_bytes_max = gpu.data_bytes_max();
        let caster = Caster::new(gpu, volume.voxels(), pictures.size);
        let caster = caster.map_err(ApplicationError::work)?;
        let (kept, pace) = (Vec::new(), Pace::new());
        let made = Self { volume, look, brick_max, data_bytes_max, caster, kept, pictures, pace };
        Ok(Box::new(made))
    }

    /// A camera's picture, in bytes where so many bits are enough and there is one brick. The order of
    /// several is another one for each camera.
    pub(super) fn take(
        &mut self,
        stages: &mut Stages<'_>,
        stage: &str,
        camera: &Camera,
    ) -> Result<Picture, ApplicationError> {
        let parts = bricks(&self.volume, camera, self.brick_max.0, self.brick_max.1);
        let count = parts.len();
        let all_bytes: Vec<usize> = parts.iter().map(|cells| self.bytes(cells)).collect();
        // Beside what stays there is one that does not, unless all do.
        let sum = all_bytes.iter().sum::<usize>();
        let beside = match sum <= self.data_bytes_max {
            true => 0,
            false => all_bytes.into_iter().max().unwrap_or(0),
        };
        let mut taken: Option<Picture> = None;
        for (at, cells) in parts.into_iter().enumerate() {
            let named = |what: &str| match count {
                1 => what.to_owned(),
                _ => format!("{what} ({} of {count})", at + 1),
            };
            let is_known = |(kept, _): &&(Cells, Arc<DeviceScene>)| *kept == cells;
            let scene = match self.kept.iter().find(is_known) {
                Some((_, scene)) => scene.clone(),
                None => {
                    let scene = self.sent(stages, &cells, count, &named)?;
                    if self.pictures.are_many
                        && (count == 1 || self.has_room_for(stages, &cells, beside))
                    {
                        self.kept.push((cells, scene.clone()));
                    }
                    scene
                }
            };
            let plan = match taken {
                None if count == 1 && self.pictures.are_bytes => {
                    DeviceFramePlan::in_bytes(scene, camera.clone())
                }
                Some(Picture::Full(front)) => {
                    DeviceFramePlan::new(scene, camera.clone(), Some(front))
                }
                _ => DeviceFramePlan::new(scene, camera.clone(), None),
            };
            taken = Some(stages.perform_at(&mut self.pace, &named(stage), plan)?.picture);
            self.pace.ease();
        }
        let transparent = || Image::transparent(camera.width(), camera.height());
        Ok(taken.unwrap_or_else(|| Picture::Full(transparent())))
    }

    /// Makes a brick ready, one of so many, and sends it to the device.
    fn sent(
        &self,
        stages: &mut Stages<'_>,
        cells: &Cells,
        count: usize,
        named: &dyn Fn(&str) -> String,
    ) -> Result<Arc<DeviceScene>, ApplicationError> {
        let brick = match count {
            1 => Brick::whole(self.volume.clone()),
            _ => {
                let size = Brick::sides(self.volume.size(), cells);
                let bytes = bytes_of(&[self.bytes(cells)]);
                stages.needs(|| format!("a brick of {} voxels", sides(&size)), bytes)?;
                Brick::cut_out(&self.volume, cells.clone())
            }
        };
        let plan = ScenePlan::new(brick, &self.look).map_err(ApplicationError::value)?;
        let scene = stages.perform(&named("scene"), plan)?;
        let plan = DeviceScenePlan::new(self.caster.clone(), scene);
        stages.perform(&named("to the GPU"), plan.map_err(ApplicationError::work)?)
    }

    /// Whether a brick that is there may stay, so that it need not be sent again: there, with one of so
    /// many bytes `beside`, and here, where its voxels are for rays that are left to the processor.
    fn has_room_for(&self, stages: &Stages<'_>, cells: &Cells, beside: usize) -> bool {
        let kept: usize = self.kept.iter().map(|(cells, _)| self.bytes(cells)).sum();
        let bytes = self.bytes(cells);
        let is_room_there = kept + bytes + beside <= self.data_bytes_max;
        // The next one is cut out, and sent, before it is known whether it stays.
        let is_room_here = || (stages.control.free_bytes)() >= bytes_of(&[bytes, 3]);
        is_room_there && is_room_here()
    }

    /// Bytes that a brick takes.
    fn bytes(&self, cells: &Cells) -> usize {
        Caster::brick_bytes(self.volume.voxels(), Brick::sides(self.volume.size(), cells))
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

    /// Does something in stages; which these were, in order.
    fn performed(free_bytes: u64, work: impl FnOnce(&mut Stages<'_>)) -> Vec<String> {
        let (preempt, mut stages) = (Preempt::new(), Vec::new());
        let mut progress = |stage: &str, _: u16| {
            if stages.last().is_none_or(|last| last != stage) {
                stages.push(stage.to_owned());
            }
        };
        let mut control = Control {
            device: Device::Processor,
            preempt: &preempt,
            clock: &|| Time::ZERO,
            free_bytes: &|| free_bytes,
            progress: &mut progress,
            keep: &mut |_| Ok(()),
        };
        work(&mut Stages::new(Path::new(""), &mut control));
        stages
    }

    /// A photographer of a volume that fits into one brick, or is cut into eight.
    fn photographer(are_many: bool, is_cut: bool) -> Box<DevicePhotographer> {
        let volume = Arc::new(Volume::rippled(32).expect("a volume"));
        let pictures = Pictures { size: [70, 60], are_many, are_bytes: false };
        let made = DevicePhotographer::new(software(), volume, look(), pictures);
        let mut made = made.expect("a photographer");
        if is_cut {
            made.brick_max = (20, 20 * 20 * 20);
        }
        made
    }

    fn look() -> Look {
        let point =
            |value, opacity| ControlPoint { value, colour: [1.0, value / 255.0, 0.0], opacity };
        let points = vec![point(60.0, 0.0), point(120.0, 0.4), point(200.0, 0.1)];
        let shading = Shading { ambient: 0.3, diffuse: 0.6, specular: 0.2, shininess: 12 };
        Look {
            transfer: Transfer::new(points, 1.0).expect("a function"),
            step: None,
            shading: Some(shading),
        }
    }

    fn camera() -> Camera {
        let projection = Projection::Perspective { fov_degrees: 30.0 };
        let (eye, up) = ([70.0, 60.0, 80.0], [0.0, 1.0, 0.0]);
        Camera::new(eye, [15.5; 3], up, projection, [70, 60]).expect("a camera")
    }

    #[test]
    fn a_picture_in_bricks_is_the_one_of_the_processor_and_tells_where_it_is() {
        let camera = camera();
        let (mut images, mut own) = (Vec::new(), None);
        let stages = performed(u64::MAX, |stages| {
            let mut whole = photographer(true, false);
            images.push(whole.take(stages, "picture", &camera).expect("a picture"));
            images.push(whole.take(stages, "another", &camera).expect("a picture"));
            let mut parts = photographer(false, true);
            images.push(parts.take(stages, "picture", &camera).expect("a picture"));
            let brick = Brick::whole(Arc::new(Volume::rippled(32).expect("a volume")));
            let plan = ScenePlan::new(brick, &look()).expect("a scene");
            let scene = stages.perform("own scene", plan).expect("a scene");
            own = stages.perform("own picture", FramePlan::new(scene, camera.clone())).ok();
        });
        let own = own.expect("a picture").image;
        assert!(own.pixels().iter().any(|pixel| pixel[3] > 0.5), "nothing is seen");
        assert!(images[0] == images[1]);
        for picture in images {
            let Picture::Full(image) = picture else { panic!("bytes are not enough") };
            let difference = image.difference(&own).expect("one size");
            assert!(difference < 1.0 / 255.0, "{difference}");
        }
        let first = ["scene", "to the GPU", "picture", "another", "scene (1 of 8)"];
        assert_eq!(stages[..5], first);
        let last = ["to the GPU (8 of 8)", "picture (8 of 8)", "own scene", "own picture"];
        assert_eq!(stages[stages.len() - 4..], last);
    }

    #[test]
    fn bricks_that_have_room_stay_on_the_device_from_one_picture_to_the_next() {
        let camera = camera();
        // Each of eight has half of the cells along a side, and its rim.
        let brick_bytes = 18 * 18 * 18;
        for (room, free_bytes, sent_again) in [
            (8 * brick_bytes, u64::MAX, 0),
            (4 * brick_bytes, u64::MAX, 5),
            (brick_bytes, u64::MAX, 8),
            (8 * brick_bytes, 1 << 14, 8),
        ] {
            let mut images = Vec::new();
            let stages = performed(free_bytes, |stages| {
                let mut small = photographer(true, true);
                small.data_bytes_max = room;
                images.push(small.take(stages, "picture", &camera).expect("a picture"));
                images.push(small.take(stages, "another", &camera).expect("a picture"));
            });
            assert!(images[0] == images[1]);
            let sent = stages.iter().filter(|stage| stage.starts_with("to the GPU")).count();
            assert_eq!(sent - 8, sent_again, "{room}: {stages:?}");
        }
    }
}
