//! The camera that a specification has.

use serde::Deserialize;

use super::ApplicationError;
use crate::raycast::{Camera, Projection};

/// Where a picture is taken from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CameraSpec {
    pub(super) eye: [f64; 3],
    pub(super) target: [f64; 3],
    pub(super) up: [f64; 3],
    pub(super) fov_degrees: Option<f64>,
    pub(super) height: Option<f64>,
}

impl CameraSpec {
    /// The camera of a picture of this size.
    pub(super) fn camera(&self, size: [usize; 2]) -> Result<Camera, ApplicationError> {
        let Self { eye, target, up, fov_degrees, height } = *self;
        let projection = match (fov_degrees, height) {
            (Some(fov_degrees), None) => Projection::Perspective { fov_degrees },
            (None, Some(height)) => Projection::Parallel { height },
            _ => {
                let problem = "[camera]: give either fov_degrees or height";
                return Err(ApplicationError::Value(problem.to_owned()));
            }
        };
        Camera::new(eye, target, up, projection, size).map_err(ApplicationError::value)
    }
}
