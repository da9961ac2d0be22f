//! Datasets: bricks of a volume on several hosts, jobs where their copies are, and what happens to
//! both when a broker is killed, a copy is tampered with, or the dataset is removed.

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_protocol::Origin;
use gleaner_protocol::api::{ChunkStatus, DatasetStatus, JobState, JobStatus};

use crate::cluster::{Cluster, Plan};
use crate::marks::SHELL;

/// Voxels along each side of the volume.
const SIDES: [usize; 3] = [80, 70, 90];

/// Hosts of different owners, of which each keeps copies.
async fn cluster(hosts: usize) -> Cluster {
    let mut cluster = Plan::new().cores(1).start().await;
    for number in 1..=hosts {
        let owner = format!("owner{number}");
        let options = ["--chunk-disk-mib", "64", "--owner", &owner];
        cluster.add_host(&format!("desk{number}"), Origin::Desktop, &options);
    }
    cluster.are_connected().await;
    cluster
}

/// A volume of waves, as an NRRD file.
fn write_volume(path: &Path) {
    let [x, y, z] = SIDES;
    let mut file = format!(
        "NRRD0004\ntype: float\ndimension: 3\nsizes: {x} {y} {z}\nspacings: 0.5 1 2\nendian: little\n\
         encoding: raw\n\n"
    )
    .into_bytes();
    for at in 0..x * y * z {
        let [x, y, z] = [at % x, at / x % y, at / (x * y)].map(|side| side as f32);
        let value = (x * 0.21).sin() * (y * 0.17).cos() + (z * 0.13 + x * 0.05).sin();
        file.extend(value.to_le_bytes());
    }
    fs::write(path, file).expect("written");
}

fn path(cluster: &Cluster, name: &str) -> String {
    cluster.folder().join(name).to_str().expect("plain").to_owned()
}

fn status(cluster: &Cluster, name: &str) -> DatasetStatus {
    cluster.cli(&["dataset", "show", name, "--format", "json"]).json()
}

/// Waits until each chunk of a dataset has as many copies.
async fn until_copied(cluster: &Cluster, name: &str, copies: usize) {
    cluster
        .api
        .until("copies", async || {
            let copied = status(cluster, name).copied;
            copied.iter().take(copies).all(|chunks| *chunks == 0).then_some(())
        })
        .await;
}

fn submit(cluster: &Cluster, arguments: &[&str]) -> String {
    let id = cluster.cli(&[&["submit"], arguments].concat()).ok();
    id.trim_end().to_owned()
}

fn wait(cluster: &Cluster, id: &str) -> JobStatus {
    cluster.cli(&["wait", id, "--timeout", "120"]).ok();
    cluster.cli(&["status", id, "--format", "json"]).json()
}

/// The corners of all triangles of a plain PLY file, in order.
fn triangles(file: &str) -> Vec<[[u32; 3]; 3]> {
    let bytes = fs::read(file).expect("a mesh");
    let end = b"end_header\n";
    let at = bytes.windows(end.len()).position(|part| part == end).expect("a header") + end.len();
    let header = String::from_utf8_lossy(&bytes[..at]);
    let count = |element: &str| -> usize {
        let line = header.lines().find_map(|line| line.strip_prefix(element)).expect("there");
        line.parse().expect("a number")
    };
    let (vertices, faces) = (count("element vertex "), count("element face "));
    let body = &bytes[at..];
    assert_eq!(body.len(), vertices * 24 + faces * 13, "six numbers of a vertex, no more");
    let number = |at: usize| u32::from_le_bytes(*body[at..].first_chunk().expect("long enough"));
    let corner = |at: usize| {
        let vertex = 24 * number(at) as usize;
        [0, 4, 8].map(|part| number(vertex + part))
    };
    let face = |face: usize| {
        let at = vertices * 24 + face * 13;
        [1, 5, 9].map(|part| corner(at + part))
    };
    let mut all: Vec<_> = (0..faces).map(face).collect();
    all.sort_unstable();
    all
}

/// The surface of the volume, cut as a whole.
fn whole(cluster: &Cluster, value: &str) -> Vec<[[u32; 3]; 3]> {
    let spec = format!("volume = \"wave.nrrd\"\nvalue = {value}\nmesh = \"whole.ply\"\n");
    fs::write(path(cluster, "whole.toml"), spec).expect("written");
    let (spec, folder) = (path(cluster, "whole.toml"), path(cluster, "whole"));
    fs::create_dir_all(&folder).expect("made");
    cluster.cli(&["kernel", "run", "isosurface", &spec, "--output", &folder]).ok();
    triangles(&format!("{folder}/whole.ply"))
}

/// The surface that a job has put together of bricks.
fn joined(cluster: &Cluster, id: &str) -> Vec<[[u32; 3]; 3]> {
    let folder = path(cluster, &format!("{id}-mesh"));
    cluster.cli(&["fetch", id, "--output", &folder]).ok();
    triangles(&format!("{folder}/surface.ply"))
}

/// The copies on a host, those that are on their way left out.
fn copies(cluster: &Cluster, host: &str) -> Vec<PathBuf> {
    let folder = cluster.folder().join(host).join("work").join("chunks");
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("listed").path());
    files.filter(|file| file.extension().is_none()).collect()
}

#[tokio::test]
async fn surfaces_of_bricks_are_that_of_the_whole_through_kills_and_tampering() {
    let mut cluster = cluster(3).await;
    let volume = path(&cluster, "wave.nrrd");
    write_volume(Path::new(&volume));
    let added = ["dataset", "add", &volume, "--name", "wave", "--chunk-mib", "1"];
    cluster.cli(&[&added[..], &["--format", "json"]].concat()).ok();
    let of = status(&cluster, "wave");
    assert_eq!((of.kind.as_str(), of.chunks, of.copies), ("bricks", 8, 2));
    cluster.cli(&added).refused(2, &["anonymous has a dataset wave already"]);
    until_copied(&cluster, "wave", 2).await;
    let chunks: Vec<ChunkStatus> =
        cluster.cli(&["dataset", "show", "wave", "--chunks", "--format", "json"]).json();
    assert_eq!(chunks.len(), 9, "and a coarse volume");
    assert!(chunks.iter().all(|chunk| chunk.bounds.is_some() && chunk.hosts.len() >= 2));

    let surface = ["isosurface", "--dataset", "wave", "--value", "0.4"];
    let first = submit(&cluster, &surface);
    let script = "wc -c < \"$1\"";
    let command = ["command", "--dataset", "wave", "--", SHELL, "-c", script, "x", "{chunk}"];
    let second = submit(&cluster, &command);
    cluster.restart_broker();
    for id in [&first, &second] {
        let status = wait(&cluster, id);
        assert_eq!((status.state, status.decided), (JobState::Completed, 8), "{status:?}");
        assert_eq!(status.lane.to_string(), "dataset");
    }
    let bytes: u64 = chunks[..8].iter().map(|chunk| chunk.bytes).sum();
    assert_eq!(cluster.cli(&["fetch", &second, "--sum"]).ok().trim(), bytes.to_string());
    let lines = cluster.cli(&["fetch", &second, "--follow", "--in-order"]).ok();
    let told = |chunk: &ChunkStatus| format!("{} stdout: {}\n", chunk.index, chunk.bytes);
    assert_eq!(lines, chunks[..8].iter().map(told).collect::<String>());
    let expected = whole(&cluster, "0.4");
    assert!(expected.len() > 10_000, "{} triangles", expected.len());
    assert!(joined(&cluster, &first) == expected, "each triangle once, and nothing else");
    // The hosts have them still, and say so to the broker that knows nothing of that any more.
    until_copied(&cluster, "wave", 2).await;

    for host in ["desk1", "desk2", "desk3"] {
        for copy in copies(&cluster, host) {
            let mut bytes = fs::read(&copy).expect("read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&copy, bytes).expect("written");
        }
    }
    let third = submit(&cluster, &surface);
    assert_eq!(wait(&cluster, &third).state, JobState::Completed);
    assert!(joined(&cluster, &third) == expected, "what is damaged was fetched anew");

    cluster.cli(&["dataset", "remove", "wave"]).ok();
    cluster.cli(&["dataset", "show", "wave"]).refused(4, &["no dataset wave"]);
    cluster.cli(&["dataset", "remove", "wave"]).refused(4, &["no dataset wave"]);
    cluster
        .api
        .until("no copies", async || {
            let left = ["desk1", "desk2", "desk3"].map(|host| copies(&cluster, host).len());
            (left == [0; 3]).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_job_keeps_the_dataset_that_is_removed_until_it_has_ended() {
    let cluster = cluster(1).await;
    let file = path(&cluster, "data.bin");
    fs::write(&file, (0..3_000_000_u32).map(|at| at as u8).collect::<Vec<_>>()).expect("written");
    cluster.cli(&["dataset", "add", &file, "--name", "data", "--chunk-mib", "1"]).ok();
    assert_eq!(status(&cluster, "data").chunks, 3);
    until_copied(&cluster, "data", 1).await;
    let go = path(&cluster, "go");
    let script = "until test -e \"$2\"; do sleep 0.05; done; wc -c < \"$1\"";
    let command = ["command", "--dataset", "data", "--", SHELL, "-c", script, "x", "{chunk}", &go];
    let id = submit(&cluster, &command);
    cluster
        .api
        .until("a replica runs", async || {
            let status: JobStatus = cluster.cli(&["status", &id, "--format", "json"]).json();
            (status.pending > 0).then_some(())
        })
        .await;
    cluster.cli(&["dataset", "remove", "data"]).ok();
    // Its name is free, and nobody begins to read it any more.
    cluster.cli(&[&["submit"], &command[..]].concat()).refused(4, &["no dataset data"]);
    fs::write(&go, "").expect("written");
    assert_eq!(wait(&cluster, &id).decided, 3);
    assert_eq!(cluster.cli(&["fetch", &id, "--sum"]).ok().trim(), "3000000");
}

#[tokio::test]
async fn what_is_no_dataset_is_refused_with_what_is_wrong() {
    let cluster = cluster(1).await;
    let volume = path(&cluster, "wave.nrrd");
    write_volume(Path::new(&volume));
    let text = fs::read(&volume).expect("read");
    fs::write(&volume, &text[..text.len() - 1]).expect("written");
    let add = |file: &str, more: &[&str]| {
        let arguments = ["dataset", "add", file, "--name", "x"];
        cluster.cli(&[&arguments[..], more].concat())
    };
    add(&volume, &[]).refused(2, &["wave.nrrd", "it ends after"]);
    add(&path(&cluster, "none"), &[]).refused(2, &["none", "No such file"]);
    add(&volume, &["--copies", "0"]).refused(2, &["--copies"]);
    add(&volume, &["--chunk-mib", "65"]).refused(2, &["--chunk-mib"]);
    fs::write(path(&cluster, "a.txt"), "a").expect("written");
    let plain = path(&cluster, "a.txt");
    cluster.cli(&["dataset", "add", &plain, &volume, "--name", "files"]).ok();
    let of = status(&cluster, "files");
    assert_eq!((of.kind.as_str(), of.chunks), ("files", 2));
    let surface = ["submit", "isosurface", "--dataset", "files", "--value", "1"];
    cluster.cli(&surface).refused(2, &["files", "bricks"]);
    let none = ["submit", "command", "--dataset", "gone", "--", SHELL];
    cluster.cli(&none).refused(4, &["no dataset gone"]);
    // Files go by their names.
    let script = "cat \"$1\" | wc -c";
    let command = ["command", "--dataset", "files", "--", SHELL, "-c", script, "x", "{chunk}"];
    let id = submit(&cluster, &command);
    assert_eq!(wait(&cluster, &id).decided, 2);
    let all: u64 = of.bytes;
    assert_eq!(cluster.cli(&["fetch", &id, "--sum"]).ok().trim(), all.to_string());
}
