//! A GPU that others use too: llvmpipe, which `tests/run` installs, as if it were a card on a PCI bus
//! that NVIDIA's NVML tells of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gleaner_hooks::{GpuStanding, SocketAnswer, SocketRequest};
use gleaner_protocol::Origin;
use gleaner_protocol::api::JobStatus;

use crate::cluster::{Cluster, Plan};
use crate::patience::eventually;
use crate::program::{gleaner, run};

/// Where the card says that it is at first.
const ADDRESS: &str = "0000:0b:00.0";

/// The host that has it.
const HOST: &str = "workstation";

/// The card, and what tells of it.
struct Card {
    folder: tempfile::TempDir,
}

impl Card {
    fn new() -> Self {
        let card = Self { folder: tempfile::tempdir().expect("a folder") };
        card.tells(&["free 6000"]);
        card.has_free(6_000);
        card.is_on_bus(0x0b);
        let description = software();
        let text = fs::read_to_string(&description).expect("a description");
        let description: serde_json::Value = serde_json::from_str(&text).expect("one of a driver");
        let driver = description["ICD"]["library_path"].as_str().expect("a path");
        let (bus, free) = (card.text("bus"), card.text("free"));
        let definitions = [("DRIVER", driver), ("BUS", &bus), ("FREE", &free)];
        compile(include_str!("gpus/card.c"), &definitions, &card.path("card.so"));
        let text = text.replace(driver, card.text("card.so").as_str());
        fs::write(card.path("card.json"), text).expect("written");
        let answers = card.text("answers");
        compile(include_str!("gpus/nvml.c"), &[("ANSWERS", &answers)], &card.path("nvml.so"));
        card
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain").to_owned()
    }

    /// What NVML tells of it from now on.
    fn tells(&self, lines: &[&str]) {
        self.replace("answers", &lines.join("\n"));
    }

    /// What its driver says is free of its memory, from now on.
    fn has_free(&self, mib: u64) {
        self.replace("free", &mib.to_string());
    }

    /// Where its driver says that it is, from now on.
    fn is_on_bus(&self, bus: u8) {
        self.replace("bus", &bus.to_string());
    }

    /// At once, so that nobody reads half of it.
    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("next"), text).expect("written");
        fs::rename(self.path("next"), self.path(name)).expect("renamed");
    }

    /// A host whose owner gives it while it is idle, for small surfaces too; `library` tells of it.
    async fn host(&self, library: &str) -> Cluster {
        let plan = Plan::new().agent_env("VK_DRIVER_FILES", &self.text("card.json"));
        let mut cluster = plan.start().await;
        let wishes = format!(
            "[preferences]\ngpus = \"idle\"\ngpu_name = \"llvmpipe\"\ngpu_surface_mib_min = 0\n\
             nvml_library = {:?}\n",
            self.text(library)
        );
        let file = cluster.folder().join("owner.toml");
        fs::write(&file, wishes).expect("written");
        let file = file.to_str().expect("plain");
        cluster.add_host(HOST, Origin::Desktop, &["--config", file]);
        cluster.are_connected().await;
        cluster
    }
}

/// The description of llvmpipe's driver.
fn software() -> PathBuf {
    let folder = fs::read_dir("/usr/share/vulkan/icd.d").expect("Vulkan drivers: see tests/run");
    let mut files = folder.map(|file| file.expect("listed").path());
    let is_software = |file: &PathBuf| file.to_string_lossy().contains("/lvp_icd");
    files.find(is_software).expect("mesa-vulkan-drivers, which tests/run installs")
}

/// Makes a library of a text in C.
fn compile(text: &str, definitions: &[(&str, &str)], library: &Path) {
    let source = library.with_extension("c");
    fs::write(&source, text).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror"]);
    compiler.args(definitions.iter().map(|(name, value)| format!("-D{name}={value:?}")));
    compiler.arg("-o").args([library, &source]).arg("-ldl");
    assert!(compiler.status().expect("gcc, which tests/run installs").success());
}

/// Another process of this machine.
struct Other(Child);

impl Other {
    fn start() -> Self {
        let mut command = Command::new("cat");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it is there"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn standing(cluster: &Cluster) -> GpuStanding {
    match cluster[HOST].ask(&SocketRequest::Standing) {
        SocketAnswer::Standing(standing) => standing.gpu.expect("its owner gives one"),
        other => panic!("{other:?}"),
    }
}

/// Waits until the GPU stands so.
async fn until(
    cluster: &Cluster,
    what: &str,
    stands: impl Fn(&GpuStanding) -> bool,
) -> GpuStanding {
    eventually(what, async || Some(standing(cluster)).filter(&stands)).await
}

/// The process that runs what was given first.
fn runner(cluster: &Cluster) -> Option<i32> {
    let groups = cluster[HOST].run_folder().groups().expect("it reads");
    groups.first().map(|group| group.pgid)
}

fn is_held_back_by(gpu: &GpuStanding, why: &str) -> bool {
    gpu.held_back.as_ref().is_some_and(|reason| reason.contains(why))
}

/// Submits a small picture.
fn submit(cluster: &Cluster) -> String {
    submit_by(cluster, "small.toml", |text| text.replace("[320, 240]", "[48, 36]"))
}

/// Submits one that no machine finishes.
fn submit_endless(cluster: &Cluster) -> String {
    submit_by(cluster, "endless.toml", |text| {
        let text = text.replace("[320, 240]", "[4096, 4096]");
        let text = text.replace("# step = 0.5", "step = 0.002");
        let lines = text.lines().map(|line| match line.starts_with("opacity = ") {
            true => "opacity = 0.0001\n".to_owned(),
            false => format!("{line}\n"),
        });
        lines.collect()
    })
}

fn submit_by(cluster: &Cluster, name: &str, change: fn(&str) -> String) -> String {
    let folder = cluster.folder().join("volume");
    if !folder.exists() {
        let folder = folder.to_str().expect("plain");
        cluster.cli(&["kernel", "sample", "volume", "--dir", folder]).ok();
    }
    let text = fs::read_to_string(folder.join("volume.toml")).expect("a specification");
    let spec = folder.join(name);
    fs::write(&spec, change(&text)).expect("written");
    cluster.cli(&["submit", "volume", spec.to_str().expect("plain")]).ok().trim_end().to_owned()
}

/// Waits until a job's picture is there.
fn wait_for(cluster: &Cluster, job: &str) {
    cluster.cli(&["wait", job, "--timeout", "60"]).ok();
}

#[tokio::test]
async fn what_is_computed_on_a_gpu_gives_way_to_who_begins_on_it_and_begins_again_afterwards() {
    let card = Card::new();
    let cluster = card.host("nvml.so").await;
    let hosts = cluster.cli(&["hosts"]).ok();
    assert!(hosts.contains(&format!("PCI {ADDRESS}")), "{hosts}");
    let seen = "6000 of 8000 MiB of its memory are free; nobody else has it open";
    // In a container it is said that there may be others outside of it.
    let begins = |gpu: &GpuStanding| gpu.seen.as_ref().is_some_and(|told| told.starts_with(seen));
    until(&cluster, "a look at it", begins).await;

    let job = submit_endless(&cluster);
    until(&cluster, "it to begin", |gpu| gpu.begun == 1).await;
    let ours = runner(&cluster).expect("it runs");
    let other = Other::start();
    // A desktop and what is only drawn now and then are in nobody's way, nor are we.
    let (window, mine) = (other.pid(), format!("compute {ours}"));
    let drawn = [format!("graphics {window}"), format!("busy {window} 3"), mine.clone()];
    card.tells(&["free 5000", &drawn[0], &drawn[1], &drawn[2]]);
    let gpu = until(&cluster, "it to be seen", |gpu| {
        gpu.seen.as_ref().is_some_and(|seen| seen.starts_with("5000 of 8000 MiB"))
    })
    .await;
    let open = format!("cat (process {window}) has it open");
    assert!(gpu.seen.is_some_and(|seen| seen.contains(&open)));
    assert_eq!((gpu.held_back, runner(&cluster)), (None, Some(ours)));

    card.tells(&["free 5000", &format!("compute {}", other.pid()), &mine]);
    let reason = format!("cat (process {}) computes there", other.pid());
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, &reason)).await;
    let run_dir = cluster[HOST].run_dir();
    let said = cluster.cli(&["agent", "status", "--run-dir", run_dir.to_str().expect("plain")]);
    let said = said.ok();
    assert!(said.contains(&format!("nothing begins on it now: {reason}")), "{said}");
    eventually("its end", async || (runner(&cluster) != Some(ours)).then_some(())).await;
    let replicas = |job: &str| {
        let status: JobStatus = cluster.cli(&["status", job, "--format", "json"]).json();
        status.replicas
    };
    eventually("its return", async || (replicas(&job).released > 0).then_some(())).await;
    assert_eq!(replicas(&job).failed, 0);
    cluster.cli(&["cancel", &job]).ok();
    // Meanwhile processors compute.
    let beside = submit(&cluster);
    wait_for(&cluster, &beside);
    assert_eq!(standing(&cluster).begun, 1);

    drop(other);
    card.tells(&["free 6000"]);
    until(&cluster, "its calm", |gpu| is_held_back_by(gpu, "of calm are waited for")).await;
    until(&cluster, "it to be free", |gpu| gpu.held_back.is_none()).await;
    let again = submit(&cluster);
    wait_for(&cluster, &again);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed, gpu.trouble), (2, 0, None));
}

#[tokio::test]
async fn who_uses_it_outside_of_the_agents_container_keeps_it_and_a_replica_does_not() {
    let card = Card::new();
    // No process has so high a number here.
    card.tells(&["free 6000", "compute 4194305"]);
    let cluster = card.host("nvml.so").await;
    let reason = "somebody outside of this container (process 4194305) computes there";
    let gpu = until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, reason)).await;
    let hides = "nothing tells of those who are not shown here";
    assert!(gpu.seen.is_some_and(|seen| seen.contains(hides)));
    card.tells(&["free 6000"]);
    until(&cluster, "it to be free", |gpu| gpu.held_back.is_none()).await;

    // A replica may have such a number, and a second one has somebody else.
    submit_endless(&cluster);
    until(&cluster, "it to begin", |gpu| gpu.begun == 1).await;
    let ours = runner(&cluster).expect("it runs");
    card.tells(&["free 5900", "all 100", "compute 4194306"]);
    for free in ["5901", "5902", "5903"] {
        card.tells(&[&format!("free {free}"), "all 100", "compute 4194306"]);
        let gpu = until(&cluster, "it to be seen", |gpu| {
            gpu.seen.as_ref().is_some_and(|seen| seen.starts_with(free))
        })
        .await;
        assert_eq!((gpu.held_back, runner(&cluster)), (None, Some(ours)));
    }
    card.tells(&["free 5000", "all 100", "compute 4194306", "compute 4194307"]);
    let reason = "somebody outside of this container (process 4194307) computes there";
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, reason)).await;
    eventually("its end", async || (runner(&cluster) != Some(ours)).then_some(())).await;
}

#[tokio::test]
async fn a_driver_that_does_not_list_who_renders_tells_who_computes() {
    let card = Card::new();
    let other = Other::start();
    card.tells(&["free 6000", "unlisted 3", &format!("compute {}", other.pid())]);
    let cluster = card.host("nvml.so").await;
    let reason = format!("cat (process {}) computes there", other.pid());
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, &reason)).await;
    // Somebody may render, as it is busy.
    card.tells(&["free 6000", "unlisted 3", "all 60"]);
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, "60 %")).await;
    card.tells(&["free 6000", "unlisted 3", "all 0"]);
    until(&cluster, "it to be free", |gpu| gpu.held_back.is_none()).await;
}

#[tokio::test]
async fn what_others_need_of_its_memory_is_theirs_and_what_cannot_be_told_keeps_everybody_off() {
    let card = Card::new();
    card.tells(&["free 600"]);
    let cluster = card.host("nvml.so").await;
    let why = "600 MiB of its memory are free; a task takes 256 MiB, and 512 MiB are for others";
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, why)).await;
    // It is lost.
    card.tells(&["free 600", "fail 15"]);
    until(&cluster, "it to be seen", |gpu| is_held_back_by(gpu, "it cannot be told who else"))
        .await;
    let job = submit(&cluster);
    wait_for(&cluster, &job);
    assert_eq!(standing(&cluster).begun, 0);
}

#[tokio::test]
async fn a_surface_is_cut_there_and_is_the_one_that_a_processor_cuts() {
    let card = Card::new();
    let cluster = card.host("nvml.so").await;
    until(&cluster, "it to be free", |gpu| gpu.held_back.is_none()).await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    let (samples, fetched) = (path("samples"), path("fetched"));
    cluster.cli(&["kernel", "sample", "isosurface", "--dir", &samples]).ok();
    let spec = format!("{samples}/isosurface.toml");
    let job = cluster.cli(&["submit", "isosurface", &spec]).ok().trim_end().to_owned();
    wait_for(&cluster, &job);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed, gpu.trouble), (1, 0, None));
    cluster.cli(&["fetch", &job, "--output", &fetched]).ok();
    cluster.cli(&["kernel", "run", "isosurface", &spec]).ok();
    let mesh = |folder: &str| fs::read(format!("{folder}/isosurface.ply")).expect("a mesh");
    assert!(mesh(&fetched) == mesh(&samples), "it is another mesh");
}

#[test]
fn the_doctor_says_why_no_gpu_could_be_given() {
    let mut doctor = gleaner(["doctor", "--format", "json"]);
    let found: serde_json::Value = run(doctor.env("VK_DRIVER_FILES", software())).json();
    assert!(found["gpu"].is_null(), "{found}");
    let why = found["no_gpu"].as_str().expect("what is only software is not meant");
    assert!(why.contains("only software, which has to be named (llvmpipe"), "{why}");
}

#[tokio::test]
async fn where_nothing_tells_who_uses_it_bookings_decide_and_what_its_driver_has_free() {
    let card = Card::new();
    // Its driver is not loaded.
    card.tells(&["init 9"]);
    let cluster = card.host("nvml.so").await;
    until(&cluster, "it to be noticed", |gpu| {
        gpu.seen.as_ref().is_some_and(|seen| seen.contains("NVML is not here"))
    })
    .await;
    let job = submit(&cluster);
    wait_for(&cluster, &job);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed, gpu.held_back), (1, 0, None));
    card.has_free(700);
    let job = submit(&cluster);
    wait_for(&cluster, &job);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed), (1, 1));
    let trouble = gpu.trouble.expect("it had no room");
    let says = "700 MiB of memory free, of which 512 MiB are kept for others";
    assert!(trouble.contains(says), "{trouble}");
}

#[tokio::test]
async fn a_gpu_somewhere_else_is_another_one_that_nobody_gives() {
    let card = Card::new();
    let cluster = card.host("nvml.so").await;
    until(&cluster, "it to be free", |gpu| gpu.held_back.is_none()).await;
    card.is_on_bus(0x0c);
    let job = submit(&cluster);
    wait_for(&cluster, &job);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed), (0, 1));
    let trouble = gpu.trouble.expect("it is not there");
    assert!(trouble.contains(&format!("no GPU is at {ADDRESS}")), "{trouble}");
}

#[tokio::test]
async fn a_library_that_is_named_and_not_there_keeps_everybody_off() {
    let card = Card::new();
    let cluster = card.host("missing.so").await;
    until(&cluster, "it to be noticed", |gpu| {
        is_held_back_by(gpu, "missing.so, which nvml_library names, is of no use")
    })
    .await;
    let job = submit(&cluster);
    wait_for(&cluster, &job);
    let gpu = standing(&cluster);
    assert_eq!((gpu.begun, gpu.failed), (0, 0));
}
