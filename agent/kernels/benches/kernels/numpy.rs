//! Principal components of the same matrix by numpy's `eigh`, where python3 has it: once numpy's and
//! once ours by turns, on one thread.
//!
//! How far eigenvalues are from squares of singular values, by which numpy finds them without squares
//! of the data, stands beside it.

use std::fs;

use gleaner_kernels::pca::{Matrix, PcaPlan};
use rustix::time::ClockId;
use serde_json::json;
use tempfile::NamedTempFile;

use super::pca::{COLUMNS, COMPONENTS, ROWS, data};
use super::peer::Peer;
use super::{done, median, median_ms};

const SCRIPT: &str = include_str!("numpy.py");
const RUNS: usize = 9;

pub(super) fn bench() {
    println!("\nPrincipal components beside numpy's:\n");
    for mean in [0.0, 100.0] {
        let data = data(ROWS, COLUMNS, |_, dice| mean + dice);
        let file = NamedTempFile::new().expect("a file");
        let bytes: Vec<u8> =
            data.numbers().iter().flat_map(|number| number.to_le_bytes()).collect();
        fs::write(file.path(), bytes).expect("written");
        let task =
            json!({ "file": file.path(), "rows": ROWS, "columns": COLUMNS, "count": COMPONENTS });
        let Some(numpy) = Peer::start(SCRIPT, &task.to_string()) else { return };
        if mean == 0.0 {
            println!(
                "| matrix | {}, ms CPU | ours | times as fast | largest error of its eigenvalues | of ours |",
                numpy.name
            );
            println!("|---|---|---|---|---|---|");
        }
        print(mean, &data, numpy);
    }
}

fn print(mean: f64, data: &Matrix, mut numpy: Peer) {
    let plan = || PcaPlan::new(data.clone(), COMPONENTS).expect("a plan");
    let ours_ms = || median_ms(1, ClockId::ThreadCPUTime, &plan, &|plan| drop(done(plan)));
    let times: Vec<(f64, f64)> = (0..RUNS).map(|_| (numpy.turn_ms(), ours_ms())).collect();
    let theirs = median(times.iter().map(|(theirs, _)| *theirs).collect());
    let ours = median(times.iter().map(|(_, ours)| *ours).collect());
    let said = numpy.end();
    let numbers = |line: &str| -> Vec<f64> {
        line.split(' ').map(|number| number.parse().expect("a number")).collect()
    };
    let [by_numpy, sure] = [&said[0], &said[1]].map(|line| numbers(line));
    println!(
        "| {ROWS} x {COLUMNS}, mean {mean}, {COMPONENTS} components | {theirs:.1} | {ours:.1} | {:.2} | {:.1e} | {:.1e} |",
        theirs / ours,
        largest_error(&by_numpy, &sure),
        largest_error(&done(plan()).eigenvalues, &sure),
    );
}

/// The largest relative error.
fn largest_error(found: &[f64], sure: &[f64]) -> f64 {
    assert_eq!(found.len(), sure.len(), "as many of each");
    found.iter().zip(sure).map(|(found, sure)| (found / sure - 1.0).abs()).fold(0.0, f64::max)
}
