//! `gleaner kernel profile`: kernels are measured, and a cluster of such hosts is simulated.

use std::fs;
use std::path::Path;

use gleaner_calm::Turn;

use crate::program::{Said, gleaner, run};

fn gleaner_in(folder: &Path, arguments: &str) -> Said {
    run(gleaner(arguments.split(' ')).current_dir(folder))
}

const SPEC: &str = "samples/npairs.toml";

#[test]
fn what_was_measured_is_what_a_study_is_simulated_with() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    gleaner_in(folder.path(), "kernel sample npairs --dir samples").ok();
    let printed = gleaner_in(folder.path(), &format!("kernel profile npairs {SPEC} --kind fat"));
    let printed = printed.ok();
    let parts: Vec<&str> = printed.lines().filter_map(|line| line.split(',').nth(1)).collect();
    assert_eq!(parts, ["part", "1", "2", "4", "8"], "{printed}");
    for (kind, times) in [("fat", 1), ("light", 2), ("gpu", 1)] {
        let options = format!("--kind {kind} --times {times} --output times.csv");
        gleaner_in(folder.path(), &format!("kernel profile npairs {SPEC} {options}")).ok();
    }
    let file = fs::read_to_string(folder.path().join("times.csv")).expect("it was written");
    assert_eq!(file.lines().count(), 1 + 4 * (1 + 2 + 1), "{file}");
    // What a profile has of another kernel is none of this study.
    gleaner_in(folder.path(), "kernel sample pca --dir samples").ok();
    let of_pca = "kernel profile pca samples/pca.toml --kind fat --output times.csv";
    gleaner_in(folder.path(), of_pca).ok();
    let simulate = |most: u32| {
        let set = format!("--set profile=times.csv --set components_max={most} --policy mct");
        gleaner_in(folder.path(), &format!("simulate mixed-npairs {set} --format json"))
    };
    let found: serde_json::Value = simulate(8).json();
    let makespan = found["policies"]["mct"]["makespan"].as_f64().expect("a number");
    let seconds = file.lines().skip(1).filter_map(|line| line.rsplit(',').next()?.parse().ok());
    let seconds: Vec<f64> = seconds.collect();
    let sum: f64 = seconds.iter().sum();
    assert!(makespan > 0.0 && makespan < sum, "{makespan} of {sum}");
    simulate(9).refused(2, &["times.csv: of fat nodes it has 1 to 8 components, not 9"]);
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    gleaner_in(folder.path(), "kernel sample npairs --dir samples").ok();
    let spec = fs::read(folder.path().join(SPEC)).expect("it is there");
    let options = format!("kernel profile npairs {SPEC} --kind fat --output {SPEC}");
    gleaner_in(folder.path(), &options).refused(2, &["its first line is not"]);
    assert_eq!(fs::read(folder.path().join(SPEC)).expect("it is there"), spec);
}
