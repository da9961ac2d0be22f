//! Built-in kernels with a specification as jobs: the same files as without a broker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[cfg(feature = "gpu")]
use gleaner_hooks::Standing;
use gleaner_protocol::Digest;
#[cfg(feature = "gpu")]
use gleaner_protocol::Origin;
#[cfg(feature = "gpu")]
use gleaner_protocol::api::HostStatus;
use gleaner_protocol::api::JobStatus;

use crate::cluster::{Cluster, Plan};
use crate::program::{Said, gleaner, run};

/// Writes a kernel's sample to a folder of its name.
fn sample(cluster: &Cluster, kernel: &str) -> String {
    let folder = path(cluster, kernel);
    cluster.cli(&["kernel", "sample", kernel, "--dir", &folder]).ok();
    folder
}

fn path(cluster: &Cluster, name: &str) -> String {
    cluster.folder().join(name).to_str().expect("plain").to_owned()
}

/// What is in a folder, by name.
fn content(folder: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("listed"));
    let content = |path: &Path| fs::read(path).expect("a file");
    entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), content(&entry.path())))
        .collect()
}

/// Runs a specification here and as a job of two votes per workunit; both must write the same.
fn compare(cluster: &Cluster, kernel: &str, spec: &str, workunits: u32) -> Vec<String> {
    let (here, fetched) =
        (path(cluster, &format!("{kernel}-here")), path(cluster, &format!("{kernel}-fetched")));
    fs::create_dir(&here).expect("made");
    cluster.cli(&["kernel", "run", kernel, spec, "--output", &here]).ok();
    let id = cluster.cli(&["submit", kernel, spec, "--replication", "2", "--quorum", "2"]).ok();
    let id = id.trim_end();
    cluster.cli(&["wait", id, "--timeout", "300"]).ok();
    cluster.cli(&["fetch", id, "--output", &fetched]).ok();
    let status: JobStatus = cluster.cli(&["status", id, "--format", "json"]).json();
    assert_eq!((status.decided, status.workunits), (workunits, workunits));
    assert_eq!((status.replicas.disagreed, status.replicas.failed), (0, 0), "{status:?}");
    assert!(status.replicas.reported >= u64::from(2 * workunits), "{status:?}");
    let (here, fetched) = (content(&here), content(&fetched));
    assert!(here == fetched, "{:?} and {:?}", here.keys(), fetched.keys());
    fetched.into_keys().collect()
}

#[tokio::test]
async fn a_job_writes_what_the_kernel_writes_here() {
    let cluster = Plan::new().desktops(2).start().await;
    let folder = sample(&cluster, "npairs");
    let spec = format!("{folder}/npairs.toml");
    let text = fs::read_to_string(&spec).expect("a specification");
    let little = text.replace("[1, 2, 4, 8]", "[1, 2]").replace("splits = 50", "splits = 2");
    fs::write(&spec, little).expect("written");
    let files = compare(&cluster, "npairs", &spec, 2);
    assert_eq!(files, ["map-1.nii", "map-2.nii", "npairs.csv"]);

    // From another folder, by a header that names its data.
    let folder = sample(&cluster, "volume");
    let data = path(&cluster, "data");
    fs::create_dir(&data).expect("made");
    let volume = fs::read(format!("{folder}/ripples.nrrd")).expect("a volume");
    let end = volume.windows(2).position(|pair| pair == b"\n\n").expect("a header's end") + 1;
    let mut header = volume[..end].to_vec();
    header.extend(b"data file: ripples.raw\n");
    fs::write(format!("{data}/ripples.nhdr"), header).expect("written");
    fs::write(format!("{data}/ripples.raw"), &volume[end + 1..]).expect("written");
    let spec = format!("{folder}/volume.toml");
    let text = fs::read_to_string(&spec).expect("a specification");
    let little = text.replace("[320, 240]", "[32, 24]");
    fs::write(&spec, little.replace("ripples.nrrd", "../data/ripples.nhdr")).expect("written");
    assert_eq!(compare(&cluster, "volume", &spec, 1), ["volume.png"]);
}

#[tokio::test]
async fn an_animation_is_a_workunit_per_frame_and_its_frames_are_fetched() {
    let cluster = Plan::new().desktops(2).start().await;
    let folder = sample(&cluster, "volume");
    let spec = format!("{folder}/volume.toml");
    let text = fs::read_to_string(&spec).expect("a specification");
    let text = text.replace("size = [320, 240]", "size = [24, 18]");
    let keys =
        "{ at = 0, elevation = 20 }, { at = 0.4, azimuth = 200 }, { at = 1, distance = 0.5 }";
    let animation = format!("\n[animation]\nframes = 3\npath = [{keys}]\n");
    fs::write(&spec, text + &animation).expect("written");
    let frames = compare(&cluster, "volume", &spec, 3);
    let expected: Vec<String> = (0..3).map(|frame| format!("volume-000{frame}.png")).collect();
    assert_eq!(frames, expected);
    let frames = content(&path(&cluster, "volume-fetched"));
    assert!(frames["volume-0000.png"] != frames["volume-0002.png"], "the camera moves");
}

#[tokio::test]
async fn what_is_wrong_is_refused_as_without_a_broker_before_anything_is_uploaded() {
    let cluster = Plan::new().desktops(1).start().await;
    let folder = sample(&cluster, "pca");
    let spec = format!("{folder}/pca.toml");
    let right = fs::read_to_string(&spec).expect("a specification");
    let said = |arguments: &[&str]| -> Said {
        run(gleaner(arguments.iter().copied()).env("GLEANER_BROKER", &cluster.api.url))
    };
    for (from, to, words) in [
        ("components =", "componets =", "did you mean \"components\"?"),
        ("components = 3", "components = \"x\"", "invalid type"),
        ("scores.csv", "../scores.csv", "give a plain name that ends in .csv"),
    ] {
        fs::write(&spec, right.replacen(from, to, 1)).expect("written");
        let here = said(&["kernel", "run", "pca", &spec]);
        let there = said(&["submit", "pca", &spec]);
        there.refused(2, &[words, "pca.toml"]);
        assert_eq!(there.stderr, here.stderr);
    }
    fs::write(&spec, right.replace("table.csv", "none.csv")).expect("written");
    said(&["submit", "pca", &spec]).refused(2, &["pca.toml", "none.csv", "No such file"]);
    said(&["submit", "pca", "/nowhere/pca.toml"]).refused(2, &["cannot read /nowhere/pca.toml"]);
    fs::write(&spec, &right).expect("written");
    said(&["submit", "pca", &spec, "--memory-mib", "0"]).refused(2, &["memory_mib is 0"]);
    assert!(cluster.cli(&["jobs", "--format", "json"]).ok().starts_with("[]"));
    let uploaded = Digest::of(&fs::read(format!("{folder}/table.csv")).expect("a table"));
    let asked = cluster.cli(&["submit", "job", &job(&cluster, uploaded)]);
    asked.refused(5, &[&uploaded.to_string(), "was not uploaded"]);

    // Data that does not fit is found where it is read.
    fs::write(&spec, right.replace("components = 3", "components = 9")).expect("written");
    let id = said(&["submit", "pca", &spec, "--max-replicas", "1"]).ok();
    let id = id.trim_end();
    assert_eq!(said(&["wait", id, "--timeout", "60"]).code, Some(1));
    let why = said(&["explain", &format!("{id}/0")]).ok();
    assert!(why.contains("9 components"), "{why}");
}

#[tokio::test]
async fn what_is_fetched_of_a_job_that_is_not_done_says_what_it_lacks() {
    let cluster = Plan::new().start().await;
    let folder = sample(&cluster, "npairs");
    let id = cluster.cli(&["submit", "npairs", &format!("{folder}/npairs.toml")]).ok();
    let fetched = cluster.cli(&["fetch", id.trim_end(), "--output", &path(&cluster, "fetched")]);
    let says = "0 of 4 workunits are decided; what was written lacks what is in: 0, 1, 2, 3";
    assert!(fetched.stderr.contains(says), "{}", fetched.stderr);
    fetched.ok();
}

/// Of two hosts one computes on a GPU that is only software, which `tests/run` installs.
#[cfg(feature = "gpu")]
#[tokio::test]
async fn hosts_with_a_gpu_and_without_vote_on_one_output() {
    let mut cluster = Plan::new().desktops(1).start().await;
    let file = path(&cluster, "gpu.toml");
    let wishes = "[preferences]\ngpus = \"idle\"\ngpu_name = \"llvmpipe\"\n";
    let wishes = format!("{wishes}gpu_surface_mib_min = 0\n");
    fs::write(&file, wishes).expect("written");
    cluster.add_host("with-gpu", Origin::Desktop, &["--config", &file]);
    cluster.are_connected().await;
    let hosts: Vec<HostStatus> = cluster.cli(&["hosts", "--format", "json"]).json();
    let gpus: Vec<_> = hosts.iter().filter_map(|host| host.gpu.as_ref()).collect();
    assert_eq!((hosts.len(), gpus.len()), (2, 1));
    assert!(gpus[0].name.contains("llvmpipe"), "{gpus:?}");
    let said = cluster.cli(&["hosts"]).ok();
    assert!(said.contains("llvmpipe") && said.contains("(software, "), "{said}");

    let outputs = [
        ("volume", "volume.png"),
        ("volume", "volume.exr"),
        ("isosurface", ""),
        ("pca", ""),
        ("npairs", ""),
    ];
    for (kernel, picture) in outputs {
        let spec = format!("{}/{kernel}.toml", sample(&cluster, kernel));
        let text = fs::read_to_string(&spec).expect("a specification");
        let text = text.replace("volume.png", picture).replace("[1, 2, 4, 8]", "[2]");
        fs::write(&spec, text.replace("splits = 50", "splits = 5")).expect("written");
        let submit = ["submit", kernel, &spec, "--replication", "2", "--quorum", "2"];
        let id = cluster.cli(&submit).ok();
        let id = id.trim_end();
        cluster.cli(&["wait", id, "--timeout", "300"]).ok();
        let status: JobStatus = cluster.cli(&["status", id, "--format", "json"]).json();
        assert_eq!(status.decided, 1, "{status:?}");
        assert_eq!((status.replicas.disagreed, status.replicas.failed), (0, 0), "{status:?}");
    }
    // Each was measured on both.
    let times = cluster.cli(&["kernel", "times"]).ok();
    for (kernel, _) in outputs {
        let of_kernel = || times.lines().filter(|line| line.trim_start().starts_with(kernel));
        for kind in [" cpu ", " gpu "] {
            assert!(of_kernel().any(|line| line.contains(kind)), "{kernel} {kind}: {times}");
        }
    }
    let run_dir = path(&cluster, "with-gpu/run");
    let status = ["agent", "status", "--run-dir", &run_dir];
    let said = cluster.cli(&status).ok();
    assert!(said.contains("5 replicas were computed on llvmpipe"), "{said}");
    let status: Standing = cluster.cli(&[&status[..], &["--format", "json"]].concat()).json();
    let gpu = status.gpu.expect("its owner gives one");
    assert_eq!((gpu.begun, gpu.failed, gpu.trouble), (5, 0, None));
}

/// A job whose specification has this digest.
fn job(cluster: &Cluster, spec: Digest) -> String {
    let file = path(cluster, "job.json");
    let task = format!(r#"{{"application":{{"kernel":"pca","spec":"{spec}"}}}}"#);
    let job = format!(r#"{{"task":{task},"workunits":{{"count":1}}}}"#);
    fs::write(&file, job).expect("written");
    file
}
