//! Surfaces of a volume with ripples in it.

use std::sync::Arc;

use gleaner_kernels::isosurface::IsosurfacePlan;
use gleaner_kernels::volume::{Brick, Volume};

use super::{Row, done};

pub(super) fn bench() {
    for side in [128, 256] {
        let brick = Brick::whole(Arc::new(Volume::rippled(side).expect("a volume")));
        let plan = || IsosurfacePlan::new(brick.clone(), 100.0).expect("a value");
        let triangles = done(plan()).triangles().len();
        let size = format!("{side}³ voxels, {triangles} triangles");
        Row { kernel: "isosurface", size: &size }.measure_one(5, &|| drop(done(plan())));
    }
}
