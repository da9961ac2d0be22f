//! The GPU that this host gives.
//!
//! Drivers hang and crash. So an agent opens none itself: when it starts it has its own executable
//! do that once, in a process that it ends if that takes too long, and believes what this one says.
//! Later each runner that may use the GPU opens it for one replica, and another process tells who
//! else does ([`watch`]).

#[cfg(feature = "gpu")]
mod nvml;
mod watch;
mod watcher;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Stdio, exit};
use std::time::Duration;

use gleaner_protocol::GpuInfo;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::limits::{GPU_ANSWER_BYTES_MAX, GPU_LOOK_MS_MAX};
use crate::owner::wishes::{Gpus, Preferences};

pub(crate) use watch::{GpuVerdict, GpuWatch};
pub(crate) use watcher::watch_if_asked;

/// The argument that makes an executable look for a GPU; a part of its name may follow.
const LOOK_ARGUMENT: &str = "__gpu";

/// What the Vulkan loader is told by: an owner who sets these for the agent means what it starts.
const LOADER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// What else drivers are told: to leave nothing on the owner's disk, and the owner's screen alone.
const DRIVER_VARIABLES: [(&str, &str); 3] = [
    ("MESA_SHADER_CACHE_DISABLE", "true"),
    ("__GL_SHADER_DISK_CACHE", "0"),
    ("NODEVICE_SELECT", "1"),
];

/// What the process that looked for a GPU says.
type Answer = Result<GpuInfo, String>;

/// The variables of a process that may open a GPU.
pub(crate) fn driver_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    let of_loader =
        LOADER_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    of_loader.chain(DRIVER_VARIABLES.map(|(name, value)| (name, value.into())))
}

/// The GPU that `program`, this executable, opens by the owner's wishes; none where the owner gives
/// none, or why there is none.
pub(crate) async fn look(program: &Path, wishes: &Preferences) -> Result<Option<GpuInfo>, String> {
    if wishes.gpus == Gpus::Never {
        return Ok(None);
    }
    find_gpu(program, wishes.gpu_name.as_deref()).await.map(Some)
}

/// The GPU whose name has this in it, or the strongest kind that there is, as `program` finds it: an
/// executable that calls [`run_as_runner_if_asked`](crate::run_as_runner_if_asked).
///
/// # Errors
/// There is none that can be used, in words.
pub async fn find_gpu(program: &Path, name: Option<&str>) -> Result<GpuInfo, String> {
    if !cfg!(feature = "gpu") {
        return Err("this program was built without GPUs: build it with `cargo build --release \
                    --features gpu`, or leave preferences.gpus at \"never\""
            .to_owned());
    }
    ask(program, name, Duration::from_millis(GPU_LOOK_MS_MAX)).await
}

async fn ask(program: &Path, name: Option<&str>, limit: Duration) -> Answer {
    let cannot = |error: std::io::Error| format!("cannot look for a GPU: {error}");
    let mut child = Command::new(program)
        .arg(LOOK_ARGUMENT)
        .args(name)
        .env_clear()
        .envs(driver_environment())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot)?;
    let stdout = child.stdout.take().expect("it is piped");
    let mut said = Vec::new();
    let heard = async {
        stdout.take(GPU_ANSWER_BYTES_MAX).read_to_end(&mut said).await?;
        child.wait().await
    };
    // One that is given up is killed, and not waited for: a driver may keep it from dying.
    let status = timeout(limit, heard).await.map_err(|_| {
        format!("its driver has not opened the GPU in {} s, and is left alone", limit.as_secs())
    })?;
    let status = status.map_err(cannot)?;
    match serde_json::from_slice::<Answer>(&said) {
        Ok(answer) => answer.map(GpuInfo::made_plain),
        Err(_) => Err(format!("the process that opened the GPU ended ({status}): see its driver")),
    }
}

/// Looks for a GPU if this process was started for that; returns otherwise.
pub(crate) fn look_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|argument| argument == LOOK_ARGUMENT) {
        let answer = serde_json::to_vec(&opened(arguments.next().as_deref()));
        let said = std::io::stdout().write_all(&answer.expect("our own types serialise"));
        // At once: what a driver does at an end in order is nobody's concern.
        exit(i32::from(said.is_err()))
    }
}

#[cfg(feature = "gpu")]
fn opened(name: Option<&str>) -> Answer {
    gleaner_kernels::gpu::Gpu::look(name).map_err(|error| error.to_string())
}

#[cfg(not(feature = "gpu"))]
fn opened(_: Option<&str>) -> Answer {
    Err("this program was built without GPUs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a script a program.
    pub(super) fn write_program(program: &Path, script: &str) {
        // By another process: nothing that is open to be written can be executed, and what another
        // test starts in between has a copy of all that is open here.
        let mut writer = std::process::Command::new("/bin/sh");
        writer.args(["-c", "printf '#!/bin/sh\n%s\n' \"$1\" >\"$0\" && chmod 700 \"$0\""]);
        assert!(writer.arg(program).arg(script).status().expect("it is there").success());
    }

    /// What is made of what a program says that is none of ours.
    async fn asked(script: &str, limit_ms: u64) -> Answer {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        write_program(&program, script);
        ask(&program, Some("a name"), Duration::from_millis(limit_ms)).await
    }

    #[tokio::test]
    async fn what_hangs_crashes_or_says_nonsense_is_no_gpu() {
        for (script, limit_ms, says) in [
            ("exec sleep 1000", 50, "has not opened the GPU in 0 s"),
            ("kill -SEGV $$", 60_000, "SIGSEGV"),
            ("echo nonsense", 60_000, "exit status: 0"),
            ("printf '{\"Err\":\"no GPU for %s %s\"}' \"$@\"", 60_000, "no GPU for __gpu a name"),
        ] {
            let error = asked(script, limit_ms).await.expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[tokio::test]
    async fn what_it_says_of_a_gpu_is_believed_and_made_plain() {
        let gpu = r#"{"name":"A\nB","driver":"d","kind":"discrete","memory_mib":7,
                       "texture_side_max":2048,"buffer_mib_max":2,"pci":"0000:01:00.0"}"#;
        let script = format!("printf %s '{{\"Ok\":{gpu}}}'");
        let found = asked(&script, 60_000).await.expect("a GPU");
        assert_eq!(found.to_string(), "AB (discrete, 7 MiB, driver d, PCI 0000:01:00.0)");
    }

    #[tokio::test]
    async fn nobody_is_asked_where_the_owner_gives_none() {
        let wishes = Preferences::default();
        assert_eq!(look(Path::new("/no/such/program"), &wishes).await, Ok(None));
        let wishes = Preferences { gpus: Gpus::Idle, ..wishes };
        let error = look(Path::new("/no/such/program"), &wishes).await.expect_err("not there");
        let says = if cfg!(feature = "gpu") { "No such file" } else { "built without GPUs" };
        assert!(error.contains(says), "{error}");
    }
}
