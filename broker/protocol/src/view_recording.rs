//! Recordings of views: what people wanted to see, and when. Lines of JSON, each a [`RecordingLine`] but the
//! first, which is a [`RecordingHead`]. Whose a view is, and what it is called in addresses, is not in it.
//!
//! # Invariants
//! - Times never go back.
//! - A view is opened before it wants to see anything.

use serde::{Deserialize, Serialize};

use crate::{Span, ViewKernel, ViewState, ViewStatus};

/// How recordings are written now.
pub const VIEW_RECORDING_VERSION: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingHead {
    /// [`VIEW_RECORDING_VERSION`].
    pub gleaner_views: u32,
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingLine {
    /// Since the recording was begun, in microseconds.
    pub at_us: u64,
    /// Which view of this recording.
    pub view: u32,
    /// What happened.
    pub what: RecordingStep,
}

/// What happened to a view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingStep {
    /// It is looked at from now on.
    Opened(RecordedVolume),
    /// This is wanted.
    Wants(Box<ViewState>),
    /// Nobody looks any more.
    Closed,
}

/// What a view is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedVolume {
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
    /// The longest of them.
    pub brick_bytes: u64,
    /// The smallest and the largest value.
    pub range: [f32; 2],
}

impl From<ViewStatus> for RecordedVolume {
    fn from(view: ViewStatus) -> Self {
        let ViewStatus {
            dataset, kernel, size, spacing, steps, bricks, brick_bytes, range, ..
        } = view;
        Self { dataset, kernel, size, spacing, steps, bricks, brick_bytes, range }
    }
}

impl RecordingLine {
    /// A line of a view at this time of the recording.
    #[must_use]
    pub fn new(at: Span, view: u32, what: RecordingStep) -> Self {
        Self { at_us: at.as_micros(), view, what }
    }
}
