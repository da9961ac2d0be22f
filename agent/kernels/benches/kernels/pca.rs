//! Principal components of 2000 observations of 1000 numbers; on a GPU a hundred of 8000 of 4000, and
//! those of as many as a series of brain scans has, or, where it is only software, of a few.

#[cfg(feature = "gpu")]
use gleaner_kernels::pca::DevicePcaPlan;
use gleaner_kernels::pca::{Matrix, PcaPlan};

use super::{Row, done};

pub(super) const ROWS: usize = 2000;
pub(super) const COLUMNS: usize = 1000;
pub(super) const COMPONENTS: usize = 10;

/// What `number` makes, for each column, of numbers that look random, from -0.5 to 0.5.
pub(super) fn data(rows: usize, columns: usize, number: impl Fn(usize, f64) -> f64) -> Matrix {
    let mut state = 1_u64;
    let mut dice = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let numbers = (0..rows * columns).map(|at| number(at % columns, dice()));
    Matrix::new(rows, columns, numbers.collect()).expect("finite")
}

pub(super) fn around_100(_: usize, dice: f64) -> f64 {
    100.0 + dice
}

pub(super) fn bench() {
    let data = data(ROWS, COLUMNS, around_100);
    let plan = || PcaPlan::new(data.clone(), COMPONENTS).expect("a plan");
    let size = format!("{ROWS} x {COLUMNS}, {COMPONENTS} components");
    Row { kernel: "pca", size: &size }.measure(5, &|| drop(done(plan())));
}

/// On the strongest GPU, or on llvmpipe where there is none, beside all processors.
#[cfg(feature = "gpu")]
pub(super) fn bench_on_gpu() {
    let Some((gpu, is_real)) = super::gpu("pca") else { return };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sizes =
        if is_real { &[(8000, 4000, 100), (120, 107_520, 10)][..] } else { &[(400, 200, 10)] };
    for &(rows, columns, count) in sizes {
        let data = data(rows, columns, around_100);
        let size = format!("{rows} x {columns}, {count} components");
        let prepare = || data.clone();
        let row = Row { kernel: "pca", size: &size };
        let of_processors = row.measure_prepared(threads, 3, &prepare, &|data| {
            drop(done(PcaPlan::new(data, count).expect("a plan")));
        });
        let kernel = format!("pca on {}", gpu.name());
        let row = Row { kernel: &kernel, size: &size };
        let of_device = row.measure_prepared(threads, 3, &prepare, &|data| {
            drop(done(DevicePcaPlan::new(gpu.clone(), data, count).expect("a plan")));
        });
        let times = of_processors / of_device;
        println!("| {kernel}, times as fast as {threads} threads | {size} | | {times:.2} |");
    }
}
