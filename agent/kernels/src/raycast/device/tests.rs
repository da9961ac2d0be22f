use std::sync::Arc;

use gleaner_protocol::Time;

use super::super::tests::{
    FOG, LIT, MIDDLE, SHELL, ball, camera, done, frame, look, most_opaque, scene, whole,
};
use super::super::{Camera, Look, Projection, Scene};
use super::{Caster, DeviceFramePlan, DeviceScenePlan, bricks};
use crate::gpu::tests::{open, software, with_room};
use crate::gpu::{Gpu, GpuError};
use crate::image::Image;
use crate::limits::{DEVICE_RAY_SAMPLES, DEVICE_TILES_MAX, TILE};
use crate::volume::{Brick, Volume, Voxels};
use crate::{Outcome, Pace, Plan, Preempt, Slice, run};

/// What a picture may differ in, in each channel.
const TOLERANCE: f32 = 1.0 / 255.0;

fn size(camera: &Camera) -> [usize; 2] {
    [camera.width(), camera.height()]
}

fn plan(gpu: Arc<Gpu>, scene: &Arc<Scene>, camera: &Camera) -> Box<DeviceFramePlan> {
    let caster = Caster::new(gpu, scene.brick.voxels().voxels(), size(camera)).expect("a caster");
    let image = Image::transparent(camera.width(), camera.height());
    behind(caster, scene, camera, image)
}

fn behind(
    caster: Caster,
    scene: &Arc<Scene>,
    camera: &Camera,
    image: Image,
) -> Box<DeviceFramePlan> {
    let plan = DeviceScenePlan::new(caster, scene.clone()).expect("a plan");
    DeviceFramePlan::new(done(plan), camera.clone(), image)
}

fn on_device(scene: &Arc<Scene>, camera: &Camera) -> Image {
    done(plan(software(), scene, camera)).image
}

/// That a device and the processor take the same picture, in which there is something.
fn assert_same(scene: &Arc<Scene>, camera: &Camera) {
    let (ours, theirs) = (frame(scene, camera).image, on_device(scene, camera));
    let difference = ours.difference(&theirs).expect("one size");
    assert!(difference < TOLERANCE, "{difference}: {camera:?}");
    assert!(most_opaque(&ours) > 0.1, "nothing is seen: {camera:?}");
}

fn parallel(eye: [f64; 3]) -> Camera {
    let projection = Projection::Parallel { height: 30.0 };
    Camera::new(eye, MIDDLE, [0.0, 1.0, 0.0], projection, [31, 24]).expect("a camera")
}

#[test]
fn a_device_sees_what_the_processor_sees() {
    let volume = ball([25, 24, 23]);
    for (points, shading) in [(&SHELL[..], Some(LIT)), (&SHELL[..], None), (&FOG[..], Some(LIT))] {
        let scene = whole(volume.clone(), &Look { shading, ..look(points) });
        // From outside and from within, and along an axis, where samples are on voxels.
        for eye in [[60.0, -40.0, 30.0], [9.3, 12.2, 11.7]] {
            assert_same(&scene, &camera(eye, MIDDLE));
        }
        assert_same(&scene, &parallel([12.0, 12.0, -30.0]));
    }
}

#[test]
fn voxels_of_all_types_are_seen() {
    let bytes = ball([20, 21, 22]);
    let Voxels::U8(samples) = bytes.voxels() else { panic!("bytes") };
    let more = |voxels| Volume::new([20, 21, 22], bytes.spacing(), voxels).expect("a volume");
    let words = samples.iter().map(|sample| u16::from(*sample) * 257);
    let floats = samples.iter().map(|sample| f32::from(*sample));
    let wide = SHELL.map(|(value, opacity)| (value * 257.0, opacity));
    let camera = camera([50.0, 30.0, 40.0], [10.0, 10.0, 15.0]);
    let lit = |points: &[(f32, f32)]| Look { shading: Some(LIT), ..look(points) };
    assert_same(&whole(more(Voxels::U16(words.collect())), &lit(&wide)), &camera);
    assert_same(&whole(more(Voxels::F32(floats.collect())), &lit(&SHELL)), &camera);
}

#[test]
fn what_comes_brick_by_brick_is_the_picture_of_the_whole() {
    let volume = ball([25, 24, 23]);
    for (points, shading) in [(&SHELL[..], Some(LIT)), (&FOG[..], None)] {
        let look = Look { shading, ..look(points) };
        for camera in [
            camera([60.0, -40.0, 30.0], MIDDLE),
            camera([9.3, 12.2, 11.7], MIDDLE),
            parallel([50.0, 12.0, 18.0]),
        ] {
            let parts = bricks(&volume, &camera, 16, 3000);
            assert!(parts.len() > 4);
            let caster = Caster::new(software(), volume.voxels(), size(&camera));
            let mut caster = caster.expect("a caster");
            let mut image = Image::transparent(camera.width(), camera.height());
            for cells in parts {
                let scene = scene(Brick::cut_out(&volume, cells), &look);
                let cast = done(behind(caster, &scene, &camera, image));
                (image, caster) = (cast.image, cast.scene.into_caster());
            }
            let single = frame(&whole(volume.clone(), &look), &camera).image;
            let difference = image.difference(&single).expect("one size");
            assert!(difference < TOLERANCE, "{difference}: {camera:?}");
            assert!(most_opaque(&single) > 0.1, "nothing is seen: {camera:?}");
        }
    }
}

#[test]
fn long_rays_come_to_their_end() {
    let volume = ball([25, 24, 23]);
    let look = Look { step: Some(0.004), ..look(&FOG) };
    let scene = whole(volume, &look);
    let projection = Projection::Perspective { fov_degrees: 40.0 };
    let camera = Camera::new([60.0, -40.0, 30.0], MIDDLE, [0.0, 1.0, 0.0], projection, [9, 7]);
    let camera = camera.expect("a camera");
    let plan = plan(software(), &scene, &camera);
    assert_eq!(plan.rounds, (44.0 / 0.004 / DEVICE_RAY_SAMPLES as f64).ceil() as usize);
    assert_same(&scene, &camera);
}

#[test]
fn more_tiles_than_are_cast_at_once_are_cast() {
    let scene = whole(ball([9, 9, 9]), &look(&FOG));
    let projection = Projection::Parallel { height: 12.0 };
    let size = [900, 400];
    let camera = Camera::new([4.0, 4.0, -9.0], [4.0; 3], [0.0, 1.0, 0.0], projection, size);
    let camera = camera.expect("a camera");
    let mut plan = plan(software(), &scene, &camera);
    assert!(size[0] * size[1] / (TILE * TILE) > DEVICE_TILES_MAX);
    let units = plan.units();
    plan.run(&Slice::new(0..units)).expect("the device goes on");
    let image = plan.finish().expect("a picture").image;
    let difference = image.difference(&frame(&scene, &camera).image).expect("one size");
    assert!(difference < TOLERANCE, "{difference}");
    assert!(most_opaque(&image) > 0.1, "nothing is seen");
}

#[test]
fn nothing_is_seen_of_a_sheet_and_behind_what_is_opaque() {
    let sheet = Volume::new([9, 9, 1], [1.0; 3], Voxels::U8(vec![255; 81])).expect("a volume");
    let from = camera([4.0, 4.0, -9.0], [4.0, 4.0, 0.0]);
    assert_eq!(most_opaque(&on_device(&whole(sheet, &look(&FOG)), &from)), 0.0);
    let scene = whole(ball([9, 9, 9]), &look(&FOG));
    let caster = Caster::new(software(), scene.brick.voxels().voxels(), size(&from));
    let caster = caster.expect("a caster");
    let mut wall = Image::transparent(from.width(), from.height());
    wall.pixels_mut().fill([0.0, 1.0, 0.0, 1.0]);
    assert_eq!(done(behind(caster, &scene, &from, wall.clone())).image, wall);
}

#[test]
fn who_takes_a_picture_on_a_device_stops_when_asked() {
    let scene = whole(ball([24, 24, 24]), &look(&FOG));
    let plan = plan(software(), &scene, &camera([60.0, -40.0, 30.0], MIDDLE));
    let (preempt, units) = (Preempt::new(), plan.units());
    // By a clock that stands still slices grow: after three 1 + 4 + 16 of 56 tiles are taken.
    let mut slices = 0;
    let outcome = run(plan, &preempt, &mut Pace::new(), || Time::ZERO, &mut |_| {
        slices += 1;
        if slices == 3 {
            preempt.ask();
        }
    });
    let Ok(Outcome::Stopped { done, units: of }) = outcome else { panic!("it went on") };
    assert!(done < units && of == units, "{done} of {units}");
}

#[test]
fn a_brick_is_no_larger_than_there_is_room_for() {
    let gpu = with_room(1 << 20);
    for (voxels, bytes) in
        [(Voxels::U8(Vec::new()), 1), (Voxels::U16(Vec::new()), 2), (Voxels::F32(Vec::new()), 4)]
    {
        assert_eq!(Caster::brick_max(&gpu, &voxels).1 * bytes, 1 << 20);
    }
}

#[test]
fn a_device_tells_how_fast_it_takes_samples_and_shows_the_same_after() {
    let scene = whole(ball([25, 24, 23]), &look(&FOG));
    let camera = camera([60.0, -40.0, 30.0], MIDDLE);
    let caster = Caster::new(software(), scene.brick.voxels().voxels(), size(&camera));
    let there = done(DeviceScenePlan::new(caster.expect("a caster"), scene.clone()).expect("room"));
    let per_second = there.samples_per_second(&gleaner_protocol::boottime).expect("it can");
    assert!(per_second.is_some_and(|rate| rate > 1e3), "{per_second:?}");
    let image = Image::transparent(camera.width(), camera.height());
    let theirs = done(DeviceFramePlan::new(there, camera.clone(), image)).image;
    let difference = frame(&scene, &camera).image.difference(&theirs).expect("one size");
    assert!(difference < TOLERANCE, "{difference}");
}

#[test]
fn a_device_that_is_lost_in_the_middle_is_an_error() {
    let gpu = open();
    let scene = whole(ball([24, 24, 24]), &look(&FOG));
    let mut plan = plan(gpu.clone(), &scene, &camera([60.0, -40.0, 30.0], MIDDLE));
    let units = plan.units();
    plan.run(&Slice::new(0..20)).expect("the device goes on");
    gpu.device().destroy();
    let error = plan.run(&Slice::new(20..units)).expect_err("it is lost");
    assert!(matches!(&error, GpuError::Lost { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("llvmpipe") && told.contains("was lost"), "{told}");
}
