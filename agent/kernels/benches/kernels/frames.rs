//! Pictures on the strongest GPU: 1024³ voxels at 1920 x 1080, or, where it is only software, a few.
//!
//! For one of rays along an axis there is also the rate of its samples, beside that of rays that do
//! nothing but take samples.

use std::sync::Arc;

use gleaner_kernels::gpu::Gpu;
use gleaner_kernels::raycast::{
    Camera, Caster, DeviceFramePlan, DeviceScene, DeviceScenePlan, Projection, Scene,
};
use gleaner_kernels::volume::Volume;
use gleaner_kernels::{Outcome, Pace, Preempt, run};
use gleaner_protocol::boottime;
use rustix::time::{ClockId, clock_gettime};

use super::done;
use super::volume::{LOOKS, camera, look, scene};

/// Slightly opaque everywhere, so that rays come to the far side of a volume.
const HAZE: &[(f32, f32)] = &[(0.0, 1e-6), (255.0, 1e-5)];

/// What is measured.
struct Bench {
    gpu: Arc<Gpu>,
    volume: Arc<Volume>,
    side: usize,
    size: [usize; 2],
    runs: usize,
}

pub(super) fn bench() {
    let Some((gpu, is_real)) = super::gpu("volume") else { return };
    let (side, size, runs) = if is_real { (1024, [1920, 1080], 20) } else { (64, [256, 192], 5) };
    let volume = Arc::new(Volume::rippled(side).expect("a volume"));
    let bench = Bench { gpu, volume: volume.clone(), side, size, runs };
    println!("\nPictures on {}:\n", bench.gpu.name());
    println!(
        "| picture | ms | a second | of them the processor's own | in an animation | a second | own |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, points, shading) in LOOKS {
        bench.print(name, &scene(&volume, &look(points, 1.0, shading)), &bench.aside());
    }
    let haze = scene(&volume, &look(HAZE, 1.0, None));
    let took_s = bench.print("haze, along an axis", &haze, &bench.along());
    bench.print_limit(&haze, took_s);
    if !is_real {
        bench.print_large();
    }
}

impl Bench {
    fn aside(&self) -> Camera {
        camera(self.side, self.size)
    }

    /// From far away along the last axis; the picture is as high as the volume.
    fn along(&self) -> Camera {
        let last = (self.side - 1) as f64;
        let middle = last / 2.0;
        let view = Projection::Parallel { height: last };
        let eye = [middle, middle, -last];
        Camera::new(eye, [middle; 3], [0.0, 1.0, 0.0], view, self.size).expect("a camera")
    }

    /// A picture as large as on a real one: what is the processor's own is the same for any device.
    fn print_large(&self) {
        let (side, size) = (128, [1920, 1080]);
        let volume = Arc::new(Volume::rippled(side).expect("a volume"));
        let large = Self { gpu: self.gpu.clone(), volume, side, size, runs: 3 };
        println!();
        let (name, points, shading) = LOOKS[1];
        large.print(name, &scene(&large.volume, &look(points, 1.0, shading)), &large.aside());
    }

    fn there(&self, scene: &Arc<Scene>) -> Arc<DeviceScene> {
        let caster = Caster::new(self.gpu.clone(), self.volume.voxels(), self.size);
        let caster = caster.expect("a caster");
        done(DeviceScenePlan::new(caster, scene.clone()).expect("room"))
    }

    /// Prints a line of a picture; its median time, in seconds.
    fn print(&self, name: &str, scene: &Arc<Scene>, camera: &Camera) -> f64 {
        let there = self.there(scene);
        let (took_s, own_s) = self.median_s(|pace| {
            *pace = Pace::new();
            DeviceFramePlan::new(there.clone(), camera.clone(), None)
        });
        // As one of many, for a file of eight bits a channel.
        let (next_s, next_own_s) = self.median_s(|pace| {
            pace.ease();
            DeviceFramePlan::in_bytes(there.clone(), camera.clone())
        });
        let [width, height] = self.size;
        println!(
            "| {}³ {name}, {width} x {height} | {:.2} | {:.1} | {:.2} | {:.2} | {:.1} | {:.2} |",
            self.side,
            took_s * 1e3,
            1.0 / took_s,
            own_s * 1e3,
            next_s * 1e3,
            1.0 / next_s,
            next_own_s * 1e3,
        );
        took_s
    }

    /// Takes pictures; the medians of their times and of what the thread that asks for them computes
    /// meanwhile, in seconds.
    fn median_s(&self, mut plan: impl FnMut(&mut Pace) -> Box<DeviceFramePlan>) -> (f64, f64) {
        let mut times = Vec::new();
        let mut own = Vec::new();
        let own_ns = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let mut pace = Pace::new();
        for _ in 0..self.runs {
            let (began, own_began) = (boottime(), own_ns());
            let plan = plan(&mut pace);
            let taken = run(plan, &Preempt::new(), &mut pace, boottime, &mut |_| ());
            times.push(boottime().since(began).as_secs_f64());
            own.push((own_ns() - own_began) as f64 / 1e9);
            assert!(matches!(taken.expect("a picture"), Outcome::Done(_)), "nobody asked");
        }
        let [times, own] = [times, own].map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[self.runs / 2]
        });
        (times, own)
    }

    fn print_limit(&self, haze: &Arc<Scene>, took_s: f64) {
        let rows = self.size[1];
        // A ray for each pixel that shows the volume, which is as high as the picture.
        let samples = (rows * rows * (self.side - 1)) as f64;
        let rate = samples / took_s;
        match self.there(haze).samples_per_second(&boottime).expect("a device") {
            Some(limit) => println!(
                "\nAlong an axis: {:.2} billion samples a second, {:.0} % of the {:.2} billion of rays \
                 that do nothing else.",
                rate / 1e9,
                100.0 * rate / limit,
                limit / 1e9
            ),
            None => println!("\nThe volume is too small to tell how fast samples are taken."),
        }
    }
}
