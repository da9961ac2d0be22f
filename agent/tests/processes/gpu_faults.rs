//! A GPU that goes wrong in the middle of a kernel: llvmpipe, which `tests/run` installs, behind a
//! driver that hands everything on to it for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_kernels::application::Application;
use gleaner_protocol::KernelName;
use gleaner_protocol::control::Report;
use gleaner_protocol::job::{ApplicationTask, Comparison, Task};
use tempfile::TempDir;

use crate::Story;
use crate::agent::{AgentProcess, Folders, block_on};
use crate::broker::{Broker, output};
use crate::gpus::{Note, counts, drivers_folder, giving, software, standing};
use crate::kernels::task_by;

pub(crate) const STORIES: &[Story] = &[
    ("what_a_gpu_is_lost_under_begins_again_on_the_processor", is_lost),
    ("what_a_gpu_has_no_memory_left_for_begins_again_on_the_processor", has_no_memory),
    ("what_a_gpu_hangs_under_begins_again_on_the_processor", hangs),
];

/// Kernels, and the dispatches of each after which its GPU goes wrong. There is more to come then,
/// and the first two of `volume` take no samples.
const KERNELS: [(Application, u32); 4] = [
    (Application::Volume, 4),
    (Application::Isosurface, 5),
    (Application::Pca, 2),
    (Application::Npairs, 3),
];

/// The driver, and what it reads as soon as it has gone wrong.
pub(crate) struct Driver {
    pub(crate) description: PathBuf,
    pub(crate) note: Note,
    _folder: TempDir,
}

impl Driver {
    pub(crate) fn new(fault: &str, after: u32) -> Self {
        let folder = drivers_folder();
        let note = Note::new(folder.path().join("fault"));
        let text = fs::read_to_string(software()).expect("a description");
        let description: serde_json::Value = serde_json::from_str(&text).expect("one of a driver");
        let driver = description["ICD"]["library_path"].as_str().expect("a path");
        let library = folder.path().join("faulty.so");
        compile(driver, fault, after, &note.path, &library);
        let description = folder.path().join("faulty.json");
        let text = text.replace(driver, library.to_str().expect("plain"));
        fs::write(&description, text).expect("written");
        Self { description, note, _folder: folder }
    }
}

fn compile(driver: &str, fault: &str, after: u32, note: &Path, library: &Path) {
    let source = library.with_extension("c");
    fs::write(&source, include_str!("gpu_faults/driver.c")).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror"]);
    compiler.arg(format!("-DDRIVER={driver:?}")).arg(format!("-DNOTE={note:?}"));
    compiler.arg(format!("-DFAULT={fault}")).arg(format!("-DAFTER={after}"));
    compiler.arg("-o").args([library, &source]).arg("-ldl");
    assert!(compiler.status().expect("gcc, which tests/run installs").success());
}

/// A small task of a kernel, of several dispatches.
fn task(broker: &Broker, folders: &Folders, kernel: Application, comparison: Comparison) -> Task {
    let spec = kernel.example().replace("[320, 240]", "[48, 36]");
    let spec = spec.replace("[1, 2, 4, 8]", "[2]").replace("splits = 50", "splits = 4");
    Task::Application(ApplicationTask { comparison, ..task_by(broker, folders, kernel, &spec) })
}

/// Names and digests of what came of a task.
fn files_of(report: &Report) -> Vec<(String, String)> {
    let files = output(report).files().iter();
    files.map(|file| (file.name.clone(), format!("{:?}", file.content))).collect()
}

/// Has each kernel computed on a GPU that goes wrong in the middle of it.
fn begins_again(fault: &str, says: &str) {
    block_on(async {
        for (kernel, after) in KERNELS {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let driver = Driver::new(fault, after);
            let environment = [("VK_DRIVER_FILES", driver.description.as_path())];
            let mut config = giving(&folders, &broker, 1);
            config.kernels = vec![KernelName::new(kernel.name()).expect("a plain name")];
            let _agent = AgentProcess::start_with(&config, &folders, &environment);
            let (mut session, hello) = broker.welcome().await;
            assert!(hello.host.capabilities.gpu.is_some_and(|gpu| gpu.name.contains("llvmpipe")));
            assert!(!driver.note.was_read(), "{kernel:?}: it goes wrong before it computes");
            let tolerant = task(&broker, &folders, kernel, Comparison::Tolerance);
            let found = files_of(&session.perform(tolerant, None).await);
            assert!(driver.note.was_read(), "{kernel:?}: nothing went wrong");
            assert_eq!(counts(&folders), (1, 1), "{kernel:?}");
            let trouble = standing(&folders).and_then(|gpu| gpu.trouble).expect("it failed");
            assert!(
                trouble.contains("llvmpipe") && trouble.contains(says),
                "{kernel:?}: {trouble}"
            );
            assert!(trouble.contains("compute on the processor"), "{kernel:?}: {trouble}");
            // To the bit, which nothing but a surface is that comes from a GPU.
            let exact = task(&broker, &folders, kernel, Comparison::Exact);
            assert_eq!(found, files_of(&session.perform(exact, None).await), "{kernel:?}");
        }
    });
}

fn is_lost() {
    begins_again("IS_LOST", "was lost");
}

fn has_no_memory() {
    begins_again("HAS_NO_MEMORY", "has no memory left for");
}

fn hangs() {
    begins_again("HANGS", "has not done a short piece of work in 60 s: restart its driver");
}
