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
    assert_eq!(sizes(&printed), ["size", "120x13440", "120x13440", "120x13440", "120x13440"]);
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
    // The same with half of the scans is another study.
    fewer_scans(folder.path());
    let options = "kernel profile npairs samples/fewer.toml --kind gpu --output times.csv";
    gleaner_in(folder.path(), options).ok();
    let says =
        "times.csv:19: npairs of 60x13440, and of 120x13440 in line 2: a study is of one size";
    simulate(8).refused(2, &[says, "leave the lines of the other out"]);
}

/// Writes a specification of the first half of the sample's scans.
fn fewer_scans(folder: &Path) {
    let folder = folder.join("samples");
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("it was written");
    let mut scans = fs::read(folder.join("scans.nii")).expect("it was written");
    // Behind its header one scan comes after the other; their number is the fourth of its sides.
    let (header, number) = (352, 48);
    scans.truncate(header + (scans.len() - header) / 2);
    scans[number..number + 2].copy_from_slice(&60_u16.to_le_bytes());
    let design: String = text("design.csv").split_inclusive('\n').take(61).collect();
    let mut spec = text("npairs.toml");
    for (from, to) in [
        ("\"scans.nii\"", "\"fewer.nii\""),
        ("\"design.csv\"", "\"fewer.csv\""),
        ("[1, 2, 4, 8]", "[2]"),
    ] {
        assert!(spec.contains(from), "{spec}");
        spec = spec.replace(from, to);
    }
    for (name, bytes) in [
        ("fewer.nii", &scans[..]),
        ("fewer.csv", design.as_bytes()),
        ("fewer.toml", spec.as_bytes()),
    ] {
        fs::write(folder.join(name), bytes).expect("written");
    }
}

#[test]
fn each_kernel_says_the_size_of_its_data() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    for (kernel, size) in
        [("volume", "64x64x64@320x240"), ("isosurface", "64x64x64"), ("pca", "200x6")]
    {
        gleaner_in(folder.path(), &format!("kernel sample {kernel} --dir samples")).ok();
        let profile = format!("kernel profile {kernel} samples/{kernel}.toml --kind fat");
        let printed = gleaner_in(folder.path(), &profile).ok();
        assert_eq!(sizes(&printed), ["size", size], "{printed}");
    }
}

/// The third words of lines.
fn sizes(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split(',').nth(2)).collect()
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
