//! Flights of a specification's camera.
//!
//! ```text
//! [camera] ── filled in with ──► keys ── a track per number ──► frame's time ──► its camera
//! ```
//!
//! # Invariants
//! - A frame's camera depends on the specification and the frame's number only, so that any host
//!   takes it alone.

mod track;

use std::ops::Range;

use serde::Deserialize;

use self::track::Track;
use super::ApplicationError;
use super::camera::CameraSpec;
use crate::limits::{ANIMATION_FRAMES_MAX, ANIMATION_KEYS_MAX};
use crate::raycast::{Camera, Pose};

/// A flight of the camera, from time 0 to time 1.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnimationSpec {
    frames: usize,
    path: Vec<KeySpec>,
    /// The one frame that is taken, where it is not all of them.
    #[serde(skip)]
    only: Option<usize>,
}

/// What is at a time; what is left out is as in `[camera]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeySpec {
    at: f64,
    eye: Option<[f64; 3]>,
    target: Option<[f64; 3]>,
    up: Option<[f64; 3]>,
    fov_degrees: Option<f64>,
    height: Option<f64>,
    #[serde(default)]
    azimuth: f64,
    #[serde(default)]
    elevation: f64,
    distance: Option<f64>,
}

/// A camera that goes around, in numbers: eye, target, up, field of view or height, azimuth,
/// elevation, distance.
type Numbers = [f64; 13];

impl AnimationSpec {
    /// Frames that are taken.
    fn taken(&self) -> Range<usize> {
        self.only.map_or(0..self.frames, |frame| frame..frame + 1)
    }

    /// Each frame that is taken is a part.
    pub(super) fn parts(&self) -> Vec<String> {
        self.taken().map(number).collect()
    }

    /// The part of this name.
    pub(super) fn only(&self, part: &str) -> Option<Self> {
        let frame = self.taken().find(|frame| number(*frame) == part)?;
        Some(Self { only: Some(frame), ..self.clone() })
    }

    /// The file of each frame that is taken, where a single picture would be `picture`.
    pub(super) fn names(&self, picture: &str) -> Vec<String> {
        let (stem, end) = picture.rsplit_once('.').unwrap_or((picture, ""));
        self.taken().map(|frame| format!("{stem}-{}.{end}", number(frame))).collect()
    }

    /// Refuses what is no flight of this camera, for pictures of this size.
    pub(super) fn check(
        &self,
        camera: &CameraSpec,
        size: [usize; 2],
    ) -> Result<(), ApplicationError> {
        let told =
            |problem: String| Err(ApplicationError::Value(format!("[animation]: {problem}")));
        if !(1..=ANIMATION_FRAMES_MAX).contains(&self.frames) {
            return told(format!("frames = {}: give 1 to {ANIMATION_FRAMES_MAX}", self.frames));
        }
        let keys = self.path.len();
        if !(1..=ANIMATION_KEYS_MAX).contains(&keys) {
            return told(format!("path has {keys} keys: give 1 to {ANIMATION_KEYS_MAX}"));
        }
        for key in &self.path {
            if let Err(problem) = key.check(camera) {
                return told(format!("path, at = {}: {problem}", key.at));
            }
        }
        if let Some(two) = self.path.windows(2).find(|two| two[0].at >= two[1].at) {
            let (before, after) = (two[0].at, two[1].at);
            return told(format!(
                "path: at = {after} follows at = {before}: sort keys by their times, no two at one"
            ));
        }
        self.cameras(camera, size).map(drop)
    }

    /// The camera of each frame that is taken.
    pub(super) fn cameras(
        &self,
        camera: &CameraSpec,
        size: [usize; 2],
    ) -> Result<Vec<Camera>, ApplicationError> {
        let keys: Vec<(f64, Numbers)> =
            self.path.iter().map(|key| (key.at, key.numbers(camera))).collect();
        let tracks: [Track; 13] = std::array::from_fn(|of| {
            let pairs: Vec<(f64, f64)> =
                keys.iter().map(|(at, numbers)| (*at, numbers[of])).collect();
            Track::new(&pairs)
        });
        let frame = |frame: usize| {
            let time = frame as f64 / (self.frames - 1).max(1) as f64;
            let numbers = tracks.each_ref().map(|track| track.at(time));
            moved(camera, numbers).camera(size).map_err(|error| {
                ApplicationError::Value(format!(
                    "[animation]: frame {} (from 0 to {}): {error}",
                    number(frame),
                    self.frames - 1
                ))
            })
        };
        self.taken().map(frame).collect()
    }
}

impl KeySpec {
    /// What is wrong with it by itself.
    fn check(&self, camera: &CameraSpec) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.at) {
            return Err("a time is from 0, the first frame, to 1, the last one".to_owned());
        }
        for (key, has, camera_has) in [
            ("fov_degrees", self.fov_degrees.is_some(), camera.fov_degrees.is_some()),
            ("height", self.height.is_some(), camera.height.is_some()),
        ] {
            if has && !camera_has {
                return Err(format!(
                    "{key} needs one in [camera] to begin with: give it there too"
                ));
            }
        }
        if !self.numbers(camera).iter().all(|number| number.is_finite()) {
            return Err("a number is not finite".to_owned());
        }
        match self.distance {
            Some(distance) if distance <= 0.0 => {
                Err(format!("distance = {distance}: give one above 0, 1 is that of [camera]"))
            }
            _ => Ok(()),
        }
    }

    fn numbers(&self, camera: &CameraSpec) -> Numbers {
        let [x, y, z] = self.eye.unwrap_or(camera.eye);
        let [tx, ty, tz] = self.target.unwrap_or(camera.target);
        let [ux, uy, uz] = self.up.unwrap_or(camera.up);
        let view = self.fov_degrees.or(self.height).or(camera.fov_degrees).or(camera.height);
        let distance = self.distance.unwrap_or(1.0);
        let view = view.unwrap_or_default();
        [x, y, z, tx, ty, tz, ux, uy, uz, view, self.azimuth, self.elevation, distance]
    }
}

/// A camera where the numbers have led it.
fn moved(camera: &CameraSpec, numbers: Numbers) -> CameraSpec {
    let [x, y, z, tx, ty, tz, ux, uy, uz, view, azimuth, elevation, distance] = numbers;
    let pose = Pose { eye: [x, y, z], target: [tx, ty, tz], up: [ux, uy, uz] };
    let Pose { eye, target, up } = pose.turned(azimuth, elevation, distance);
    CameraSpec {
        eye,
        target,
        up,
        fov_degrees: camera.fov_degrees.map(|_| view),
        height: camera.height.map(|_| view),
    }
}

/// A frame's number, as long as that of any other.
fn number(frame: usize) -> String {
    let width = (ANIMATION_FRAMES_MAX - 1).ilog10() as usize + 1;
    format!("{frame:0width$}")
}
