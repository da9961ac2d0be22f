use std::sync::Arc;

use gleaner_protocol::Time;

use super::{
    Camera, ControlPoint, Frame, FramePlan, Look, Projection, Scene, SceneError, ScenePlan,
    Shading, Transfer,
};
use crate::image::{Image, under};
use crate::volume::{Brick, Volume, Voxels};
use crate::{Outcome, Pace, Plan, Preempt, run};

pub(crate) const LIT: Shading =
    Shading { ambient: 0.2, diffuse: 0.7, specular: 0.3, shininess: 20 };

pub(crate) fn done<P: Plan>(plan: Box<P>) -> P::Output {
    let outcome = run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ());
    match outcome.expect("a plan on a CPU goes on") {
        Outcome::Done(output) => output,
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}

/// A ball of 200 in the middle of nothing, with a soft border.
pub(crate) fn ball(size: [usize; 3]) -> Volume {
    let radius = size.iter().copied().min().expect("three") as f32 * 0.35;
    let mut voxels = Vec::new();
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                let off = |at: usize, side: usize| (at as f32 - (side - 1) as f32 / 2.0).powi(2);
                let off = off(x, size[0]) + off(y, size[1]) + off(z, size[2]);
                let inside = radius - off.sqrt();
                voxels.push((100.0 + 30.0 * inside).clamp(0.0, 200.0) as u8);
            }
        }
    }
    Volume::new(size, [1.0, 1.0, 1.5], Voxels::U8(voxels)).expect("a volume")
}

fn transfer(points: &[(f32, f32)], unit: f64) -> Transfer {
    let points = points.iter().map(|(value, opacity)| {
        let share = (value / 255.0).clamp(0.0, 1.0);
        ControlPoint { value: *value, colour: [1.0, share, 1.0 - share], opacity: *opacity }
    });
    Transfer::new(points.collect(), unit).expect("a function")
}

pub(crate) fn look(points: &[(f32, f32)]) -> Look {
    Look { transfer: transfer(points, 1.0), step: None, shading: None }
}

pub(crate) const SHELL: [(f32, f32); 4] = [(0.0, 0.0), (90.0, 0.0), (110.0, 0.5), (160.0, 0.0)];
pub(crate) const FOG: [(f32, f32); 3] = [(0.0, 0.0), (1.0, 0.01), (255.0, 0.1)];

pub(crate) fn scene(brick: Brick, look: &Look) -> Arc<Scene> {
    done(ScenePlan::new(brick, look).expect("a scene"))
}

pub(crate) fn whole(volume: Volume, look: &Look) -> Arc<Scene> {
    scene(Brick::whole(Arc::new(volume)), look)
}

pub(crate) fn frame(scene: &Arc<Scene>, camera: &Camera) -> Frame {
    done(FramePlan::new(scene.clone(), camera.clone()))
}

pub(crate) fn camera(eye: [f64; 3], target: [f64; 3]) -> Camera {
    let projection = Projection::Perspective { fov_degrees: 40.0 };
    Camera::new(eye, target, [0.1, 1.0, 0.2], projection, [61, 50]).expect("a camera")
}

pub(crate) const MIDDLE: [f64; 3] = [12.0, 12.0, 18.0];

pub(crate) fn most_opaque(image: &Image) -> f32 {
    image.pixels().iter().map(|pixel| pixel[3]).fold(0.0, f32::max)
}

#[test]
fn a_block_of_one_value_holds_back_what_its_thickness_says() {
    let volume = Volume::new([9, 9, 33], [1.0, 1.0, 0.5], Voxels::F32(vec![5.0; 9 * 9 * 33]));
    let look = Look { step: Some(0.25), ..look(&[(0.0, 0.1)]) };
    let scene = whole(volume.expect("a volume"), &look);
    // Along an axis, with one ray in the plane between two voxels.
    let projection = Projection::Parallel { height: 3.0 };
    let camera = Camera::new([4.0, 4.0, -7.0], [4.0; 3], [0.0, 1.0, 0.0], projection, [3, 3]);
    let image = frame(&scene, &camera.expect("a camera")).image;
    // 32 cells of half a unit are 16 units thick.
    let expected = 1.0 - 0.9_f32.powi(16);
    for pixel in image.pixels() {
        assert!((pixel[3] - expected).abs() < 1e-3, "{pixel:?} {expected}");
        assert!((pixel[0] - pixel[3]).abs() < 1e-6, "red is premultiplied: {pixel:?}");
    }
}

#[test]
fn pictures_of_bricks_behind_each_other_are_the_picture_of_the_whole() {
    let volume = ball([25, 24, 23]);
    for (points, shading) in [(&SHELL[..], Some(LIT)), (&SHELL[..], None), (&FOG[..], None)] {
        let look = Look { shading, ..look(points) };
        // From outside, and from within: one brick has the eye in it.
        for eye in [[60.0, -40.0, 30.0], [-50.0, 11.0, 20.0], [9.3, 12.2, 11.7]] {
            let camera = camera(eye, MIDDLE);
            let single = frame(&whole(volume.clone(), &look), &camera).image;
            let bricks = Brick::cut(&volume, [2, 3, 4]);
            let mut frames: Vec<Frame> =
                bricks.into_iter().map(|brick| frame(&scene(brick, &look), &camera)).collect();
            frames.sort_by_key(|frame| frame.depth);
            let mut together = Image::transparent(camera.width(), camera.height());
            for frame in &frames {
                let pairs = together.pixels_mut().iter_mut().zip(frame.image.pixels());
                pairs.for_each(|(front, back)| under(front, back));
            }
            let difference = together.difference(&single).expect("one size");
            assert!(difference < 1.0 / 255.0, "{eye:?}: {difference}");
            assert!(most_opaque(&single) > 0.1, "{eye:?}: nothing is seen");
        }
    }
}

#[test]
fn bricks_seen_in_parallel_are_in_order_too() {
    let volume = ball([16, 16, 16]);
    let look = look(&FOG);
    for target in [[1.0, 0.0, 0.0], [-0.3, 0.8, 0.1], [0.2, -0.2, -0.9]] {
        let eye = [0, 1, 2].map(|axis| 8.0 - 60.0 * target[axis]);
        let projection = Projection::Parallel { height: 30.0 };
        let camera = Camera::new(eye, [8.0; 3], [0.1, 0.3, 1.0], projection, [40, 40]);
        let camera = camera.expect("a camera");
        let single = frame(&whole(volume.clone(), &look), &camera).image;
        let bricks = Brick::cut(&volume, [3, 2, 2]).into_iter();
        let mut frames: Vec<Frame> =
            bricks.map(|brick| frame(&scene(brick, &look), &camera)).collect();
        frames.sort_by_key(|frame| frame.depth);
        let mut together = Image::transparent(40, 40);
        for frame in &frames {
            let pairs = together.pixels_mut().iter_mut().zip(frame.image.pixels());
            pairs.for_each(|(front, back)| under(front, back));
        }
        let difference = together.difference(&single).expect("one size");
        assert!(difference < 1.0 / 255.0, "{target:?}: {difference}");
    }
}

#[test]
fn passing_over_what_is_empty_changes_nothing() {
    let look = Look { shading: Some(LIT), ..look(&SHELL) };
    let passing = whole(ball([30, 31, 32]), &look);
    assert!(passing.distances.iter().any(|distance| *distance > 0), "nothing is passed over");
    let mut plan =
        ScenePlan::new(Brick::whole(Arc::new(ball([30, 31, 32]))), &look).expect("a scene");
    let units = plan.units();
    plan.run(&crate::Slice::new(0..units)).expect("a CPU goes on");
    let mut stepping = Arc::into_inner(plan.finish().expect("a scene")).expect("one owner");
    stepping.distances.fill(0);
    let stepping = Arc::new(stepping);
    for eye in [[60.0, -40.0, 30.0], [15.0, 15.0, 80.0], [15.0, 16.0, 20.0]] {
        let camera = camera(eye, [15.0, 14.0, 22.0]);
        let images = [&passing, &stepping].map(|scene| frame(scene, &camera).image);
        let difference = images[0].difference(&images[1]).expect("one size");
        assert!(difference < 0.5 / 255.0, "{difference}");
    }
}

#[test]
fn the_type_of_voxels_makes_no_difference() {
    let bytes = ball([20, 20, 20]);
    let Voxels::U8(samples) = bytes.voxels().clone() else { panic!("bytes") };
    let more = |voxels| Volume::new([20; 3], bytes.spacing(), voxels).expect("a volume");
    let words = more(Voxels::U16(samples.iter().map(|sample| u16::from(*sample)).collect()));
    let floats = more(Voxels::F32(samples.iter().map(|sample| f32::from(*sample)).collect()));
    let camera = camera([50.0, 30.0, 40.0], [10.0, 10.0, 15.0]);
    let look = Look { shading: Some(LIT), ..look(&SHELL) };
    let image = |volume| frame(&whole(volume, &look), &camera).image;
    let first = image(bytes.clone());
    assert_eq!(first, image(words));
    assert_eq!(first, image(floats));
}

#[test]
fn a_camera_in_the_volume_sees_what_is_before_it_only() {
    let scene = whole(ball([24, 24, 24]), &look(&FOG));
    let out = camera([11.0, 11.0, 34.0], [11.0, 11.0, 90.0]);
    let into = camera([11.0, 11.0, 34.0], [11.0, 11.0, 0.0]);
    let (out, into) = (frame(&scene, &out).image, frame(&scene, &into).image);
    assert!(most_opaque(&out) < most_opaque(&into));
    let away = camera([11.0, 11.0, 40.0], [11.0, 11.0, 90.0]);
    assert_eq!(most_opaque(&frame(&scene, &away).image), 0.0);
}

#[test]
fn nothing_is_seen_of_a_sheet_or_where_nothing_is_opaque() {
    let sheet = Volume::new([9, 9, 1], [1.0; 3], Voxels::U8(vec![255; 81])).expect("a volume");
    let camera = camera([4.0, 4.0, -9.0], [4.0, 4.0, 0.0]);
    assert_eq!(most_opaque(&frame(&whole(sheet, &look(&FOG)), &camera).image), 0.0);
    let clear = whole(ball([9, 9, 9]), &look(&[(0.0, 0.0), (255.0, 0.0)]));
    assert_eq!(most_opaque(&frame(&clear, &camera).image), 0.0);
}

#[test]
fn finer_steps_show_the_same() {
    let camera = camera([60.0, -40.0, 30.0], MIDDLE);
    let image = |step| {
        let look = Look { step: Some(step), ..look(&FOG) };
        frame(&whole(ball([25, 25, 25]), &look), &camera).image
    };
    let difference = image(0.5).difference(&image(0.05)).expect("one size");
    assert!(difference < 0.03, "{difference}");
}

#[test]
fn steps_that_lead_nowhere_and_numbers_out_of_range_are_refused() {
    let brick = || Brick::whole(Arc::new(ball([8, 8, 8])));
    for step in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
        let look = Look { step: Some(step), ..look(&FOG) };
        let error = ScenePlan::new(brick(), &look).expect_err("refused");
        assert!(matches!(error, SceneError::Step { .. }), "{error}");
    }
    let dark = Shading { diffuse: f32::NAN, ..LIT };
    let dark = Look { shading: Some(dark), ..look(&FOG) };
    assert_eq!(ScenePlan::new(brick(), &dark).err(), Some(SceneError::Shading));
}

#[test]
fn from_too_far_away_nothing_is_seen_and_that_is_told_before() {
    let (ball, look) = (ball([25, 25, 25]), look(&FOG));
    let scene = whole(ball.clone(), &look);
    let up = [0.0, 1.0, 0.0];
    for (far, is_seen) in
        [(1e9_f64, true), (1e12, true), (1e13, false), (1e16, false), (4e17, false)]
            .into_iter()
            .chain([1e30, 1e100, 1e300].map(|far| (far, false)))
    {
        let fov_degrees = (2.0 * (20.0 / far).atan()).to_degrees();
        for projection in
            [Projection::Perspective { fov_degrees }, Projection::Parallel { height: 40.0 }]
        {
            let camera = Camera::new([12.0, 12.0, far], MIDDLE, up, projection, [9, 9]);
            let camera = camera.expect("it looks somewhere");
            let told = look.check_distance(&camera, ball.size(), ball.spacing());
            assert_eq!(told.is_ok(), is_seen, "{far}");
            let image = frame(&scene, &camera).image;
            assert_eq!(most_opaque(&image) > 0.0, is_seen, "{far} {projection:?}");
        }
    }
    let wide = Projection::Parallel { height: 1e300 };
    let wide = Camera::new([12.0, 12.0, 60.0], MIDDLE, up, wide, [9, 9]).expect("a camera");
    let error = look.check_distance(&wide, ball.size(), ball.spacing()).expect_err("too wide");
    assert!(error.to_string().contains("move `eye` nearer"), "{error}");
}

#[test]
fn a_volume_of_one_value_that_is_not_seen_is_not_seen() {
    let flat = Volume::new([8; 3], [1.0; 3], Voxels::F32(vec![0.0; 512])).expect("a volume");
    let look = look(&FOG);
    let camera = camera([3.0, 3.0, -9.0], [3.0; 3]);
    assert_eq!(most_opaque(&frame(&whole(flat, &look), &camera).image), 0.0);
}

#[test]
fn who_takes_a_picture_stops_when_asked() {
    let scene = whole(ball([24, 24, 24]), &look(&FOG));
    let plan = FramePlan::new(scene, camera([60.0, -40.0, 30.0], MIDDLE));
    let preempt = Preempt::new();
    let units = plan.units();
    let mut slices = 0;
    let outcome = run(plan, &preempt, &mut Pace::new(), || Time::ZERO, &mut |_| {
        slices += 1;
        if slices == 2 {
            preempt.ask();
        }
    });
    let Ok(Outcome::Stopped { done, units: of }) = outcome else { panic!("it went on") };
    assert!(done < units && of == units, "{done} of {units}");
}

/// A ball's scene and a camera, where the unit of length is so many times as short.
pub(crate) fn in_unit(times: f64) -> (Arc<Scene>, Camera) {
    let ball = ball([25, 24, 23]);
    let spacing = ball.spacing().map(|spacing| spacing * times);
    let volume = Volume::new(ball.size(), spacing, ball.voxels().clone()).expect("a volume");
    let look = Look { transfer: transfer(&SHELL, times), step: None, shading: Some(LIT) };
    let scene = whole(volume, &look);
    let eye = [60.0, -40.0, 30.0].map(|part| part * times);
    (scene, camera(eye, MIDDLE.map(|part| part * times)))
}

#[test]
fn light_is_the_same_in_any_unit_of_length() {
    let taken = |times| {
        let (scene, camera) = in_unit(times);
        frame(&scene, &camera).image
    };
    let one = taken(1.0);
    assert!(most_opaque(&one) > 0.1, "nothing is seen");
    for exponent in [-63.0, -40.0, 40.0, 62.0] {
        assert_eq!(taken(f64::exp2(exponent)), one, "{exponent}");
    }
}
