//! What slices cost: each kernel in slices, and in as few goes as can be, by turns.
//!
//! Of the processor, CPU time of one thread; of a device time on the wall, or, where it is only
//! software, CPU time of the whole process, which is what that computes on. A run begins as an agent's
//! does, with a slice of one unit.

use std::sync::Arc;

use gleaner_kernels::isosurface::IsosurfacePlan;
use gleaner_kernels::npairs::{NpairsPlan, Synthetic};
#[cfg(feature = "gpu")]
use gleaner_kernels::pca::DevicePcaPlan;
use gleaner_kernels::pca::PcaPlan;
use gleaner_kernels::raycast::FramePlan;
use gleaner_kernels::volume::{Brick, Volume};
use gleaner_kernels::{Outcome, Pace, Plan, Preempt, run};
use gleaner_protocol::boottime;
use rustix::time::ClockId;

use super::npairs::scans;
use super::pca::{around_100, data};
use super::volume::{LOOKS, camera, look, scene};
use super::{median, median_ms};

const RUNS: usize = 41;

pub(super) fn bench() {
    println!("\nWhat slices cost:\n");
    println!("| kernel | in slices, ms | slices | in one go | slices | cost, % |");
    println!("|---|---|---|---|---|---|");
    let of_thread = ClockId::ThreadCPUTime;
    let volume = Arc::new(Volume::rippled(128).expect("a volume"));
    let camera = camera(128, [512, 512]);
    for (name, points, shading) in LOOKS {
        let ready = scene(&volume, &look(points, 1.0, shading));
        let frame = || FramePlan::new(ready.clone(), camera.clone());
        row(&format!("volume, 128³ {name}"), of_thread, &frame);
    }
    let brick = Brick::whole(volume);
    let surface = || IsosurfacePlan::new(brick.clone(), 100.0).expect("a value");
    row("isosurface, 128³", of_thread, &surface);
    let numbers = data(2000, 1000, around_100);
    let pca = || PcaPlan::new(numbers.clone(), 10).expect("a plan");
    row("pca, 2000 x 1000", of_thread, &pca);
    let (series, design) = scans(&Synthetic { size: [48, 56, 40], ..Synthetic::default() });
    let npairs = || NpairsPlan::new(series.clone(), design.clone(), 10, 10, 1).expect("a plan");
    row("npairs, 120 x 107520", of_thread, &npairs);
    #[cfg(feature = "gpu")]
    on_gpu();
    #[cfg(not(feature = "gpu"))]
    super::no_gpu("slices");
}

#[cfg(feature = "gpu")]
fn on_gpu() {
    use gleaner_kernels::isosurface::DeviceIsosurfacePlan;
    use gleaner_kernels::raycast::{Caster, DeviceFramePlan, DeviceScenePlan};

    let Some((gpu, is_real)) = super::gpu("slices") else { return };
    let clock = if is_real { ClockId::Boottime } else { ClockId::ProcessCPUTime };
    let of = |what: &str| format!("{what}, on {}", gpu.name());
    let (side, size) = if is_real { (512, [1920, 1080]) } else { (64, [256, 192]) };
    let volume = Arc::new(Volume::rippled(side).expect("a volume"));
    let camera = camera(side, size);
    for (name, points, shading) in LOOKS {
        let ready = scene(&volume, &look(points, 1.0, shading));
        row(&of(&format!("volume, {side}³ {name}")), clock, &|| {
            let caster = Caster::new(gpu.clone(), volume.voxels(), size).expect("a caster");
            let there = super::done(DeviceScenePlan::new(caster, ready.clone()).expect("room"));
            DeviceFramePlan::new(there, camera.clone(), None)
        });
    }
    let side = if is_real { 512 } else { 256 };
    let volume = Arc::new(Volume::rippled(side).expect("a volume"));
    row(&of(&format!("isosurface, {side}³")), clock, &|| {
        let plan = DeviceIsosurfacePlan::new(gpu.clone(), volume.clone(), 100.0);
        plan.expect("a plan").expect("it is made for it")
    });
    let (rows, columns, count) = if is_real { (8000, 4000, 100) } else { (400, 200, 10) };
    let numbers = data(rows, columns, around_100);
    row(&of(&format!("pca, {rows} x {columns}")), clock, &|| {
        DevicePcaPlan::new(gpu.clone(), numbers.clone(), count).expect("a plan")
    });
    let synthetic = if is_real {
        Synthetic { size: [60, 70, 48], subjects: 30, ..Synthetic::default() }
    } else {
        Synthetic { size: [16, 14, 10], subjects: 4, ..Synthetic::default() }
    };
    let (series, design) = scans(&synthetic);
    let what = format!("npairs, {} x {}", series.rows(), series.columns());
    row(&of(&what), clock, &|| {
        NpairsPlan::on_device(gpu.clone(), series.clone(), design.clone(), 10, 10, 1)
            .expect("a plan")
    });
}

/// Prints a line.
fn row<P: Plan>(kernel: &str, clock: ClockId, plan: &dyn Fn() -> Box<P>) {
    let (mut sliced, mut whole) = (Vec::new(), Vec::new());
    let mut counts = [0; 2];
    for _ in 0..RUNS {
        let taken = |pace: &mut Pace, count: &mut usize| {
            let run = |plan| *count = run_to_its_end(plan, pace);
            timed_ms(clock, plan, run)
        };
        sliced.push(taken(&mut Pace::new(), &mut counts[0]));
        whole.push(taken(&mut Pace::whole(), &mut counts[1]));
    }
    let costs = sliced.iter().zip(&whole).map(|(sliced, whole)| 100.0 * (sliced / whole - 1.0));
    let cost = median(costs.collect());
    println!(
        "| {kernel} | {:.1} | {} | {:.1} | {} | {cost:+.1} |",
        median(sliced),
        counts[0],
        median(whole),
        counts[1],
    );
}

fn timed_ms<P>(clock: ClockId, plan: &dyn Fn() -> Box<P>, run: impl FnMut(Box<P>)) -> f64 {
    let run = std::cell::RefCell::new(run);
    median_ms(1, clock, &|| plan(), &|plan| (run.borrow_mut())(plan))
}

/// Runs a plan to its end; how many slices it took.
fn run_to_its_end<P: Plan>(plan: Box<P>, pace: &mut Pace) -> usize {
    let mut slices = 0;
    let outcome = run(plan, &Preempt::new(), pace, boottime, &mut |_| slices += 1);
    match outcome.expect("a plan goes on") {
        Outcome::Done(_) => slices,
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}
