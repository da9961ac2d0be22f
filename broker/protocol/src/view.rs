//! Views: volumes that people turn in their browsers, and the frames that are drawn for them.
//!
//! A view is one WebSocket, `/v1/views/ID/live`. The client sends what it wants to see
//! ([`ViewWish::State`]) and what it has drawn ([`ViewWish::Drawn`]), as JSON texts. The broker sends
//! frames, each one binary message: the length of a header in four bytes, little end first, the
//! header as JSON ([`FrameHeader`]), then the picture's files, one for each of its strips, from the top.
//! Texts that the broker sends are [`ViewNews`].
//!
//! # Invariants
//! - A state says all there is to say: of two, the one with the greater number counts.
//! - A frame is never sent after one of a greater number.
//! - At most [`VIEW_CREDITS`](crate::limits::VIEW_CREDITS) frames are on their way that the client
//!   has not drawn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use std::ops::Range;

use crate::HostName;
use crate::limits::{
    FRAME_STRIPS_MAX, PACED_US_MAX, TRANSFER_POINTS_MAX, VIEW_NUMBER_MAX, VIEW_PIXELS_MAX,
    VIEW_SIDE_MIN, VIEW_SIDES_MAX,
};

/// The kernel that hosts must have to draw frames.
pub const FRAME_KERNEL: &str = "view";

/// What a client wants to see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewState {
    /// Greater than those of all states before.
    pub seq: u64,
    /// From where.
    pub camera: ViewCamera,
    /// What values look like: sorted by value, linear in between, constant outside.
    pub transfer: Vec<TransferPoint>,
    /// The thickness of a layer that opacities are of, in the unit of the voxels' spacing.
    #[serde(default = "one")]
    pub opacity_unit: f64,
    /// Light from where the eye is; none where not given.
    #[serde(default)]
    pub shading: Option<ViewShading>,
    /// The part of the volume that is seen along x, y, z: from and to, from 0 to 1.
    #[serde(default = "whole")]
    pub clip: [[f64; 2]; 3],
    /// What is behind the volume: red, green, blue, from 0 to 1.
    #[serde(default)]
    pub background: [f32; 3],
    /// Which step of time.
    #[serde(default)]
    pub step: u32,
    /// Pixels in a row, and rows, of the whole picture.
    pub size: [u32; 2],
    /// Whether it changes now: such a frame may be smaller and rougher.
    #[serde(default)]
    pub moving: bool,
}

const fn one() -> f64 {
    1.0
}

const fn whole() -> [[f64; 2]; 3] {
    [[0.0, 1.0]; 3]
}

// Numbers of a checked state are finite, and so equal to themselves.
impl Eq for ViewState {}

/// A point of view. Lengths are in the unit of the voxels' spacing, the first voxel at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewCamera {
    /// Where the eye is.
    pub eye: [f64; 3],
    /// What it looks at.
    pub target: [f64; 3],
    /// What is upwards in the picture.
    pub up: [f64; 3],
    /// The angle between the lowest and the highest row, in degrees.
    pub fov_degrees: f64,
}

/// What one value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferPoint {
    /// The value.
    pub value: f32,
    /// Red, green, blue, from 0 to 1; not premultiplied.
    pub colour: [f32; 3],
    /// What a layer as thick as [`ViewState::opacity_unit`] holds back, from 0 to 1.
    pub opacity: f32,
}

/// Light from where the eye is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewShading {
    /// Share of the colour that is seen from all sides.
    pub ambient: f32,
    /// Share of the colour that is seen where a surface faces the light.
    pub diffuse: f32,
    /// Brightness of a highlight.
    pub specular: f32,
    /// The higher, the smaller is the highlight.
    pub shininess: u16,
}

/// Why a state is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ViewStateError {
    /// A number that is none, or out of its range.
    #[error("{0}: give finite numbers in their range")]
    Number(&'static str),
    /// The eye is at its target, or looks along `up`.
    #[error("camera: the eye must be elsewhere than its target, and not look along `up`")]
    NoDirection,
    /// Too few or too many pixels.
    #[error(
        "size {} x {}: each side from {VIEW_SIDE_MIN} to {VIEW_SIDES_MAX}, and {VIEW_PIXELS_MAX} pixels at most",
        .0[0], .0[1]
    )]
    Size([u32; 2]),
    /// Too few or too many points.
    #[error("transfer: it has {0} points, must have from 1 to {TRANSFER_POINTS_MAX}")]
    Points(usize),
    /// Points out of order.
    #[error("transfer: point {0} has a smaller value than the one before it: sort them by value")]
    Order(usize),
}

impl ViewState {
    /// Checks what a client sent.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), ViewStateError> {
        let good = |name, good: bool| if good { Ok(()) } else { Err(ViewStateError::Number(name)) };
        let share = |share: f32| (0.0..=1.0).contains(&share);
        good("seq", self.seq <= VIEW_NUMBER_MAX)?;
        self.camera.check()?;
        let points = self.transfer.len();
        if !(1..=TRANSFER_POINTS_MAX).contains(&points) {
            return Err(ViewStateError::Points(points));
        }
        let is_point = |point: &TransferPoint| {
            point.value.is_finite() && share(point.opacity) && point.colour.into_iter().all(share)
        };
        good("transfer", self.transfer.iter().all(is_point))?;
        let falls = |pair: &[TransferPoint]| pair[1].value < pair[0].value;
        if let Some(at) = self.transfer.windows(2).position(falls) {
            return Err(ViewStateError::Order(at + 1));
        }
        good("opacity_unit", self.opacity_unit > 0.0 && self.opacity_unit.is_finite())?;
        let lit = |light: &ViewShading| {
            let ViewShading { ambient, diffuse, specular, .. } = *light;
            [ambient, diffuse, specular].into_iter().all(|part| (0.0..=LIGHT_MAX).contains(&part))
        };
        good("shading", self.shading.as_ref().is_none_or(lit))?;
        let is_part = |[from, to]: &[f64; 2]| 0.0 <= *from && from <= to && *to <= 1.0;
        good("clip", self.clip.iter().all(is_part))?;
        good("background", self.background.into_iter().all(share))?;
        check_size(self.size)
    }
}

/// Brightest light.
const LIGHT_MAX: f32 = 10.0;
/// No coordinate is farther away.
const FAR: f64 = 1e12;

fn check_size([width, height]: [u32; 2]) -> Result<(), ViewStateError> {
    let side = |side: u32| (VIEW_SIDE_MIN..=VIEW_SIDES_MAX).contains(&side);
    let is_size = side(width) && side(height) && width * height <= VIEW_PIXELS_MAX;
    if is_size { Ok(()) } else { Err(ViewStateError::Size([width, height])) }
}

impl ViewCamera {
    fn check(&self) -> Result<(), ViewStateError> {
        let Self { eye, target, up, fov_degrees } = *self;
        let near = |of: [f64; 3]| of.into_iter().all(|part| part.abs() <= FAR);
        if !(near(eye) && near(target) && near(up) && (1.0..=170.0).contains(&fov_degrees)) {
            return Err(ViewStateError::Number("camera"));
        }
        let sight = [0, 1, 2].map(|axis| target[axis] - eye[axis]);
        let length = |of: [f64; 3]| of.iter().map(|part| part * part).sum::<f64>().sqrt();
        let aside = [0, 1, 2].map(|axis| {
            let (next, last) = ((axis + 1) % 3, (axis + 2) % 3);
            sight[next] * up[last] - sight[last] * up[next]
        });
        let flat = length(sight) * length(up);
        if flat > 0.0 && length(aside) > 1e-5 * flat {
            Ok(())
        } else {
            Err(ViewStateError::NoDirection)
        }
    }
}

/// From a client of a view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewWish {
    /// What it wants to see from now on.
    State(Box<ViewState>),
    /// It has drawn the frame of this number, and all before.
    Drawn(u64),
}

/// A frame, told before its picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    /// Of which state.
    pub seq: u64,
    /// Pixels in a row, and rows, of this picture: it may be smaller than what was asked for.
    pub size: [u32; 2],
    /// How its files are written.
    pub codec: PictureCodec,
    /// The files that follow, each of some rows of the picture, from the top without a gap.
    pub strips: Vec<FrameStrip>,
    /// Whether it shows the coarse level only: bricks are being loaded.
    pub coarse: bool,
    /// The hosts that drew it.
    pub hosts: Vec<HostName>,
    /// Parts of it whose chunk its host had already.
    pub hits: u32,
    /// Parts of it.
    pub parts: u32,
    /// From when it was asked of hosts to its picture, in microseconds.
    pub took_us: u64,
    /// States so far that newer ones came in the place of.
    pub dropped: u64,
}

/// Some rows of a frame's picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameStrip {
    /// The first of them.
    pub row: u32,
    /// Bytes of its file.
    pub bytes: u32,
}

/// How a picture is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureCodec {
    /// JPEG of a quality from 1 to 100: colours at half the size below 90.
    Jpeg(u8),
    /// PNG, without a loss.
    Png,
}

/// What the broker tells a client, as a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewNews {
    /// A state was refused, for this reason.
    Refused(String),
    /// Nothing is drawn now, for this reason; `null` where it is again.
    Waits(Option<String>),
    /// The view has ended, for this reason.
    Ended(String),
}

/// What draws frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ViewKernel {
    /// Ray casting.
    #[default]
    Volume,
    /// Paints the number of the state, and reads nothing: it shows how long everything else takes.
    /// See [`SYNTHETIC_BITS`].
    Synthetic,
    /// The same, and each part takes as long as this says: scheduling is measured by it. Its host waits.
    Paced {
        /// What a part takes whose host has to load its brick, beside that, in microseconds.
        load_us: u32,
        /// What any part takes, in microseconds.
        render_us: u32,
    },
}

impl ViewKernel {
    /// Whether parts take no longer than they may.
    #[must_use]
    pub const fn is_in_time(self) -> bool {
        match self {
            Self::Volume | Self::Synthetic => true,
            Self::Paced { load_us, render_us } => {
                load_us <= PACED_US_MAX && render_us <= PACED_US_MAX
            }
        }
    }
}

/// Bits of a state's number that the synthetic kernel paints: the lowest first, from the left of the
/// picture's top, each a square whose side is the picture's width over [`SYNTHETIC_SQUARES`], white for
/// 1 and black for 0.
pub const SYNTHETIC_BITS: u32 = 16;
/// See [`SYNTHETIC_BITS`].
pub const SYNTHETIC_SQUARES: u32 = 32;

/// A part of a frame, as a workunit of the rendering lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameTask {
    /// Names the frame among all of this broker's life.
    pub frame: u64,
    /// Which part.
    pub stage: FrameStage,
    /// What draws it.
    pub kernel: ViewKernel,
    /// What is wanted.
    pub state: ViewState,
    /// Pixels in a row, and rows, that are drawn.
    pub size: [u32; 2],
    /// How the picture is written.
    pub codec: PictureCodec,
    /// Strips of rows in which layers are joined, each by a workunit of its own: see [`strip_rows`].
    pub strips: u8,
}

/// Rows of a strip are a multiple of so many, but for the last one: whole blocks of JPEG.
pub const STRIP_ROWS: u32 = 16;

/// The rows of one of the strips that a picture of so many rows is cut into; none where there is no such
/// strip. Together they are all rows, and no two are further apart in size than [`STRIP_ROWS`] and what the
/// last one lacks.
#[must_use]
pub fn strip_rows(height: u32, strips: u8, index: u32) -> Range<u32> {
    let (blocks, strips) = (height.div_ceil(STRIP_ROWS), u32::from(strips.max(1)));
    let index = index.min(strips);
    let cut = |at: u32| (blocks * at.min(strips) / strips * STRIP_ROWS).min(height);
    cut(index)..cut(index + 1)
}

/// Most strips that a picture of so many rows may be cut into.
#[must_use]
pub fn strips_max(height: u32) -> u8 {
    u8::try_from(height.div_ceil(STRIP_ROWS)).unwrap_or(u8::MAX).clamp(1, FRAME_STRIPS_MAX)
}

/// Which part of a frame is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrameStage {
    /// Of the brick that is read, a layer of the picture, cut into strips.
    Layer,
    /// The picture, of the one brick that the volume has or of nothing.
    Whole,
    /// The picture, of the coarse level: what it reads has an eighth of the voxels along each side.
    Coarse,
    /// A strip of the picture, of the layers that the hosts which drew them or the broker have.
    Join,
}

/// Asks for a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewView {
    /// The dataset, by name.
    pub dataset: String,
    /// What draws it.
    #[serde(default)]
    pub kernel: ViewKernel,
}

/// A view, as it is told of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewStatus {
    /// Its name in addresses.
    pub view: String,
    /// The dataset's name.
    pub dataset: String,
    /// What draws it.
    pub kernel: ViewKernel,
    /// Voxels along x, y, z.
    pub size: [u32; 3],
    /// How far they are apart.
    pub spacing: [f64; 3],
    /// Steps of time.
    pub steps: u32,
    /// Bricks of a step.
    pub bricks: u32,
    /// The longest of them, as it is kept.
    #[serde(default)]
    pub brick_bytes: u64,
    /// The smallest and the largest value.
    pub range: [f32; 2],
    /// Whether a client is connected.
    pub connected: bool,
    /// What was wanted last.
    pub state: Option<ViewState>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ViewState {
        let point = |value| TransferPoint { value, colour: [0.5; 3], opacity: 0.5 };
        ViewState {
            seq: 1,
            camera: ViewCamera {
                eye: [9.0, 0.0, 0.0],
                target: [0.0; 3],
                up: [0.0, 1.0, 0.0],
                fov_degrees: 30.0,
            },
            transfer: vec![point(0.0), point(1.0)],
            opacity_unit: 1.0,
            shading: None,
            clip: whole(),
            background: [0.0; 3],
            step: 0,
            size: [64, 48],
            moving: false,
        }
    }

    #[test]
    fn a_state_is_small_and_finite() {
        assert_eq!(state().check(), Ok(()));
        let refuses = |change: fn(&mut ViewState), says: &str| {
            let mut changed = state();
            change(&mut changed);
            let told = changed.check().expect_err(says).to_string();
            assert!(told.contains(says), "{told}");
        };
        refuses(|of| of.camera.eye[0] = f64::NAN, "camera");
        refuses(|of| of.camera.eye = [0.0; 3], "elsewhere");
        refuses(|of| of.camera.up = [1.0, 0.0, 0.0], "along `up`");
        refuses(|of| of.camera.fov_degrees = 180.0, "camera");
        refuses(|of| of.size = [1_000_000_000, 1], "size 1000000000 x 1");
        refuses(|of| of.size = [8, 64], "size 8 x 64");
        refuses(|of| of.transfer.clear(), "0 points");
        refuses(|of| of.transfer = vec![of.transfer[0]; 65], "65 points");
        refuses(|of| of.transfer.reverse(), "point 1 has a smaller value");
        refuses(|of| of.transfer[0].opacity = 1.5, "transfer");
        refuses(|of| of.opacity_unit = 0.0, "opacity_unit");
        refuses(|of| of.clip[2] = [0.6, 0.5], "clip");
        refuses(|of| of.background[1] = -1.0, "background");
        refuses(|of| of.seq = u64::MAX, "seq");
    }

    #[test]
    fn strips_are_all_rows_once_in_whole_blocks() {
        for height in [16, 17, 100, 384, 768, 4_096] {
            for strips in 1..=strips_max(height) {
                let all: Vec<_> =
                    (0..strips.into()).map(|at| strip_rows(height, strips, at)).collect();
                let ends = (all[0].start, all[usize::from(strips) - 1].end);
                assert_eq!(ends, (0, height), "{height} rows in {strips}");
                assert!(all.iter().all(|rows| rows.start % STRIP_ROWS == 0 && !rows.is_empty()));
                assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
        assert_eq!(strip_rows(100, 2, 7), 100..100, "there are two");
        assert_eq!(strip_rows(100, 0, 0), 0..100);
    }

    #[test]
    fn it_reads_what_a_browser_says() {
        let text = r#"{"state":{"seq":3,"camera":{"eye":[9,0,0],"target":[0,0,0],"up":[0,1,0],
            "fov_degrees":30},"transfer":[{"value":1,"colour":[1,0,0],"opacity":0.5}],"size":[64,48]}}"#;
        let ViewWish::State(read) = serde_json::from_str(text).expect("a wish") else {
            panic!("a state")
        };
        assert_eq!((read.seq, read.clip, read.check()), (3, whole(), Ok(())));
        assert_eq!(
            serde_json::from_str::<ViewWish>(r#"{"drawn":3}"#).expect("a wish"),
            ViewWish::Drawn(3)
        );
        assert_eq!(
            serde_json::to_string(&ViewNews::Waits(None)).expect("ours"),
            r#"{"waits":null}"#
        );
    }
}
