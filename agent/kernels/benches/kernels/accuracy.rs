//! How near principal components on a device are to those of the processor.

use gleaner_kernels::gpu::Gpu;
use gleaner_kernels::pca::{DevicePcaPlan, Matrix, Pca, PcaPlan};

use super::done;
use super::pca::data;

const COMPONENTS: usize = 10;
const SIZES: [(usize, usize, f64); 4] =
    [(400, 200, 0.0), (400, 200, 100.0), (200, 400, 100.0), (400, 200, -1e5)];

/// Prints a line for each size, from llvmpipe: the sums of every device are the same.
pub(super) fn print() {
    let gpu = match Gpu::open(Some("llvmpipe")) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("how near a GPU is: not measured: {error}");
            return;
        }
    };
    println!("| size, mean | eigenvalues | scores | components |\n|---|---|---|---|");
    for (rows, columns, mean) in SIZES {
        let spread = |column: usize, dice: f64| mean + dice * (1.0 + column as f64);
        let data = data(rows, columns, spread);
        let ours = done(PcaPlan::new(data.clone(), COMPONENTS).expect("a plan"));
        let theirs = done(DevicePcaPlan::new(gpu.clone(), data, COMPONENTS).expect("a plan"));
        is_finite(&theirs);
        println!(
            "| {rows} x {columns}, {mean} | {:.1e} | {:.1e} | {:.1e} |",
            of_eigenvalues(&ours, &theirs),
            of_columns(&ours.scores, &theirs.scores),
            of_columns(&ours.components, &theirs.components),
        );
    }
}

/// A number that is none would differ from nothing.
fn is_finite(pca: &Pca) {
    let parts = [&pca.scores, &pca.components];
    let numbers = parts.into_iter().flat_map(|part| (0..part.rows()).flat_map(|row| part.row(row)));
    let mut numbers = numbers.chain(&pca.eigenvalues);
    assert!(numbers.all(|number| number.is_finite()), "a number that is none");
}

fn of_eigenvalues(ours: &Pca, theirs: &Pca) -> f64 {
    let pairs = ours.eigenvalues.iter().zip(&theirs.eigenvalues);
    pairs.fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / ours.eigenvalues[0]
}

/// The largest difference of a column, as a share of its largest number, of all columns.
fn of_columns(ours: &Matrix, theirs: &Matrix) -> f64 {
    let of_column = |column: usize| {
        let pairs = (0..ours.rows()).map(|row| (ours.row(row)[column], theirs.row(row)[column]));
        let largest = pairs.clone().fold(0.0_f64, |most, (a, _)| most.max(a.abs()));
        pairs.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) / largest
    };
    (0..ours.columns()).map(of_column).fold(0.0, f64::max)
}
