use std::sync::Arc;

use gleaner_protocol::{Time, ViewShading, ViewState};

use super::super::tests::{SIZE, state};
use super::super::{Layer, Level, ViewBrick, ViewError, ViewScene};
use super::DeviceBricks;
use crate::gpu::GpuError;
use crate::gpu::tests::{open, software};
use crate::raycast::tests::{FOG, LIT, MIDDLE, SHELL, ball, done, look, whole};
use crate::raycast::{
    Camera, Caster, DeviceFramePlan, DeviceScenePlan, Look, Projection, Shown, cast,
};
use crate::volume::Brick;

/// What a channel of a pixel may differ by.
const TOLERANCE: f32 = 1.0 / 255.0;

/// Memory for so many bytes of bricks, on a device that has none of its own.
const ENOUGH: u64 = 1 << 30;

fn clock() -> Time {
    Time::ZERO
}

fn lit() -> ViewShading {
    ViewShading { ambient: 0.2, diffuse: 0.7, specular: 0.3, shininess: 20 }
}

/// Two times two times two of a ball.
fn bricks() -> Vec<ViewBrick> {
    let cut = Brick::cut(&ball([25, 24, 23]), [2, 2, 2]).into_iter();
    cut.map(|brick| ViewBrick::of(brick, Level::Fine)).collect()
}

fn scene(brick: &ViewBrick, state: &ViewState) -> ViewScene {
    brick.scene(&brick.look(state).expect("a look"), None).expect("a scene")
}

fn drawn(there: &mut DeviceBricks<usize>, key: usize, of: &ViewScene, state: &ViewState) -> Layer {
    let layer = there.draw(key, of, state, SIZE, &clock).expect("the device goes on");
    layer.expect("it has room")
}

/// The largest difference between pixels of two layers that are of the same place.
fn apart(one: &Layer, other: &Layer) -> f32 {
    let (one, other) = (one.window(), other.window());
    assert_eq!((&one.columns, &one.rows), (&other.columns, &other.rows));
    assert_eq!(one.depth, other.depth);
    let pairs = one.pixels.iter().flatten().zip(other.pixels.iter().flatten());
    pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

fn most_opaque(layer: &Layer) -> f32 {
    layer.window().pixels.iter().map(|pixel| pixel[3]).fold(0.0, f32::max)
}

#[test]
fn a_gpu_draws_the_layers_of_a_processor_and_is_sent_each_brick_once() {
    let mut there = DeviceBricks::new(software(), ENOUGH);
    let bricks = bricks();
    for (points, shading) in [(&SHELL[..], Some(lit())), (&SHELL[..], None), (&FOG[..], None)] {
        let state = ViewState { shading, ..state(points, [0.0; 3]) };
        let scenes: Vec<ViewScene> = bricks.iter().map(|brick| scene(brick, &state)).collect();
        // From outside, and from within: one brick has the eye in it.
        for eye in [[60.0, -40.0, 30.0], [-50.0, 11.0, 20.0], [9.3, 12.2, 11.7]] {
            for clip in [[[0.0, 1.0]; 3], [[0.2, 0.7], [0.0, 0.55], [0.35, 1.0]]] {
                let mut state = ViewState { clip, ..state.clone() };
                state.camera.eye = eye;
                let mut seen = 0.0_f32;
                for (key, scene) in scenes.iter().enumerate() {
                    let ours = scene.draw(&state, SIZE).expect("a layer");
                    let theirs = drawn(&mut there, key, scene, &state);
                    let apart = apart(&ours, &theirs);
                    assert!(apart < TOLERANCE, "{apart}: brick {key} from {eye:?} by {clip:?}");
                    seen = seen.max(most_opaque(&ours));
                }
                assert!(seen > 0.1, "nothing is seen from {eye:?} by {clip:?}");
            }
        }
    }
    assert_eq!(there.sent(), bricks.len() as u64);
}

#[test]
fn where_rays_are_parallel_a_gpu_sees_as_much_between_borders() {
    for (points, shading) in [(&SHELL[..], Some(LIT)), (&FOG[..], None)] {
        let scene = whole(ball([25, 24, 23]), &Look { shading, ..look(points) });
        // Along an axis, where rays stay between the borders of the others, and aside.
        for eye in [[12.0, 12.0, -30.0], [60.0, -40.0, 30.0]] {
            let projection = Projection::Parallel { height: 30.0 };
            let camera = Camera::new(eye, MIDDLE, [0.0, 1.0, 0.0], projection, [61, 47]);
            let camera = camera.expect("a camera");
            let clip = [(4.8, 17.3), (0.0, 13.0), (7.7, 22.0)];
            let ours = cast(&scene, &camera, &clip);
            let shown = Shown::of(&scene, &camera, &clip).expect("it shows");
            let voxels = scene.brick().voxels().voxels();
            let caster = Caster::of_largest(software(), voxels).expect("a caster");
            let there = done(DeviceScenePlan::new(caster, Arc::clone(&scene)).expect("room"));
            let theirs = done(DeviceFramePlan::of_shown(there, camera, &shown)).picture;
            let theirs = theirs.into_pixels().expect("in single precision");
            assert_eq!(ours.pixels.len(), theirs.len());
            let pairs = ours.pixels.iter().flatten().zip(theirs.iter().flatten());
            let apart = pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
            assert!(apart < TOLERANCE, "{apart} from {eye:?}");
            assert!(ours.pixels.iter().any(|pixel| pixel[3] > 0.1), "nothing is seen");
        }
    }
}

#[test]
fn what_was_used_longest_ago_makes_way() {
    let state = state(&FOG, [60.0, -40.0, 30.0]);
    let bricks = bricks();
    let scenes: Vec<ViewScene> = bricks.iter().map(|brick| scene(brick, &state)).collect();
    let largest = scenes.iter().map(|scene| Caster::scene_bytes(&scene.scene)).max();
    let largest = largest.expect("eight of them") as u64;
    // Half of it is for other bricks.
    let mut there = DeviceBricks::new(software(), 2 * 2 * largest);
    for (key, sent) in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (0, 4), (2, 5)] {
        let ours = scenes[key].draw(&state, SIZE).expect("a layer");
        assert!(apart(&ours, &drawn(&mut there, key, &scenes[key], &state)) < TOLERANCE);
        assert_eq!(there.sent(), sent, "brick {key}");
        assert!(there.bytes() as u64 <= 2 * largest);
    }
    let mut small = DeviceBricks::new(software(), largest);
    let none = small.draw(0, &scenes[0], &state, SIZE, &clock).expect("the device goes on");
    assert!(none.is_none() && small.is_empty() && small.sent() == 0, "it has no room");
    assert!(!small.has_room_for(&scenes[0]) && there.has_room_for(&scenes[0]));
}

#[test]
fn what_stays_on_a_gpu_keeps_nothing_of_the_brick_here() {
    let state = state(&FOG, [60.0, -40.0, 30.0]);
    let brick = bricks().remove(0);
    let one = scene(&brick, &state);
    let mut there = DeviceBricks::new(software(), ENOUGH);
    let first = drawn(&mut there, 0, &one, &state);
    let kept = Arc::downgrade(&one.scene);
    drop(one);
    assert!(kept.upgrade().is_none(), "it is kept");
    // Read again, it is the same brick.
    let again = drawn(&mut there, 0, &scene(&brick, &state), &state);
    assert!(again == first && there.sent() == 1);
}

#[test]
fn a_gpu_draws_what_is_much_and_looks_the_same_there() {
    let brick = ViewBrick::of(Brick::whole(ball([64; 3]).into()), Level::Fine);
    let mut soft = state(&FOG, [160.0, -60.0, 70.0]);
    soft.camera.target = [32.0, 32.0, 48.0];
    let one = scene(&brick, &soft);
    assert!(one.is_alike_on_gpus());
    assert!(one.is_sooner_on_gpus(&soft, [512, 384]).expect("a camera"));
    assert!(!one.is_sooner_on_gpus(&soft, [32, 24]).expect("a camera"));
    let beside = ViewState { clip: [[0.5, 0.5]; 3], ..soft.clone() };
    assert!(!one.is_sooner_on_gpus(&beside, [512, 384]).expect("a camera"), "nothing shows");
    let jump = state(&[(60.0, 0.0), (60.0, 0.9), (255.0, 0.9)], [60.0, -40.0, 30.0]);
    assert!(!scene(&brick, &jump).is_alike_on_gpus());
}

#[test]
fn nothing_shows_of_what_is_clipped_away_and_nothing_is_sent_for_it() {
    let state = ViewState { clip: [[0.5, 0.5]; 3], ..state(&FOG, [60.0, -40.0, 30.0]) };
    let one = scene(&bricks()[0], &state);
    let mut there = DeviceBricks::new(software(), ENOUGH);
    let layer = drawn(&mut there, 0, &one, &state);
    assert_eq!(layer, one.draw(&state, SIZE).expect("a layer"));
    assert_eq!(there.sent(), 0);
}

#[test]
fn a_gpu_that_is_lost_is_its_own_fault() {
    let state = state(&FOG, [60.0, -40.0, 30.0]);
    let one = scene(&bricks()[0], &state);
    let gpu = open();
    let mut there = DeviceBricks::new(Arc::clone(&gpu), ENOUGH);
    drawn(&mut there, 0, &one, &state);
    gpu.device().destroy();
    let lost = there.draw(0, &one, &state, SIZE, &clock).expect_err("it is lost");
    assert!(matches!(lost.of_device(), Some(GpuError::Lost { .. })), "{lost}");
    let none = there.draw(0, &one, &state, [0, 0], &clock).expect_err("no picture");
    assert!(none.of_device().is_none() && matches!(none, ViewError::Size([0, 0])), "{none}");
}
