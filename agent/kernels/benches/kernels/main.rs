//! What the kernels take on this machine.
//!
//! A line for each kernel, size and number of threads: CPU time of the one thread, which is less
//! disturbed by what else runs, and for several threads time on the wall; each the median of
//! several runs. `--raw FOLDER` writes each picture as single-precision numbers, and one more with
//! sixteen times as many samples, to compare with those of other programs. Words name the parts
//! that are wanted: `cargo bench -p gleaner-kernels -- volume pca`. With `--features gpu` there are
//! lines for a GPU too, with its name, and `accuracy` prints how near its results are. `release` prints
//! how long kernels take to stop, and `slices` what it costs that they can. `vtk` and `numpy` measure
//! what those take for the same, where `python3` has them:
//! `python3 -m venv target/python && target/python/bin/pip install vtk numpy`, and
//! `PATH=$PWD/target/python/bin:$PATH cargo bench -p gleaner-kernels -- vtk numpy`.

#[cfg(feature = "gpu")]
mod accuracy;
#[cfg(feature = "gpu")]
mod frames;
mod npairs;
mod numpy;
mod pca;
mod peer;
mod release;
mod slices;
mod surface;
mod views;
mod volume;
mod vtk;

use std::num::NonZero;
use std::path::Path;
#[cfg(feature = "gpu")]
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[cfg(feature = "gpu")]
use gleaner_kernels::gpu::Gpu;
use gleaner_kernels::{Outcome, Pace, Plan, Preempt, Threads, run};
use gleaner_protocol::boottime;
use rustix::time::{ClockId, clock_gettime};

/// A line of what is printed.
struct Row<'a> {
    kernel: &'a str,
    size: &'a str,
}

impl Row<'_> {
    /// Measures `work` on one thread, and on as many as there are processors.
    fn measure(&self, runs: usize, work: &(dyn Fn() + Sync)) {
        self.measure_one(runs, work);
        let count = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        if count.get() > 1 {
            let threads = Threads::new(count).expect("threads");
            let taken = threads.run(|| median_ms(runs, ClockId::Boottime, &|| (), &|()| work()));
            self.print(&count.to_string(), "wall", taken);
        }
    }

    /// Measures what has no threads.
    fn measure_one(&self, runs: usize, work: &(dyn Fn() + Sync)) {
        let taken = median_ms(runs, ClockId::ThreadCPUTime, &|| (), &|()| work());
        self.print("1", "CPU", taken);
    }

    /// Measures on the wall what so many threads do, alone or with a device, with what was prepared;
    /// how long it takes, in milliseconds.
    #[cfg(feature = "gpu")]
    fn measure_prepared<T: Send>(
        &self,
        threads: usize,
        runs: usize,
        prepare: &(dyn Fn() -> T + Sync),
        work: &(dyn Fn(T) + Sync),
    ) -> f64 {
        let count = NonZero::new(threads).unwrap_or(NonZero::<usize>::MIN);
        let of_all = Threads::new(count).expect("threads");
        let taken = of_all.run(|| median_ms(runs, ClockId::Boottime, prepare, work));
        self.print(&count.to_string(), "wall", taken);
        taken
    }

    fn print(&self, threads: &str, clock: &str, taken_ms: f64) {
        println!("| {} | {} | {threads} | {taken_ms:.1} {clock} |", self.kernel, self.size);
    }
}

/// Median time of a number of runs, in milliseconds, without what they are prepared with.
fn median_ms<T>(runs: usize, clock: ClockId, prepare: &dyn Fn() -> T, work: &dyn Fn(T)) -> f64 {
    let now = || {
        let now = clock_gettime(clock);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
    };
    let times = (0..runs)
        .map(|_| {
            let prepared = prepare();
            let began = now();
            work(prepared);
            (now() - began).as_secs_f64() * 1e3
        })
        .collect();
    median(times)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The strongest GPU, or llvmpipe where there is none, and whether it is more than software.
#[cfg(feature = "gpu")]
fn gpu(kernel: &str) -> Option<(Arc<Gpu>, bool)> {
    let real = Gpu::open(None);
    let is_real = real.is_ok();
    match real.or_else(|_| Gpu::open(Some("llvmpipe"))) {
        Ok(gpu) => Some((gpu, is_real)),
        Err(error) => {
            println!("{kernel} on a GPU: not measured: {error}");
            None
        }
    }
}

/// Says what is not measured.
#[cfg(not(feature = "gpu"))]
fn no_gpu(kernel: &str) {
    println!("{kernel} on a GPU: not measured: it takes `cargo bench --features gpu`");
}

/// Runs a plan to its end.
fn done<P: Plan>(plan: Box<P>) -> P::Output {
    let outcome = run(plan, &Preempt::new(), &mut Pace::new(), boottime, &mut |_| ());
    match outcome.expect("a plan goes on") {
        Outcome::Done(output) => output,
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let raw = arguments.iter().position(|argument| argument == "--raw");
    let raw = raw.and_then(|at| arguments.get(at + 1));
    let parts = [
        "accuracy",
        "release",
        "slices",
        "vtk",
        "numpy",
        "isosurface",
        "npairs",
        "pca",
        "volume",
        "views",
    ];
    let wanted = |part: &str| {
        !arguments.iter().any(|argument| parts.contains(&argument.as_str()))
            || arguments.iter().any(|argument| argument == part)
    };
    if parts[5..].iter().any(|part| wanted(part)) {
        println!("| kernel | size | threads | ms |\n|---|---|---|---|");
    }
    if wanted("pca") {
        pca::bench();
        #[cfg(feature = "gpu")]
        pca::bench_on_gpu();
        #[cfg(not(feature = "gpu"))]
        no_gpu("pca");
    }
    if wanted("npairs") {
        npairs::bench();
        #[cfg(feature = "gpu")]
        npairs::bench_on_gpu();
        #[cfg(not(feature = "gpu"))]
        no_gpu("npairs");
    }
    if wanted("isosurface") {
        surface::bench();
        #[cfg(feature = "gpu")]
        surface::bench_on_gpu();
        #[cfg(not(feature = "gpu"))]
        no_gpu("isosurface");
    }
    if wanted("volume") {
        volume::bench(raw.map(Path::new));
        #[cfg(feature = "gpu")]
        frames::bench();
        #[cfg(not(feature = "gpu"))]
        no_gpu("volume");
    }
    if wanted("views") {
        views::bench();
        #[cfg(feature = "gpu")]
        views::bench_on_gpu();
        #[cfg(not(feature = "gpu"))]
        no_gpu("views");
    }
    if wanted("vtk") {
        vtk::bench();
    }
    if wanted("numpy") {
        numpy::bench();
    }
    if wanted("release") {
        release::bench();
    }
    if wanted("slices") {
        slices::bench();
    }
    if wanted("accuracy") {
        #[cfg(feature = "gpu")]
        accuracy::print();
        #[cfg(not(feature = "gpu"))]
        no_gpu("accuracy");
    }
}
