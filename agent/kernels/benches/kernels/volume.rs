//! Frames of 512 × 512 of a volume with ripples in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gleaner_kernels::raycast::{
    Camera, ControlPoint, Frame, FramePlan, Look, Projection, Scene, ScenePlan, Shading, Transfer,
};
use gleaner_kernels::volume::{Brick, Volume};

use super::{Row, done};

const RUNS: usize = 10;
pub(super) const FOV_DEGREES: f64 = 30.0;
pub(super) const UP: [f64; 3] = [0.0, 1.0, 0.0];

/// What opacities a value has; and whether it is lit.
pub(super) type NamedLook = (&'static str, &'static [(f32, f32)], Option<Shading>);

const LIGHT: Shading = Shading { ambient: 0.2, diffuse: 0.7, specular: 0.3, shininess: 20 };
const FOG: &[(f32, f32)] = &[(0.0, 0.002), (255.0, 0.02)];
const SHELL: &[(f32, f32)] = &[(0.0, 0.0), (90.0, 0.0), (100.0, 0.6), (110.0, 0.0)];

/// How volumes are looked at.
pub(super) const LOOKS: [NamedLook; 3] =
    [("fog", FOG, None), ("shell", SHELL, None), ("shaded", SHELL, Some(LIGHT))];

/// A look with samples so many voxels apart.
pub(super) fn look(points: &[(f32, f32)], step: f64, shading: Option<Shading>) -> Look {
    let points = points.iter().map(|(value, opacity)| ControlPoint {
        value: *value,
        colour: colour(*value),
        opacity: *opacity,
    });
    let transfer = Transfer::new(points.collect(), 1.0).expect("a function");
    Look { transfer, step: Some(step), shading }
}

/// The colour of a value.
pub(super) fn colour(value: f32) -> [f32; 3] {
    let share = value / 255.0;
    [0.2 + 0.8 * share, 0.5, 1.0 - 0.8 * share]
}

/// Where a whole volume is seen from aside, and its middle.
pub(super) fn eye(side: usize) -> ([f64; 3], [f64; 3]) {
    let centre = [(side - 1) as f64 / 2.0; 3];
    let away = 2.4 * side as f64;
    ([0, 1, 2].map(|axis| centre[axis] + away * [0.48, 0.36, 0.8][axis]), centre)
}

/// A view of a whole volume from aside.
pub(super) fn camera(side: usize, size: [usize; 2]) -> Camera {
    let (eye, centre) = eye(side);
    let view = Projection::Perspective { fov_degrees: FOV_DEGREES };
    Camera::new(eye, centre, UP, view, size).expect("a camera")
}

pub(super) fn scene(volume: &Arc<Volume>, look: &Look) -> Arc<Scene> {
    done(ScenePlan::new(Brick::whole(volume.clone()), look).expect("a scene"))
}

pub(super) fn frame(scene: &Arc<Scene>, camera: &Camera) -> Frame {
    done(FramePlan::new(scene.clone(), camera.clone()))
}

fn write_raw(frame: &Frame, folder: &Path, name: &str) {
    let bytes: Vec<u8> =
        frame.image.pixels().iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(folder.join(name), bytes).expect("written");
}

pub(super) fn bench(raw: Option<&Path>) {
    for side in [128, 256] {
        let volume = Arc::new(Volume::rippled(side).expect("a volume"));
        let camera = camera(side, [512, 512]);
        for (name, points, shading) in LOOKS {
            let look = |step| look(points, step, shading);
            let ready = scene(&volume, &look(1.0));
            let size = format!("{side}³ {name}, scene");
            Row { kernel: "volume", size: &size }
                .measure_one(3, &|| drop(scene(&volume, &look(1.0))));
            let size = format!("{side}³ {name}, picture of 512 x 512");
            Row { kernel: "volume", size: &size }.measure(RUNS, &|| drop(frame(&ready, &camera)));
            if let Some(folder) = raw {
                write_raw(&frame(&ready, &camera), folder, &format!("{side}-{name}.f32"));
                let fine = frame(&scene(&volume, &look(1.0 / 16.0)), &camera);
                write_raw(&fine, folder, &format!("{side}-{name}-fine.f32"));
            }
        }
    }
}
