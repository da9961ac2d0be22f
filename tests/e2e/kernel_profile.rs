//! `gleaner kernel profile`: kernels are measured, and a cluster of such hosts is simulated.

use std::fs;
use std::path::Path;

use gleaner_calm::Turn;
use gleaner_protocol::Origin;

use crate::cluster::{Cluster, Plan};
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

#[tokio::test]
async fn what_jobs_took_is_a_profile_of_the_kinds_of_their_hosts() {
    let mut cluster = Plan::new().start().await;
    for kind in ["fat", "light", "gpu"] {
        cluster.add_host(kind, Origin::Desktop, &["--kind", kind]);
    }
    cluster.are_connected().await;
    let hosts = cluster.cli(&["hosts"]).ok();
    assert!(["fat", "light", "gpu"].iter().all(|kind| hosts.contains(kind)), "{hosts}");
    let none = cluster.cli(&["kernel", "times"]);
    assert!(none.stderr.contains("nothing of that was measured yet"), "{}", none.stderr);
    none.ok();

    let folder = cluster.folder().join("samples");
    gleaner_in(cluster.folder(), "kernel sample npairs --dir samples").ok();
    let spec = folder.join("npairs.toml");
    let text = fs::read_to_string(&spec).expect("a specification");
    let little = text.replace("[1, 2, 4, 8]", "[1, 2]").replace("splits = 50", "splits = 2");
    fs::write(&spec, little).expect("written");
    let spec = spec.to_str().expect("plain");
    let id = cluster.cli(&["submit", "npairs", spec, "--replication", "3", "--quorum", "3"]).ok();
    cluster.cli(&["wait", id.trim_end(), "--timeout", "300"]).ok();
    let rows = |cluster: &Cluster| -> Vec<(String, String, usize)> {
        let rows: serde_json::Value = cluster.cli(&["kernel", "times", "--format", "json"]).json();
        let rows = rows.as_array().expect("a list").iter().map(|row| {
            assert_eq!((&row["kernel"], &row["size"]), (&"npairs".into(), &"120x13440".into()));
            let seconds = row["seconds"].as_array().expect("a list");
            let seconds: Vec<f64> = seconds.iter().filter_map(serde_json::Value::as_f64).collect();
            assert!(seconds.iter().all(|seconds| (0.001..60.0).contains(seconds)), "{row}");
            let word = |name: &str| row[name].as_str().expect("a word").to_owned();
            (word("part"), word("kind"), seconds.len())
        });
        rows.collect()
    };
    let of = |part: &str, kind: &str| (part.to_owned(), kind.to_owned(), 1);
    let expected: Vec<_> = ["1", "2"]
        .iter()
        .flat_map(|part| ["fat", "gpu", "light"].map(|kind| of(part, kind)))
        .collect();
    assert_eq!(rows(&cluster), expected);
    // It outlives the broker.
    cluster.restart_broker();
    cluster.are_connected().await;
    assert_eq!(rows(&cluster), expected);

    let file = cluster.folder().join("times.csv");
    let file = file.to_str().expect("plain");
    let written = ["kernel", "times", "npairs", "--size", "120x13440", "--output", file];
    cluster.cli(&written).ok();
    let simulate = |profile: &str| {
        let set = format!("--set profile={profile} --set components_min=1 --set components_max=2");
        let simulate = format!("simulate mixed-npairs {set} --policy mct --format json");
        gleaner_in(cluster.folder(), &simulate)
    };
    let found: serde_json::Value = simulate(file).json();
    assert!(found["policies"]["mct"]["makespan"].as_f64().is_some_and(|makespan| makespan > 0.0));
    let none = cluster.cli(&["kernel", "times", "npairs", "--kind", "other", "--output", file]);
    assert!(none.stderr.contains("times.csv: 0 measurements"), "{}", none.stderr);
    simulate(file).refused(2, &["times.csv"]);
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
