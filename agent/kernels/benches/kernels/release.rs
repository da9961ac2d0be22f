//! How long whoever asks a kernel to stop waits for it, at moments all over its work.
//!
//! An agent does not wait so long for a kernel of the processor, whose runner it freezes or kills;
//! for one on a device it is what the device's driver is busy with after that.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use gleaner_kernels::isosurface::IsosurfacePlan;
use gleaner_kernels::npairs::{NpairsPlan, Synthetic};
#[cfg(feature = "gpu")]
use gleaner_kernels::pca::DevicePcaPlan;
use gleaner_kernels::pca::PcaPlan;
use gleaner_kernels::raycast::FramePlan;
use gleaner_kernels::volume::{Brick, Volume};
use gleaner_kernels::{Outcome, Pace, Plan, Preempt, run};
use gleaner_protocol::boottime;

use super::npairs::scans;
use super::pca::{around_100, data};
use super::volume::{LOOKS, camera, look, scene};

const TRIALS: u32 = 100;

pub(super) fn bench() {
    println!("\n| kernel | trials | release p50, ms | p99 | longest |\n|---|---|---|---|---|");
    let volume = Arc::new(Volume::rippled(128).expect("a volume"));
    let (_, points, shading) = LOOKS[0];
    let fog = scene(&volume, &look(points, 1.0, shading));
    let camera = camera(128, [512, 512]);
    row("volume", &|| FramePlan::new(fog.clone(), camera.clone()));
    let brick = Brick::whole(volume);
    row("isosurface", &|| IsosurfacePlan::new(brick.clone(), 100.0).expect("a value"));
    let numbers = data(1000, 400, around_100);
    row("pca", &|| PcaPlan::new(numbers.clone(), 10).expect("a plan"));
    let (series, design) = scans(&Synthetic { size: [24, 28, 20], ..Synthetic::default() });
    let npairs = || NpairsPlan::new(series.clone(), design.clone(), 10, 10, 1);
    row("npairs", &|| npairs().expect("a plan"));
    #[cfg(feature = "gpu")]
    on_gpu();
    #[cfg(not(feature = "gpu"))]
    super::no_gpu("release");
}

#[cfg(feature = "gpu")]
fn on_gpu() {
    use gleaner_kernels::isosurface::DeviceIsosurfacePlan;
    use gleaner_kernels::raycast::{Caster, DeviceFramePlan, DeviceScenePlan};

    let Some((gpu, is_real)) = super::gpu("release") else { return };
    let of = |kernel: &str| format!("{kernel} on {}", gpu.name());
    let (side, size) = if is_real { (512, [1920, 1080]) } else { (32, [128, 128]) };
    let volume = Arc::new(Volume::rippled(side).expect("a volume"));
    let (_, points, shading) = LOOKS[0];
    let fog = scene(&volume, &look(points, 1.0, shading));
    let camera = camera(side, size);
    row(&of("volume"), &|| {
        let caster = Caster::new(gpu.clone(), volume.voxels(), size).expect("a caster");
        let there = super::done(DeviceScenePlan::new(caster, fog.clone()).expect("room"));
        DeviceFramePlan::new(there, camera.clone(), None)
    });
    let side = if is_real { 512 } else { 128 };
    let volume = Arc::new(Volume::rippled(side).expect("a volume"));
    row(&of("isosurface"), &|| {
        let plan = DeviceIsosurfacePlan::new(gpu.clone(), volume.clone(), 100.0);
        plan.expect("a plan").expect("it is made for it")
    });
    let (rows, columns) = if is_real { (4000, 2000) } else { (200, 100) };
    let numbers = data(rows, columns, around_100);
    row(&of("pca"), &|| DevicePcaPlan::new(gpu.clone(), numbers.clone(), 10).expect("a plan"));
    let size = if is_real { [48, 56, 40] } else { [8, 8, 8] };
    let (series, design) = scans(&Synthetic { size, ..Synthetic::default() });
    row(&of("npairs"), &|| {
        NpairsPlan::on_device(gpu.clone(), series.clone(), design.clone(), 10, 10, 1)
            .expect("a plan")
    });
}

/// Prints a line: how long it takes from the wish that a plan stops until it has.
fn row<P: Plan>(kernel: &str, plan: &dyn Fn() -> Box<P>) {
    let ready = plan();
    let began = boottime();
    super::done(ready);
    let whole = Duration::from(boottime().since(began));
    let mut waits = Vec::new();
    for trial in 0..TRIALS {
        waits.extend(wait_ms(plan(), whole * (2 * trial + 1) / (2 * TRIALS)));
    }
    waits.sort_by(f64::total_cmp);
    // Some were done before they were asked.
    let Some(last) = waits.len().checked_sub(1) else { return };
    let (p50, p99) = (waits[last / 2], waits[last * 99 / 100]);
    println!("| {kernel} | {} | {p50:.2} | {p99:.2} | {:.2} |", waits.len(), waits[last]);
}

/// Milliseconds from the wish, so long after the beginning, to the end; none where all was done.
fn wait_ms<P: Plan>(plan: Box<P>, moment: Duration) -> Option<f64> {
    let preempt = Preempt::new();
    let begins = Barrier::new(2);
    thread::scope(|scope| {
        let asker = scope.spawn(|| {
            begins.wait();
            thread::sleep(moment);
            preempt.ask();
            boottime()
        });
        begins.wait();
        let outcome = run(plan, &preempt, &mut Pace::new(), boottime, &mut |_| ());
        let ended = boottime();
        let asked = asker.join().expect("it asks");
        match outcome.expect("a plan goes on") {
            Outcome::Stopped { .. } => Some(ended.since(asked).as_secs_f64() * 1e3),
            Outcome::Done(_) => None,
        }
    })
}
