use std::sync::Arc;

use rand::{RngExt as _, SeedableRng as _};

use gleaner_protocol::Time;

use super::super::tests::{
    FOG, LIT, MIDDLE, SHELL, ball, camera, done, frame, in_unit, look, most_opaque, scene, whole,
};
use super::super::{Camera, ControlPoint, Look, Projection, Scene, Transfer};
use super::{Cast, Caster, DeviceFramePlan, DeviceScene, DeviceScenePlan, bricks};
use crate::gpu::tests::{open, software, with_room};
use crate::gpu::{Gpu, GpuError};
use crate::image::{ByteImage, Image, Picture, byte_pixel};
use crate::limits::{DEVICE_RAY_SAMPLES, DEVICE_TILES_MAX, TILE};
use crate::volume::{Brick, Volume, Voxels};
use crate::{Outcome, Pace, Plan, Preempt, Slice, run};

/// What was taken, in single precision.
fn full(cast: Cast) -> Image {
    match cast.picture {
        Picture::Full(image) => image,
        Picture::Bytes { .. } => panic!("it has eight bits a channel"),
    }
}

/// What a picture may differ in, in each channel.
const TOLERANCE: f32 = 1.0 / 255.0;

fn size(camera: &Camera) -> [usize; 2] {
    [camera.width(), camera.height()]
}

fn plan(gpu: Arc<Gpu>, scene: &Arc<Scene>, camera: &Camera) -> Box<DeviceFramePlan> {
    let caster = Caster::new(gpu, scene.brick.voxels().voxels(), size(camera)).expect("a caster");
    behind(caster, scene, camera, None)
}

fn behind(
    caster: Arc<Caster>,
    scene: &Arc<Scene>,
    camera: &Camera,
    front: Option<Image>,
) -> Box<DeviceFramePlan> {
    let plan = DeviceScenePlan::new(caster, scene.clone()).expect("a plan");
    DeviceFramePlan::new(done(plan), camera.clone(), front)
}

fn on_device(scene: &Arc<Scene>, camera: &Camera) -> Image {
    full(done(plan(software(), scene, camera)))
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

/// A ramp from 60 to a value, up to an opacity.
fn ramp(to: f32, top: f32) -> Vec<(f32, f32)> {
    vec![(60.0, 0.0), (to, top), (255.0, top)]
}

/// A peak of such an opacity, so wide on each side.
fn peak(half: f32, top: f32) -> Vec<(f32, f32)> {
    vec![(0.0, 0.0), (120.0 - half, 0.0), (120.0, top), (120.0 + half, 0.0), (255.0, 0.0)]
}

#[test]
fn a_device_sees_steep_looks_as_the_processor_does_wherever_that_is_sure() {
    let volume = Arc::new(Volume::rippled(64).expect("a volume"));
    for (points, step, is_sure) in [
        (ramp(61.5, 0.9), 1.0, true),
        (ramp(62.0, 1.0), 1.0, true),
        (ramp(64.0, 0.9), 0.5, true),
        (ramp(66.0, 1.0), 3.0, true),
        (ramp(72.0, 1.0), 3.0, true),
        (peak(2.5, 0.6), 1.0, true),
        // A step of the table next to what is opaque is seen whatever is behind.
        (ramp(60.0, 0.9), 1.0, false),
        (ramp(60.5, 1.0), 1.0, false),
        (ramp(62.0, 1.0), 0.5, false),
        (ramp(61.0, 0.9), 3.0, false),
        (peak(2.0, 1.0), 0.5, false),
    ] {
        let look = Look { step: Some(step), ..look(&points) };
        assert_eq!(look.is_sure(volume.size(), volume.spacing()), is_sure, "{points:?} {step}");
        if !is_sure {
            continue;
        }
        let scene = scene(Brick::whole(volume.clone()), &look);
        let projection = Projection::Perspective { fov_degrees: 25.0 };
        for eye in [[140.0, 110.0, 190.0], [30.0, 31.0, -120.0]] {
            let camera = Camera::new(eye, [31.5; 3], [0.0, 1.0, 0.1], projection, [320, 240]);
            assert_same(&scene, &camera.expect("a camera"));
        }
    }
}

#[test]
fn light_on_a_device_is_the_processors_in_any_unit_of_length() {
    for exponent in [-63.0, 62.0] {
        let (scene, camera) = in_unit(f64::exp2(exponent));
        assert_same(&scene, &camera);
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
            let caster = caster.expect("a caster");
            let mut image = None;
            for cells in parts {
                let scene = scene(Brick::cut_out(&volume, cells), &look);
                image = Some(full(done(behind(caster.clone(), &scene, &camera, image))));
            }
            let single = frame(&whole(volume.clone(), &look), &camera).image;
            let difference = image.and_then(|image| image.difference(&single)).expect("one size");
            assert!(difference < TOLERANCE, "{difference}: {camera:?}");
            assert!(most_opaque(&single) > 0.1, "nothing is seen: {camera:?}");
        }
    }
}

/// What a device takes of a scene in single precision, and in eight bits a channel.
fn in_both(there: &Arc<DeviceScene>, camera: &Camera) -> (Cast, Cast) {
    let plans = [
        DeviceFramePlan::new(there.clone(), camera.clone(), None),
        DeviceFramePlan::in_bytes(there.clone(), camera.clone()),
    ];
    plans.map(done).into()
}

#[test]
fn a_picture_in_bytes_is_the_one_that_a_processor_makes_of_it() {
    let volume = ball([25, 24, 23]);
    for (points, shading) in [(&SHELL[..], Some(LIT)), (&FOG[..], None)] {
        let scene = whole(volume.clone(), &Look { shading, ..look(points) });
        // The last one has pixels of several tiles that are not whole, and some that are unsure.
        for camera in [
            camera([60.0, -40.0, 30.0], MIDDLE),
            camera([9.3, 12.2, 11.7], MIDDLE),
            parallel([12.0, 12.0, -30.0]),
        ] {
            let caster = Caster::new(software(), scene.brick.voxels().voxels(), size(&camera));
            let there = DeviceScenePlan::new(caster.expect("a caster"), scene.clone());
            let (exact, bytes) = in_both(&done(there.expect("room")), &camera);
            assert_eq!(exact.unsure, bytes.unsure);
            let seen = exact.picture.seen();
            let expected = Picture::Bytes { image: ByteImage::of(&full(exact)), seen };
            assert!(bytes.picture == expected && seen > 0, "{camera:?}");
        }
    }
}

#[test]
fn a_device_makes_the_bytes_of_a_processor_to_the_last_of_them() {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(29);
    let mut pixels: Vec<[f32; 4]> = Vec::new();
    let side = 8 * TILE;
    let (mut unsure, mut near) = (0, 0);
    let caster = Caster::new(software(), ball([3; 3]).voxels(), [side, side]).expect("a caster");
    while pixels.len() < 40 * side * side {
        let opacity = match pixels.len() % 8 {
            0 => f32::exp2(random.random_range(-140.0..0.0)),
            1 => 1.0,
            2 => 1.0 + random.random_range(0.0..0.01),
            3 => f32::from(random.random_range(0..=255_u8)) / 255.0,
            _ => random.random_range(0.0..1.0),
        };
        // Next to where one byte becomes the next, and anywhere.
        let mut colour = |opacity: f32| {
            let byte = f32::from(random.random_range(0..=256_u16));
            let border = f64::from(opacity) * ((f64::from(byte) - 0.5) / 255.0);
            let by = random.random_range(0..4);
            match random.random_range(0..6) {
                0 => random.random_range(0.0..1.0) * opacity,
                1 => f32::from_bits(random.random_range(0..0x7f80_0000)),
                2 => [0.0, -0.0, -0.1, 1.5][by],
                3 => f32::from_bits((border as f32).to_bits().saturating_sub(by as u32)),
                _ => f32::from_bits((border as f32).to_bits().saturating_add(by as u32)),
            }
        };
        let colours = [colour(opacity), colour(opacity), colour(opacity)];
        let alpha = if pixels.len().is_multiple_of(3) { colour(1.0) } else { opacity };
        pixels.push([colours[0], colours[1], colours[2], alpha.abs()]);
    }
    for pixels in pixels.chunks(side * side) {
        for (tile, pixels) in caster.shown(pixels).iter().zip(pixels.chunks(TILE * TILE)) {
            let mut seen = 0;
            for (at, pixel) in pixels.iter().enumerate() {
                let (x, y) = (at % TILE, at / TILE);
                if tile.unsure(y) >> x & 1 == 1 {
                    // Only what next to nothing is seen of, and what is no number.
                    assert!(pixel[3] < 1e-29, "{pixel:?}");
                    unsure += 1;
                    continue;
                }
                assert_eq!(tile.rows[y][x], byte_pixel(pixel), "{pixel:?}");
                seen += usize::from(pixel[3] > 0.0);
                let whole = pixel[0] / pixel[3] * 255.0;
                near += usize::from((whole.fract() - 0.5).abs() < 1e-3 && whole < 255.0);
            }
            assert_eq!(tile.seen(), seen);
        }
    }
    assert!(near > pixels.len() / 4 && unsure < pixels.len() / 20, "{near} {unsure}");
}

#[test]
fn rays_of_several_rounds_are_not_taken_in_bytes() {
    let look = Look { step: Some(0.004), ..look(&FOG) };
    let scene = whole(ball([25, 24, 23]), &look);
    let camera = parallel([12.0, 12.0, -30.0]);
    let caster = Caster::new(software(), scene.brick.voxels().voxels(), size(&camera));
    let there = done(DeviceScenePlan::new(caster.expect("a caster"), scene).expect("room"));
    let plan = DeviceFramePlan::in_bytes(there, camera);
    assert!(plan.rounds > 1);
    full(done(plan));
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
    let size = [900, 640];
    let camera = Camera::new([4.0, 4.0, -9.0], [4.0; 3], [0.0, 1.0, 0.0], projection, size);
    let camera = camera.expect("a camera");
    let mut plan = plan(software(), &scene, &camera);
    assert!(size[0] * size[1] / (TILE * TILE) > DEVICE_TILES_MAX);
    let units = plan.units();
    plan.run(&Slice::new(0..units)).expect("the device goes on");
    let image = full(plan.finish().expect("a picture"));
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
    assert_eq!(full(done(behind(caster, &scene, &from, Some(wall.clone())))), wall);
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
    let theirs = full(done(DeviceFramePlan::new(there, camera.clone(), None)));
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

/// Cameras from all over around a volume of such extents: from within, from beside, from a million
/// times as far, in parallel, and along axes, where borders are whole numbers of steps away.
fn cameras(extents: [f64; 3], size: [usize; 2]) -> Vec<Camera> {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(17);
    let middle = extents.map(|extent| extent / 2.0);
    let new = |eye, target, up, projection| {
        Camera::new(eye, target, up, projection, size).expect("a camera")
    };
    let mut cameras = Vec::new();
    for far in [0.2, 0.6, 0.9, 1.5, 4.0, 30.0, 1e6] {
        let eye = middle.map(|part| part + far * random.random_range(-60.0..60.0));
        let target = middle.map(|part| part + random.random_range(-3.0..3.0));
        let fov_degrees = (2.0 * f64::atan(25.0 / (60.0 * far))).to_degrees();
        cameras.push(new(eye, target, [0.1, 1.0, 0.2], Projection::Perspective { fov_degrees }));
        cameras.push(new(eye, target, [0.3, 1.0, 0.1], Projection::Parallel { height: 50.0 }));
    }
    for axis in 0..3 {
        let (mut eye, mut up) = (middle, [0.0; 3]);
        eye[axis] = -21.0;
        up[(axis + 1) % 3] = 1.0;
        cameras.push(new(eye, middle, up, Projection::Parallel { height: 45.0 }));
        cameras.push(new(eye, middle, up, Projection::Perspective { fov_degrees: 70.0 }));
        // Not quite along it, as an orbit's sines and cosines have it.
        eye[(axis + 2) % 3] += 21.0 * 6e-17;
        up[axis] = 6e-17;
        cameras.push(new(eye, middle, up, Projection::Parallel { height: 45.0 }));
        // From a border, and from a corner.
        eye[axis] = 0.0;
        cameras.push(new(eye, middle, up, Projection::Perspective { fov_degrees: 90.0 }));
    }
    cameras.push(new([0.0; 3], extents, [0.0, 1.0, 0.0], PERSPECTIVE));
    cameras
}

const PERSPECTIVE: Projection = Projection::Perspective { fov_degrees: 90.0 };

/// A look at something as dense up to its rim that a single sample more or less would be seen.
fn dense(size: [usize; 3], spacing: [f64; 3], step: f64, opacity: f32) -> Arc<Scene> {
    let voxels = Voxels::U8(vec![200; size.iter().product()]);
    let points = [(0.0, opacity), (255.0, opacity)];
    whole(Volume::new(size, spacing, voxels).expect("a volume"), &of_steps(&points, step))
}

/// A look at what changes from voxel to voxel, so that a sample in the wrong place would be seen.
fn steep(size: [usize; 3], spacing: [f64; 3], step: f64, opacity: f32) -> Arc<Scene> {
    let value = |at: usize| {
        let place = [at % size[0], at / size[0] % size[1], at / (size[0] * size[1])];
        let [x, y, z] = place.map(|part| part as f32);
        let wave = (0.7 * x).sin() * (0.8 * y + 1.0).cos() + 0.5 * (0.9 * z).sin();
        (128.0 + 100.0 * wave).clamp(0.0, 255.0) as u8
    };
    let voxels = Voxels::U8((0..size.iter().product()).map(value).collect());
    let points = [(0.0, 0.0), (100.0, 0.0), (130.0, opacity), (160.0, 0.0)];
    whole(Volume::new(size, spacing, voxels).expect("a volume"), &of_steps(&points, step))
}

/// With opacities of one step.
fn of_steps(points: &[(f32, f32)], step: f64) -> Look {
    let points = points.iter().map(|(value, opacity)| ControlPoint {
        value: *value,
        colour: [1.0, 0.5, 0.25],
        opacity: *opacity,
    });
    let transfer = Transfer::new(points.collect(), step).expect("a function");
    Look { transfer, step: Some(step), shading: None }
}

/// Has both take pictures, and finds them the same; how many rays there were, and how many of them were
/// left to the processor.
fn compared(scene: &Arc<Scene>, cameras: &[Camera]) -> (usize, usize) {
    let largest =
        [0, 1].map(|side| cameras.iter().map(|camera| size(camera)[side]).max().expect("some"));
    let caster = Caster::new(software(), scene.brick.voxels().voxels(), largest);
    let plan = DeviceScenePlan::new(caster.expect("a caster"), scene.clone());
    let there = done(plan.expect("room"));
    let (mut rays, mut unsure) = (0, 0);
    for camera in cameras {
        let mut plan = DeviceFramePlan::new(there.clone(), camera.clone(), None);
        let units = plan.units();
        plan.run(&Slice::new(0..units)).expect("the device goes on");
        let cast = plan.finish().expect("a picture");
        let own = frame(scene, camera).image;
        unsure += cast.unsure;
        let difference = own.difference(&full(cast)).expect("one size");
        assert!(difference < TOLERANCE, "{difference}: {} {camera:?}", scene.step);
        rays += own.pixels().len();
    }
    (rays, unsure)
}

#[test]
fn a_device_takes_no_sample_more_and_none_less() {
    let (size, spacing) = ([40, 33, 27], [1.0, 0.9, 1.3]);
    let extents = [0, 1, 2].map(|axis| (size[axis] - 1) as f64 * spacing[axis]);
    let cameras = cameras(extents, [97, 75]);
    let (mut rays, mut unsure) = (0, 0);
    for scene in [
        dense(size, spacing, 0.7, 0.15),
        dense(size, spacing, 0.1, 0.02),
        steep(size, spacing, 0.4, 0.2),
    ] {
        let (more, left) = compared(&scene, &cameras);
        (rays, unsure) = (rays + more, unsure + left);
    }
    println!("{unsure} of {rays} rays are left to the processor");
    assert!(unsure * 5000 < rays, "{unsure} of {rays}");
}

#[test]
fn a_device_knows_where_it_would_be_wrong() {
    let (size, spacing) = ([25, 24, 23], [1.0; 3]);
    let new = |eye, target, up, projection, size| {
        Camera::new(eye, target, up, projection, size).expect("a camera")
    };
    let (up, parallel) = ([0.0, 1.0, 0.0], Projection::Parallel { height: 45.0 });
    let wide = |fov_degrees| Projection::Perspective { fov_degrees };
    let mut cameras = Vec::new();
    for exponent in [4, 6, 7, 9, 11, 13, 15] {
        // Almost along an axis.
        let lean = 41.0 * 10_f64.powi(-exponent);
        let target = [12.0, 11.5 - lean, 11.0];
        cameras.push(new([12.0, 11.5, -30.0], target, up, parallel, [61, 61]));
        // From beside a border by as little.
        let eye = [-lean, 11.5, 11.0];
        cameras.push(new(eye, [20.0, 11.5, 11.0], up, wide(60.0), [61, 61]));
    }
    // A tile that is much of what there is to be seen.
    for (eye, fov_degrees, size) in [
        ([12.3, 11.1, 10.7], 178.0, [1, 1]),
        ([12.0, 11.5, -30.0], 179.9, [1, 1]),
        ([12.0, 11.5, -30.0], 179.99, [15, 15]),
        ([12.0, 11.5, -30.0], 179.99, [61, 61]),
        ([40.0, -20.0, 33.0], 179.999_999, [61, 61]),
        ([40.0, -20.0, 33.0], 1e-5, [20, 20]),
    ] {
        cameras.push(new(eye, [12.1, 11.3, 11.0], up, wide(fov_degrees), size));
    }
    for far in [1e9_f64, 1e11, 1e12] {
        let eye = [0.61, -0.3, 0.44].map(|part| far * part);
        let fov_degrees = (2.0 * (40.0 / far).atan()).to_degrees();
        cameras.push(new(eye, [12.0, 11.5, 11.0], up, wide(fov_degrees), [60, 60]));
        cameras.push(new(eye, [12.0, 11.5, 11.0], up, parallel, [60, 60]));
    }
    for scene in [dense(size, spacing, 0.5, 0.1), steep(size, spacing, 0.4, 0.2)] {
        compared(&scene, &cameras);
    }
    // Behind the eye is nothing, and nothing is sent.
    let away = new([12.0, 11.5, -30.0], [12.0, 11.5, -60.0], up, wide(40.0), [64, 64]);
    assert_eq!(compared(&dense(size, spacing, 0.5, 0.1), &[away]).1, 0);
}

#[test]
fn a_device_sees_the_same_of_anything_from_anywhere() {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
    let r = &mut random;
    for case in 0..40 {
        let size = [0, 1, 2].map(|_| r.random_range(2..30_usize));
        let spacing = match case % 4 {
            0 => [1.0, 1.0, 1000.0],
            1 => [0, 1, 2].map(|_| 10_f64.powf(r.random_range(-4.0..4.0))),
            _ => [0, 1, 2].map(|_| r.random_range(0.2..3.0)),
        };
        let extents = [0, 1, 2].map(|axis| (size[axis] - 1) as f64 * spacing[axis]);
        let diagonal = extents.iter().map(|extent| extent * extent).sum::<f64>().sqrt();
        let count = 10_f64.powf(r.random_range(0.0..2.5));
        let (step, opacity) = (diagonal / count, (1.0 / count).clamp(0.02, 0.2) as f32);
        let scene = match case % 3 {
            0 => steep(size, spacing, step, opacity),
            _ => dense(size, spacing, step, opacity),
        };
        let mut cameras = Vec::new();
        while cameras.len() < 4 {
            let mut place = || {
                [0, 1, 2].map(|axis| match r.random_range(0..5) {
                    0 => 0.0,
                    1 => extents[axis],
                    2 => spacing[axis] * r.random_range(0..size[axis]) as f64,
                    _ => r.random_range(-0.1..1.1) * extents[axis],
                })
            };
            let (target, near) = (place(), place());
            let far = 10_f64.powf(r.random_range(-0.5..8.0));
            let mut direction = [0, 1, 2].map(|_| r.random_range(-1.0..1.0_f64));
            direction[case % 3] *= 10_f64.powf(r.random_range(-16.0..0.0));
            let aside = [0, 1, 2].map(|axis| target[axis] + far * diagonal * direction[axis]);
            let eye = if r.random_range(0..3) == 0 { near } else { aside };
            let fov_degrees = match r.random_range(0..3) {
                0 => 180.0 - 10_f64.powf(r.random_range(-4.0..1.5)),
                1 => 90.0,
                _ => (2.0 * (0.5 / far).atan()).to_degrees(),
            };
            let projection = match r.random_range(0..2) {
                0 => Projection::Parallel { height: diagonal * r.random_range(0.1..2.0) },
                _ => Projection::Perspective { fov_degrees },
            };
            let mut up = [0.0; 3];
            up[r.random_range(0..3)] = 1.0;
            let picture = [r.random_range(1..50), r.random_range(1..50)];
            cameras.extend(Camera::new(eye, target, up, projection, picture));
        }
        compared(&scene, &cameras);
    }
}
