//! Pictures of the bricks of a volume, each taken by a part of its own.

use super::*;
use crate::raycast::tests::{FOG, LIT, SHELL, ball, camera, frame, look, scene, whole};
use crate::raycast::{Camera, Look, Projection, nearest_first};
use crate::volume::{Brick, Volume};

/// What pictures of parts differ in from that of the whole, in each channel, where a ray never comes
/// to its end: rounding, and samples that it moves to the next colour of the look.
const ROUNDING: f32 = 1.0 / 2000.0;
/// Where rays end before the volume does. What a ray does not follow any more, another part does.
const TOLERANCE: f32 = crate::limits::THROUGH_MIN + ROUNDING;

/// So dense that a ray ends in the middle.
const DENSE: [(f32, f32); 3] = [(20.0, 0.0), (60.0, 0.3), (255.0, 0.9)];

/// From outside and along an axis, from within a brick, from a border of bricks and a corner of some.
fn cameras(volume: &Volume) -> Vec<Camera> {
    let (size, spacing) = (volume.size(), volume.spacing());
    let at = |shares: [f64; 3]| {
        [0, 1, 2].map(|axis| ((size[axis] - 1) as f64 * shares[axis]).floor() * spacing[axis])
    };
    let middle = at([0.5; 3]);
    let parallel = |eye: [f64; 3]| {
        let projection = Projection::Parallel { height: 40.0 };
        Camera::new(eye, middle, [0.1, 0.3, 1.0], projection, [61, 50]).expect("a camera")
    };
    vec![
        camera([80.0, -60.0, 50.0], middle),
        camera([-70.0, middle[1], middle[2]], middle),
        camera([9.3, 12.2, 11.7], at([0.8, 0.4, 0.6])),
        camera(at([0.5, 0.3, 0.7]), at([0.9, 0.9, 0.1])),
        camera(at([0.5; 3]), [-20.0, -25.0, 4.0]),
        parallel([-30.0, 70.0, -20.0]),
        parallel([middle[0], middle[1], -60.0]),
    ]
}

/// The picture of a volume that is cut into bricks, by each method for so many parts; the largest
/// difference to that of the whole.
fn difference(volume: &Volume, look: &Look, camera: &Camera, counts: [usize; 3]) -> f32 {
    let mut dice = Dice(9);
    let bricks = Brick::cut(volume, counts);
    let order = nearest_first(&bricks, camera);
    let images: Vec<Image> = order
        .iter()
        .map(|place| frame(&scene(bricks[*place].clone(), look), camera).image)
        .collect();
    let single = frame(&whole(volume.clone(), look), camera).image;
    let size = [camera.width(), camera.height()];
    let methods = [Method::DirectSend, Method::BinarySwap, Method::TwoThreeSwap];
    let can = |method: &Method| *method != Method::BinarySwap || images.len().is_power_of_two();
    let differences = methods.into_iter().filter(can).map(|method| {
        let schedule = Schedule::new(method, images.len(), size, dice.roll(images.len()));
        let (together, _) =
            put_together(&Arc::new(schedule.expect("a schedule")), &images, &mut dice);
        together.difference(&single).expect("one size")
    });
    differences.fold(0.0, f32::max)
}

#[test]
fn parts_with_a_brick_each_take_the_picture_of_the_whole_volume() {
    let volumes = [ball([25, 24, 23]), Volume::rippled(33).expect("a volume")];
    for (points, shading, most) in [
        (&FOG[..], None, ROUNDING),
        (&SHELL[..], Some(LIT), TOLERANCE),
        (&DENSE[..], None, TOLERANCE),
        (&DENSE[..], Some(LIT), TOLERANCE),
    ] {
        let look = Look { shading, ..look(points) };
        for volume in &volumes {
            for camera in cameras(volume) {
                for counts in [[2, 2, 2], [2, 3, 4], [4, 2, 2], [3, 3, 3]] {
                    let found = difference(volume, &look, &camera, counts);
                    assert!(found < most, "{found}: {counts:?} {points:?} {camera:?}");
                }
            }
        }
    }
}

#[test]
fn any_number_of_parts_takes_it() {
    let volume = ball([25, 24, 23]);
    let look = Look { shading: Some(LIT), ..look(&SHELL) };
    for camera in &cameras(&volume)[..3] {
        for parts in 1..=17 {
            let found = difference(&volume, &look, camera, [parts, 1, 1]);
            assert!(found < TOLERANCE, "{found}: {parts} {camera:?}");
        }
    }
}
