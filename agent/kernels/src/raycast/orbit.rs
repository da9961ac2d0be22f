//! Ways around what is looked at.

use super::camera::{cross, dot, unit};

/// Where a camera stands, what it looks at, and what is upwards for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pose {
    pub(crate) eye: [f64; 3],
    pub(crate) target: [f64; 3],
    pub(crate) up: [f64; 3],
}

impl Pose {
    /// The eye goes around the target: by `elevation` degrees over its top, by `azimuth` degrees to
    /// the right about `up`, and `distance` times as far away. What is upwards is turned with it,
    /// so that there is no pole at which a picture could be turned any way.
    ///
    /// Whole turns lead to where it was, to the bit, and quarters about an axis of space lead to
    /// exactly there.
    pub(crate) fn turned(self, azimuth: f64, elevation: f64, distance: f64) -> Self {
        let Self { eye, target, up } = self;
        let arm = [0, 1, 2].map(|axis| eye[axis] - target[axis]);
        // Without these there is no camera, and it says so.
        let (Some(above), Some(right)) = (unit(up), unit(cross(up, arm))) else { return self };
        let turn = |vector| about(above, azimuth, about(right, -elevation, vector));
        let turned = turn(arm);
        let eye = [0, 1, 2].map(|axis| eye[axis] + (distance * turned[axis] - arm[axis]));
        Self { eye, target, up: turn(up) }
    }
}

/// A vector turned about an axis of length one, against the clock for who looks down the axis.
fn about(axis: [f64; 3], degrees: f64, vector: [f64; 3]) -> [f64; 3] {
    let (sin, cos) = turn(degrees);
    if (sin, cos) == (0.0, 1.0) {
        return vector;
    }
    let (aside, along) = (cross(axis, vector), dot(axis, vector));
    [0, 1, 2].map(|at| cos * vector[at] + sin * aside[at] + (1.0 - cos) * along * axis[at])
}

/// Sine and cosine of an angle: exact for quarters of a turn, and the same on every machine.
fn turn(degrees: f64) -> (f64, f64) {
    let rest = degrees % 360.0;
    let quarters = (rest / 90.0).round();
    let angle = (rest - 90.0 * quarters).to_radians();
    let (sin, cos) = (libm::sin(angle), libm::cos(angle));
    match quarters.rem_euclid(4.0) as u8 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSE: Pose =
        Pose { eye: [3.0, 4.5, 12.0], target: [1.0, 0.5, -1.0], up: [0.0, 1.0, 0.0] };

    fn assert_near(a: [f64; 3], b: [f64; 3]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    }

    #[test]
    fn whole_turns_change_nothing_and_quarters_are_exact() {
        for turns in [0.0, 360.0, -720.0, 3.6e9] {
            assert_eq!(POSE.turned(turns, -turns, 1.0), POSE);
        }
        // To the right of who looks from the front to the back is where x grows.
        let right = Pose { eye: [14.0, 4.5, -3.0], ..POSE };
        for quarter in [90.0, 450.0, -270.0] {
            assert_eq!(POSE.turned(quarter, 0.0, 1.0), right);
        }
        assert_eq!(POSE.turned(180.0, 0.0, 1.0).eye, [-1.0, 4.5, -14.0]);
        assert_eq!(POSE.turned(0.0, 0.0, 3.0).eye, [7.0, 12.5, 38.0]);
    }

    #[test]
    fn the_eye_rises_over_the_top_and_what_is_upwards_goes_along() {
        let front = Pose { eye: [0.0, 0.0, 5.0], target: [0.0; 3], ..POSE };
        let half = 0.5_f64.sqrt();
        let risen = front.turned(0.0, 45.0, 1.0);
        assert_near(risen.eye, [0.0, 5.0 * half, 5.0 * half]);
        assert_near(risen.up, [0.0, half, -half]);
        let top = front.turned(90.0, 90.0, 2.0);
        assert_near(top.eye, [0.0, 10.0, 0.0]);
        assert_near(top.up, [-1.0, 0.0, 0.0]);
        let behind = front.turned(0.0, 180.0, 1.0);
        assert_near(behind.eye, [0.0, 0.0, -5.0]);
        assert_near(behind.up, [0.0, -1.0, 0.0]);
    }

    #[test]
    fn the_distance_stays_whatever_the_angles_are() {
        let length = |pose: Pose| {
            let arm = [0, 1, 2].map(|axis| pose.eye[axis] - pose.target[axis]);
            dot(arm, arm).sqrt()
        };
        let tilted = Pose { up: [0.3, 1.0, -0.4], ..POSE };
        for step in 0..100 {
            let (azimuth, elevation) = (f64::from(step) * 37.3, f64::from(step) * -11.9);
            let turned = tilted.turned(azimuth, elevation, 1.5);
            assert!((length(turned) - 1.5 * length(POSE)).abs() < 1e-9, "{turned:?}");
        }
    }

    #[test]
    fn what_is_no_camera_stays_none() {
        let nowhere = Pose { eye: POSE.target, ..POSE };
        assert_eq!(nowhere.turned(30.0, 20.0, 2.0), nowhere);
        let flat = Pose { up: [0.0; 3], ..POSE };
        assert_eq!(flat.turned(30.0, 20.0, 2.0), flat);
    }
}
