//! Where a picture is taken from.

use std::ops::Range;

use thiserror::Error;

use crate::limits::PIXELS_MAX;

/// How space becomes flat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Projection {
    /// All rays come from the eye.
    Perspective {
        /// Angle between the lowest and the highest row, in degrees.
        fov_degrees: f64,
    },
    /// All rays are parallel.
    Parallel {
        /// From the lowest to the highest row, in the unit of space.
        height: f64,
    },
}

/// A point of view, and the size of the picture that is taken there. What is behind it is not
/// seen, so it may be in a volume.
///
/// # Invariants
/// The three directions are of length one and at right angles; there are pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct Camera {
    eye: [f64; 3],
    forward: [f64; 3],
    right: [f64; 3],
    up: [f64; 3],
    projection: Projection,
    /// Half of what is between the lowest and the highest row, at distance one.
    reach: f64,
    width: usize,
    height: usize,
}

/// Why there is no picture from somewhere.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CameraError {
    /// A number that is NaN or infinite.
    #[error("camera: a coordinate is not a finite number")]
    NotFinite,
    /// It looks nowhere.
    #[error("camera: eye and target are one point, move one of them")]
    NoDirection,
    /// The picture could be turned any way.
    #[error("camera: `up` is zero or along the line of sight, give another direction")]
    NoUp,
    /// Nothing fits between the rows.
    #[error("camera: {0}: a field of view is above 0 and below 180 degrees, a height above 0")]
    NoView(f64),
    /// Too few or too many pixels.
    #[error("camera: {width} x {height} pixels: give 1 to {PIXELS_MAX} in all")]
    Size {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

/// A half line. Its direction has length one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ray {
    pub(super) origin: [f64; 3],
    pub(super) direction: [f64; 3],
}

/// What is between a pixel and the next one of its row, and the one below it: of their rays'
/// directions at distance one, or of where these begin.
#[cfg(feature = "gpu")]
pub(super) struct Pixel {
    pub(super) across: [f64; 3],
    pub(super) down: [f64; 3],
    pub(super) is_parallel: bool,
}

impl Camera {
    /// A camera at `eye` that looks at `target`, with `up` upwards in its picture.
    ///
    /// # Errors
    /// These do not say how the picture is taken, or it would have no pixels or too many.
    pub fn new(
        eye: [f64; 3],
        target: [f64; 3],
        up: [f64; 3],
        projection: Projection,
        [width, height]: [usize; 2],
    ) -> Result<Self, CameraError> {
        let numbers = [eye, target, up];
        if !numbers.iter().flatten().all(|number| number.is_finite()) {
            return Err(CameraError::NotFinite);
        }
        let pixels = width.checked_mul(height);
        if !pixels.is_some_and(|pixels| (1..=PIXELS_MAX).contains(&pixels)) {
            return Err(CameraError::Size { width, height });
        }
        match projection {
            Projection::Perspective { fov_degrees: view } if !(view > 0.0 && view < 180.0) => {
                return Err(CameraError::NoView(view));
            }
            Projection::Parallel { height: view } if !(view > 0.0 && view.is_finite()) => {
                return Err(CameraError::NoView(view));
            }
            _ => (),
        }
        let sight = [0, 1, 2].map(|axis| target[axis] - eye[axis]);
        if !sight.iter().all(|part| part.is_finite()) {
            return Err(CameraError::NotFinite);
        }
        let forward = unit(sight).ok_or(CameraError::NoDirection)?;
        let up = unit(up).ok_or(CameraError::NoUp)?;
        let aside = cross(forward, up);
        let right = unit(aside).filter(|_| dot(aside, aside) > 1e-12).ok_or(CameraError::NoUp)?;
        let up = cross(right, forward);
        let reach = match projection {
            Projection::Perspective { fov_degrees } => (fov_degrees.to_radians() / 2.0).tan(),
            Projection::Parallel { height } => height / 2.0,
        };
        let [forward, right, up] = [forward, right, up].map(straight);
        Ok(Self { eye, forward, right, up, projection, reach, width, height })
    }

    /// Pixels in a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.height
    }

    /// The ray through the middle of a pixel, row 0 on top.
    #[inline(always)]
    pub(super) fn ray(&self, x: usize, y: usize) -> Ray {
        self.ray_through(x as f64 + 0.5, y as f64 + 0.5)
    }

    /// The ray through a place in the picture, in pixels from its left and from its top.
    #[inline(always)]
    pub(super) fn ray_through(&self, x: f64, y: f64) -> Ray {
        let (width, height) = (self.width as f64, self.height as f64);
        let aside = self.reach * (2.0 * x - width) / height;
        let above = self.reach * (1.0 - 2.0 * y / height);
        let offset = [0, 1, 2].map(|axis| aside * self.right[axis] + above * self.up[axis]);
        match self.projection {
            Projection::Perspective { .. } => {
                let direction = [0, 1, 2].map(|axis| self.forward[axis] + offset[axis]);
                // As long as `forward` at least.
                let shorter = 1.0 / dot(direction, direction).sqrt();
                Ray { origin: self.eye, direction: direction.map(|part| part * shorter) }
            }
            Projection::Parallel { .. } => {
                let origin = [0, 1, 2].map(|axis| self.eye[axis] + offset[axis]);
                Ray { origin, direction: self.forward }
            }
        }
    }

    /// No ray is longer than this between where it begins and where it leaves a box that has a corner at
    /// the origin and these sides.
    pub(super) fn farthest(&self, sides: [f64; 3]) -> f64 {
        let aside = match self.projection {
            Projection::Perspective { .. } => 0.0,
            Projection::Parallel { .. } => {
                self.reach * (1.0 + self.width as f64 / self.height as f64)
            }
        };
        let along = |axis: usize| self.eye[axis].abs().max((sides[axis] - self.eye[axis]).abs());
        aside + along(0) + along(1) + along(2)
    }

    /// Where it looks.
    /// Whether a ray of its picture goes through a box from zero to these sides: rays that are spread
    /// over the picture, and those through the middle of the box and its corners.
    pub(crate) fn sees(&self, sides: [f64; 3]) -> bool {
        let spread =
            |pixels: usize| (0..=SIGHTS).map(move |at| (pixels * at) as f64 / SIGHTS as f64);
        let meets = |x: f64, y: f64| meets(&self.ray_through(x, y), sides);
        let points = (0..9).map(|corner| {
            [0, 1, 2].map(|axis| match corner {
                8 => sides[axis] / 2.0,
                _ if corner >> axis & 1 == 1 => sides[axis],
                _ => 0.0,
            })
        });
        spread(self.width).any(|x| spread(self.height).any(|y| meets(x, y)))
            || points.into_iter().any(|point| self.shows(point))
    }

    /// Whether a point is in its picture.
    fn shows(&self, point: [f64; 3]) -> bool {
        let away = [0, 1, 2].map(|axis| point[axis] - self.eye[axis]);
        let ahead = dot(away, self.forward);
        let scale = match self.projection {
            Projection::Perspective { .. } => self.reach * ahead,
            Projection::Parallel { .. } => self.reach,
        };
        let across = scale * self.width as f64 / self.height as f64;
        ahead > 0.0 && dot(away, self.up).abs() <= scale && dot(away, self.right).abs() <= across
    }

    /// The columns and rows of its picture in which a box shows, between two of its corners in space; some
    /// more where that is not known.
    pub(super) fn window(&self, low: [f64; 3], high: [f64; 3]) -> [Range<usize>; 2] {
        let whole = [0..self.width, 0..self.height];
        let (mut left, mut top) = (f64::INFINITY, f64::INFINITY);
        let (mut right, mut bottom) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        let mut behind = 0;
        for corner in 0..8 {
            let at = [0, 1, 2].map(|axis| if corner >> axis & 1 == 1 { high } else { low }[axis]);
            let away = [0, 1, 2].map(|axis| at[axis] - self.eye[axis]);
            let ahead = dot(away, self.forward);
            let scale = match self.projection {
                Projection::Perspective { .. } => self.reach * ahead,
                Projection::Parallel { .. } => self.reach,
            };
            // What is beside the eye has no place in the picture.
            if ahead <= 1e-9 * dot(away, away).sqrt() {
                behind += 1;
                continue;
            }
            let side = self.height as f64 / scale;
            let x = (self.width as f64 + dot(away, self.right) * side) / 2.0;
            let y = (self.height as f64 - dot(away, self.up) * side) / 2.0;
            (left, right) = (left.min(x), right.max(x));
            (top, bottom) = (top.min(y), bottom.max(y));
        }
        let between = |from: f64, to: f64, count: usize| {
            // What is beyond a whole number, or none, is at an end.
            let from = (from - 1.0).max(0.0) as usize;
            let to = ((to + 2.0).max(0.0) as usize).min(count);
            from.min(to)..to
        };
        match behind {
            0 => [between(left, right, self.width), between(top, bottom, self.height)],
            8 => [0..0, 0..0],
            _ => whole,
        }
    }

    #[cfg(feature = "gpu")]
    pub(super) const fn forward(&self) -> [f64; 3] {
        self.forward
    }

    /// What is between a pixel and the next ones.
    #[cfg(feature = "gpu")]
    pub(super) fn pixel(&self) -> Pixel {
        let side = 2.0 * self.reach / self.height as f64;
        Pixel {
            across: self.right.map(|part| side * part),
            down: self.up.map(|part| -side * part),
            is_parallel: matches!(self.projection, Projection::Parallel { .. }),
        }
    }

    /// How far `cells` of a volume of `whole` voxels are along each axis, in voxels. Of two boxes
    /// that [share it out by planes](super::Depth) and that a ray meets, the first is nearer along
    /// some axis and no farther along any, as a ray only moves away from the eye.
    pub(super) fn distances(
        &self,
        cells: &[Range<usize>; 3],
        whole: [usize; 3],
        spacing: [f64; 3],
    ) -> [f64; 3] {
        [0, 1, 2].map(|axis| {
            let (low, high) = (cells[axis].start as f64, cells[axis].end as f64);
            let distance = match self.projection {
                Projection::Perspective { .. } => {
                    // Where it is for its rays. However far it is outside, the order is the same.
                    let eye = self.eye[axis] * (1.0 / spacing[axis]);
                    let eye = eye.clamp(-1.0, whole[axis] as f64);
                    (low - eye).max(eye - high).max(0.0)
                }
                Projection::Parallel { .. } => {
                    let forward = self.forward[axis];
                    // Each step away counts, however flat the line of sight is along the axis.
                    if forward > 0.0 {
                        low
                    } else if forward < 0.0 {
                        -high
                    } else {
                        0.0
                    }
                }
            };
            // There is one zero only.
            distance + 0.0
        })
    }
}

/// Rays that are looked along, across a picture and from its top to its bottom.
const SIGHTS: usize = 64;

/// Whether a ray meets a box from zero to these sides.
fn meets(ray: &Ray, sides: [f64; 3]) -> bool {
    let (mut enters, mut leaves) = (0.0_f64, f64::INFINITY);
    for axis in [0, 1, 2] {
        let (origin, direction) = (ray.origin[axis], ray.direction[axis]);
        if direction == 0.0 {
            if !(0.0..=sides[axis]).contains(&origin) {
                return false;
            }
            continue;
        }
        let [one, other] = [0.0, sides[axis]].map(|side| (side - origin) / direction);
        enters = enters.max(one.min(other));
        leaves = leaves.min(one.max(other));
    }
    enters <= leaves
}

#[inline(always)]
pub(super) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

pub(super) fn unit(vector: [f64; 3]) -> Option<[f64; 3]> {
    let square = dot(vector, vector);
    if square.is_normal() {
        let length = square.sqrt();
        return Some(vector.map(|part| part / length));
    }
    // The squares are out of range, and the vector may be none the less.
    let largest = vector.iter().fold(0.0_f64, |largest, part| largest.max(part.abs()));
    (largest > 0.0 && largest.is_finite()).then(|| {
        let scaled = vector.map(|part| part / largest);
        let length = dot(scaled, scaled).sqrt();
        scaled.map(|part| part / length)
    })
}

/// A direction of length one without what rounding leaves of a right angle to an axis: a ray that goes
/// along a border is on one side of it all its way.
fn straight(direction: [f64; 3]) -> [f64; 3] {
    direction.map(|part| if part.abs() < RIGHT_ANGLE { 0.0 } else { part })
}

/// What sines, cosines and products leave of a right angle.
const RIGHT_ANGLE: f64 = 1e-14;

#[cfg(test)]
mod tests {
    use super::*;

    const PERSPECTIVE: Projection = Projection::Perspective { fov_degrees: 90.0 };

    #[test]
    fn a_camera_that_sees_nothing_is_refused() {
        let (eye, target, up) = ([0.0; 3], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]);
        let camera = |eye, target, up, projection, size| {
            Camera::new(eye, target, up, projection, size).expect_err("refused")
        };
        assert_eq!(camera(eye, eye, up, PERSPECTIVE, [4, 4]), CameraError::NoDirection);
        assert_eq!(camera(eye, target, target, PERSPECTIVE, [4, 4]), CameraError::NoUp);
        assert_eq!(camera(eye, target, [0.0; 3], PERSPECTIVE, [4, 4]), CameraError::NoUp);
        let nan = [f64::NAN, 0.0, 0.0];
        assert_eq!(camera(nan, target, up, PERSPECTIVE, [4, 4]), CameraError::NotFinite);
        for fov_degrees in [0.0, 180.0, -1.0, f64::INFINITY] {
            let view = Projection::Perspective { fov_degrees };
            assert_eq!(camera(eye, target, up, view, [4, 4]), CameraError::NoView(fov_degrees));
        }
        // Squares of these are out of range, and the numbers are not.
        for far in [1e300, 1.6e-162, 1e-300] {
            let direction = unit([far, 0.0, far]).expect("a direction");
            assert!((dot(direction, direction) - 1.0).abs() < 1e-15, "{far}");
            assert!(Camera::new([far, 0.0, 0.0], [0.0; 3], up, PERSPECTIVE, [4, 4]).is_ok());
        }
        let (most, least) = ([f64::MAX, 0.0, 0.0], [f64::MIN, 0.0, 0.0]);
        assert_eq!(camera(most, least, up, PERSPECTIVE, [4, 4]), CameraError::NotFinite);
        for size in [[0, 4], [4, 0], [usize::MAX, 2], [PIXELS_MAX, 2]] {
            let [width, height] = size;
            let error = CameraError::Size { width, height };
            assert_eq!(camera(eye, target, up, PERSPECTIVE, size), error);
        }
    }

    #[test]
    fn rays_spread_over_the_picture() {
        let camera = Camera::new([0.0; 3], [0.0, 0.0, -2.0], [0.0, 5.0, 0.0], PERSPECTIVE, [4, 2])
            .expect("a camera");
        // The top right pixel: 1.5 to the side and 0.5 up at distance 1.
        let ray = camera.ray(3, 0);
        let scaled = ray.direction.map(|part| part / -ray.direction[2]);
        for (part, expected) in scaled.iter().zip([1.5, 0.5, -1.0]) {
            assert!((part - expected).abs() < 1e-12, "{scaled:?}");
        }
    }
}
