//! Surfaces of a volume with ripples in it; one that is nowhere, which leaves the search for cells
//! that it goes through; and a copy of the voxels, with which sending them anywhere begins.

use std::hint::black_box;
use std::sync::Arc;

use gleaner_kernels::isosurface::IsosurfacePlan;
use gleaner_kernels::volume::{Brick, Volume};

use super::{Row, done};

pub(super) fn bench() {
    for side in [128, 256] {
        let brick = Brick::whole(Arc::new(Volume::rippled(side).expect("a volume")));
        for value in [100.0, 300.0] {
            let plan = || IsosurfacePlan::new(brick.clone(), value).expect("a value");
            let triangles = done(plan()).triangles().len();
            let size = format!("{side}³ voxels, {triangles} triangles");
            Row { kernel: "isosurface", size: &size }.measure_one(5, &|| drop(done(plan())));
        }
        let voxels = brick.voxels();
        let size = format!("{side}³ voxels");
        Row { kernel: "copy", size: &size }.measure_one(5, &|| drop(black_box(voxels.clone())));
    }
}
