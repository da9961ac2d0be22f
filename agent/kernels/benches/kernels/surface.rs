//! Surfaces of a volume with ripples in it; one that is nowhere, which leaves the search for cells
//! that it goes through; and a copy of the voxels, with which sending them anywhere begins. On a GPU
//! sending them is part of it, and opening the device is not.

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

/// The same on the strongest GPU, or llvmpipe where there is none, and on one thread on the wall.
#[cfg(feature = "gpu")]
pub(super) fn bench_on_gpu() {
    use gleaner_kernels::isosurface::DeviceIsosurfacePlan;

    let Some((gpu, is_real)) = super::gpu("isosurface") else { return };
    let kernel = format!("isosurface on {}", gpu.name());
    let sides: &[usize] = if is_real { &[128, 256, 512, 1024] } else { &[128, 256] };
    for side in sides {
        let volume = Arc::new(Volume::rippled(*side).expect("a volume"));
        let whole = || {
            let brick = Brick::whole(volume.clone());
            IsosurfacePlan::new(brick, 100.0).expect("a value")
        };
        let there = || {
            let plan = DeviceIsosurfacePlan::new(gpu.clone(), volume.clone(), 100.0);
            plan.expect("a plan").expect("it is made for it")
        };
        let mesh = done(there());
        assert!(mesh == done(whole()), "it is another mesh");
        let size = format!("{side}³ voxels, {} triangles", mesh.triangles().len());
        let row = Row { kernel: &kernel, size: &size };
        let theirs = row.measure_prepared(1, 9, &there, &|plan| drop(done(plan)));
        let row = Row { kernel: "isosurface", size: &size };
        let ours = row.measure_prepared(1, 9, &whole, &|plan| drop(done(plan)));
        println!("{side}³: {:.2} times as fast as one processor", ours / theirs);
    }
}
