//! What a client wants to see, and when: an orbit without an end, or what was recorded.

use std::f64::consts::TAU;

use gleaner_protocol::{
    RecordedVolume, Span, TransferPoint, ViewCamera, ViewShading, ViewState, ViewStatus,
};
use gleaner_simulator::RecordedView;

use super::STATE_EVERY;

/// See the module's page.
pub(super) enum Wishes {
    /// Around the volume.
    Orbit {
        /// Of the pictures.
        size: [u32; 2],
        /// Whether surfaces are lit.
        shaded: bool,
    },
    /// As somebody did.
    Recorded(RecordedView),
}

impl Wishes {
    /// After how long the wish of this number is said; none where there is no such.
    pub(super) fn due(&self, number: usize) -> Option<Span> {
        match self {
            Self::Orbit { .. } => {
                let number = u64::try_from(number).unwrap_or(u64::MAX);
                Some(Span::from_micros(Span::from(STATE_EVERY).as_micros() * number))
            }
            Self::Recorded(view) => view.states.get(number).map(|(at, _)| *at),
        }
    }

    pub(super) const fn are_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    /// From the first wish to the last.
    pub(super) fn length(&self) -> Span {
        match self {
            Self::Orbit { .. } => Span::ZERO,
            Self::Recorded(view) => {
                let at = |of: Option<&(Span, ViewState)>| of.map_or(Span::ZERO, |(at, _)| *at);
                let (first, last) = (at(view.states.first()), at(view.states.last()));
                Span::from_micros(last.as_micros() - first.as_micros())
            }
        }
    }

    /// What is wanted of this view.
    pub(super) fn state(&self, view: &ViewStatus, seq: u64) -> ViewState {
        match self {
            Self::Orbit { size, shaded } => orbit(view, *size, *shaded, seq),
            Self::Recorded(recorded) => {
                let at = usize::try_from(seq).unwrap_or(usize::MAX);
                let (_, state) = &recorded.states[at];
                fitted(&recorded.volume, view, ViewState { seq, ..state.clone() })
            }
        }
    }
}

/// Lengths of a volume along its sides.
fn sides(size: [u32; 3], spacing: [f64; 3]) -> [f64; 3] {
    [0, 1, 2].map(|axis| f64::from(size[axis]) * spacing[axis])
}

/// What was wanted of one volume, of another one: as large in the picture, with the same colours.
fn fitted(of: &RecordedVolume, to: &ViewStatus, state: ViewState) -> ViewState {
    let (old, new) = (sides(of.size, of.spacing), sides(to.size, to.spacing));
    let longest = |sides: [f64; 3]| sides.into_iter().fold(0.0, f64::max);
    let scale = longest(new) / longest(old);
    let moved = |point: [f64; 3]| {
        [0, 1, 2].map(|axis| new[axis] / 2.0 + scale * (point[axis] - old[axis] / 2.0))
    };
    let [from, till] = of.range;
    let [low, high] = to.range;
    let value = |value: f32| {
        let part = if till > from { (value - from) / (till - from) } else { 0.0 };
        low + part * (high - low)
    };
    let points =
        state.transfer.iter().map(|point| TransferPoint { value: value(point.value), ..*point });
    ViewState {
        camera: ViewCamera {
            eye: moved(state.camera.eye),
            target: moved(state.camera.target),
            ..state.camera
        },
        transfer: points.collect(),
        opacity_unit: state.opacity_unit * scale,
        step: state.step.min(to.steps.saturating_sub(1)),
        ..state
    }
}

/// A state of an orbit around the volume.
fn orbit(view: &ViewStatus, size: [u32; 2], shaded: bool, seq: u64) -> ViewState {
    let sides = sides(view.size, view.spacing);
    let target = sides.map(|side| side / 2.0);
    let far = 2.2 * sides.into_iter().fold(0.0, f64::max);
    let angle = TAU * seq as f64 / 600.0;
    let eye = [target[0] + far * angle.sin(), target[1] + 0.4 * far, target[2] + far * angle.cos()];
    let point =
        |value: f32, opacity: f32| TransferPoint { value, colour: [0.9, 0.6, 0.3], opacity };
    let [low, high] = view.range;
    let at = |part: f32| low + part * (high - low);
    ViewState {
        seq,
        camera: ViewCamera { eye, target, up: [0.0, 1.0, 0.0], fov_degrees: 30.0 },
        transfer: vec![point(at(0.6), 0.0), point(at(0.7), 0.5), point(at(1.0), 0.8)],
        opacity_unit: 1.0,
        shading: shaded.then_some(ViewShading {
            ambient: 0.3,
            diffuse: 0.7,
            specular: 0.2,
            shininess: 20,
        }),
        clip: [[0.0, 1.0]; 3],
        background: [0.0; 3],
        step: 0,
        size,
        moving: true,
    }
}
