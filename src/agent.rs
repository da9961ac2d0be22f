//! `gleaner agent`, and what its owner tells a running one.

pub(crate) mod control;
mod page;
mod wishes;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gleaner_agent::{Config, DEFAULT_TOML, Liveness};
use gleaner_hooks::SocketRequest;
use gleaner_hooks::install::WATCH_VARIABLE;
use gleaner_protocol::Span;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::process::Watchdog;
use crate::{configuration, process};

/// Flags win over GLEANER_AGENT_… variables, those over the file.
#[derive(Debug, clap::Args, Serialize)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    #[serde(skip)]
    control: Option<control::Control>,
    /// Configuration file (TOML). Its keys are the long names of these options.
    #[arg(long, env = "GLEANER_AGENT_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Prints the commented default configuration and ends.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// This host's name, on a farm as its manager says it [default: the system's].
    #[arg(long, env = "GLEANER_AGENT_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// farm: cores are used only while the monitor says that no render wants them. desktop:
    /// a volunteer's machine [default: desktop].
    #[arg(long, env = "GLEANER_AGENT_ORIGIN", value_name = "ORIGIN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Whose machine it is; hosts of one owner share one vote.
    #[arg(long, env = "GLEANER_AGENT_OWNER", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// What hosts like it are called: those that take as long for the same work.
    #[arg(long, env = "GLEANER_AGENT_KIND", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Cores that may be used at once [default: all].
    #[arg(long, env = "GLEANER_AGENT_CORES", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<u32>,
    /// What isolates harvested work: auto, cgroup2, cgroup1 or process-groups [default: auto].
    #[arg(long, env = "GLEANER_AGENT_ISOLATION", value_name = "WAY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<String>,
    /// The broker's address [default: http://127.0.0.1:7710].
    #[arg(long, env = "GLEANER_BROKER", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<String>,
    /// The resource monitor's address; farm hosts need one.
    #[arg(long, env = "GLEANER_MONITOR", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    monitor: Option<String>,
    /// File with this host's own key, which broker and monitor are shown (`gleaner join`).
    #[arg(long, env = "GLEANER_KEY_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    /// Public key of the farm's monitor, whose openings alone are obeyed [default: those that the broker
    /// sends]. May be given often; `gleaner join` writes those that there are.
    #[arg(long, value_name = "KEY")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "monitor_keys")]
    monitor_key: Vec<String>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    /// File (.prom) that this agent's metrics are written to, for a node exporter.
    #[arg(long, env = "GLEANER_AGENT_METRICS_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_file: Option<PathBuf>,
    /// Folder that this host's hooks and agent share.
    #[arg(long, env = "GLEANER_RUN_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_dir: Option<PathBuf>,
    /// Folder for inputs, outputs and the files of running tasks.
    #[arg(long, env = "GLEANER_AGENT_WORK_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    work_dir: Option<PathBuf>,
    /// Program (absolute path) that submitters may have run here. May be given often.
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "allow_commands")]
    allow_command: Vec<PathBuf>,
    /// Built-in kernel to offer [default: gametree, volume, isosurface, pca, npairs and view]. May be
    /// given often.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "kernels")]
    kernel: Vec<String>,
    /// Most memory of one WebAssembly module, in MiB; 0 to run none [default: 1024].
    #[arg(long, env = "GLEANER_AGENT_WASM_MEMORY_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    wasm_memory_mib: Option<u32>,
    /// Most memory of one replica of a kernel with a specification, in MiB [default: 4096].
    #[arg(long, env = "GLEANER_AGENT_KERNEL_MEMORY_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_memory_mib: Option<u32>,
    /// Seconds between two samples of this host for the monitor [default: 2].
    #[arg(long, env = "GLEANER_AGENT_SAMPLE_INTERVAL_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_interval_s: Option<u64>,
    /// Seconds between two states that a module saved and that are brought to the broker, for another
    /// host to go on from [default: 60].
    #[arg(long, env = "GLEANER_AGENT_SAVE_INTERVAL_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    save_interval_s: Option<u64>,
    /// Process (by its name, such as rqd) whose children are renders, for farm managers without
    /// hooks. May be given often. Variables whose names begin with GLEANER_AGENT_WATCH_ name more, as
    /// `gleaner farm install` of such a manager sets them.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "watch_workers")]
    watch_worker: Vec<String>,
    /// For how long a job may have a task that a render drives out kept frozen, in seconds; 0 to
    /// keep none [default: 1800].
    #[arg(long, env = "GLEANER_AGENT_KEEP_S_MAX", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_s_max: Option<u64>,
    #[command(flatten)]
    #[serde(skip_serializing_if = "ChunkArgs::is_empty")]
    chunks: ChunkArgs,
    #[command(flatten)]
    #[serde(skip_serializing_if = "CommandArgs::is_empty")]
    commands: CommandArgs,
    #[command(flatten)]
    #[serde(skip_serializing_if = "PreferenceArgs::is_empty")]
    preferences: PreferenceArgs,
}

/// What is kept of datasets, as far as it may stand on a command line.
#[derive(Debug, clap::Args, Serialize)]
struct ChunkArgs {
    /// Disk space for copies of chunks of datasets, in MiB; 0 to keep none [default: a tenth of what is
    /// free on a farm host, none on a desktop].
    #[arg(long = "chunk-disk-mib", env = "GLEANER_AGENT_CHUNK_DISK_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_mib: Option<u64>,
    /// Memory for bricks that were decoded for views, of all slots together, in MiB; 0 to keep none [default:
    /// an eighth of the memory on a farm host, 256 on a desktop].
    #[arg(long = "chunk-memory-mib", env = "GLEANER_AGENT_CHUNK_MEMORY_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
    /// Address and port where other agents may call for copies of chunks, as the broker says [default: nobody
    /// calls, and this host calls those that listen].
    #[arg(long = "chunk-listen", env = "GLEANER_AGENT_CHUNK_LISTEN", value_name = "ADDR:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<SocketAddr>,
    /// Most that copies of chunks may travel a second, read and sent together, in MiB [default: 20].
    #[arg(long = "chunk-mib-per-s", env = "GLEANER_AGENT_CHUNK_MIB_PER_S", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    mib_per_s: Option<u64>,
}

impl ChunkArgs {
    fn is_empty(&self) -> bool {
        self.disk_mib.is_none()
            && self.memory_mib.is_none()
            && self.listen.is_none()
            && self.mib_per_s.is_none()
    }
}

/// What holds for commands, as far as it may stand on a command line.
#[derive(Debug, clap::Args, Serialize)]
struct CommandArgs {
    /// Where commands cannot be confined: required (none run), available (with what there is), off
    /// (nothing confines them anywhere) [default: required].
    #[arg(long, env = "GLEANER_AGENT_CONFINE", value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    confine: Option<String>,
}

impl CommandArgs {
    fn is_empty(&self) -> bool {
        self.confine.is_none()
    }
}

/// The owner's wishes that may stand on a command line; all of them may stand in a file.
#[derive(Debug, clap::Args, Serialize)]
struct PreferenceArgs {
    /// Whether to give way to whatever runs unannounced on this host [default: true].
    #[arg(long, env = "GLEANER_AGENT_GIVE_WAY", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    give_way: Option<bool>,
}

impl PreferenceArgs {
    fn is_empty(&self) -> bool {
        self.give_way.is_none()
    }
}

/// Adds the workers that `gleaner farm install` has this agent watch.
fn watch_what_is_installed(
    workers: &mut Vec<String>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) {
    for (variable, names) in variables {
        if !variable.to_string_lossy().starts_with(WATCH_VARIABLE) {
            continue;
        }
        for name in names.to_string_lossy().split(',').filter(|name| !name.is_empty()) {
            if !workers.iter().any(|known| known == name) {
                workers.push(name.to_owned());
            }
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(control) = args.control {
        return control::run(control);
    }
    if args.print_config {
        print!("{DEFAULT_TOML}");
        return Ok(ExitCode::SUCCESS);
    }
    let (mut config, origins): (Config, _) =
        configuration::load_with_origins(DEFAULT_TOML, args.config.as_deref(), &args)?;
    config.wishes = wishes::of(&config, &origins);
    watch_what_is_installed(&mut config.watch_workers, std::env::vars_os());
    process::block_on(async {
        let run_dir = config.run_dir();
        let (says_up, is_up) = oneshot::channel();
        let ready = move |liveness| {
            process::announce("ready");
            // Nobody waits for it only where the agent has ended.
            let _ = says_up.send(liveness);
        };
        // On the thread of the main loop: where that stands still, nobody tells that all is well.
        let watched = async {
            match (is_up.await, Watchdog::of_this_process()) {
                (Ok(liveness), Some(watchdog)) => {
                    watchdog.keep(move || trouble(&run_dir, &liveness)).await
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = gleaner_agent::run(config, ready, process::stopped()) => ended?,
            never = watched => match never {},
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What keeps the agent of a run folder from its work, in words.
fn trouble(run_dir: &Path, liveness: &Liveness) -> Option<String> {
    let hangs = liveness.hangs().map(|what| format!("{what} hangs"));
    let is_deaf = || !answers(run_dir, ANSWER_MAX);
    hangs.or_else(|| is_deaf().then(|| "this agent does not answer itself".into()))
}

/// Whether the agent of a run folder answers within this time.
fn answers(run_dir: &Path, patience: Span) -> bool {
    gleaner_hooks::ask(&run_dir.join("agent.sock"), &SocketRequest::Status, patience).is_ok()
}

/// Time for an answer that any hook would have given up on long before.
const ANSWER_MAX: Span = Span::from_secs(5);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use gleaner_hooks::SocketAnswer;

    use super::*;

    #[test]
    fn what_is_installed_is_watched_beside_what_is_configured() {
        let mut workers = vec!["rqd".to_owned()];
        let variables = [
            ("GLEANER_AGENT_WATCH_FLAMENCO", "flamenco-worker,rqd"),
            ("GLEANER_AGENT_WATCH_ROYAL_RENDER", "rrClient"),
            ("GLEANER_AGENT_WATCHES", "none"),
            ("GLEANER_AGENT_NAME", "render042"),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        watch_what_is_installed(&mut workers, variables.into_iter());
        assert_eq!(workers, ["rqd", "flamenco-worker", "rrClient"]);
    }

    #[test]
    fn who_takes_a_call_and_says_nothing_does_not_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let patience = Span::from_millis(200);
        assert!(!answers(folder.path(), patience), "nobody is there");
        let listener = UnixListener::bind(folder.path().join("agent.sock")).expect("bound");
        assert!(!answers(folder.path(), patience), "it takes calls, as a socket does by itself");
        let agent = std::thread::spawn(move || {
            // Nobody waits for the answer to the first question any more.
            for _ in 0..2 {
                let (stream, _) = listener.accept().expect("a call");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("a question");
                assert!(line.contains("status"), "{line}");
                let refusal = SocketAnswer::Error { reason: "too busy to say".into() };
                let mut said = serde_json::to_vec(&refusal).expect("serialises");
                said.push(b'\n');
                let _ = (&stream).write_all(&said);
            }
        });
        assert!(answers(folder.path(), Span::from_secs(30)), "that is an answer");
        agent.join().expect("no panic");
    }
}
