//! `gleaner submit`.

mod application;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use gleaner_kernels::application::Application;
use gleaner_protocol::api::Submitted;
use gleaner_protocol::job::{
    CommandTask, InputFile, JobSpec, Lane, OnRelease, Task, WasmTask, Workunits,
};
use gleaner_protocol::limits::WASM_MODULE_BYTES_MAX;
use gleaner_protocol::{Digest, KernelName, OwnerName};

use crate::client::{Client, Format, Options};
use crate::failure::Failure;
use crate::{process, show};
use application::{ApplicationArgs, HELP, application};

/// Submits a job and prints its id; it is on the broker's disk then.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A job as JSON, from a file or stdin.
    Job {
        /// The file; - for stdin.
        file: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// Counts the leaf nodes of a chess position's game tree (perft), one workunit per root move.
    Gametree(GametreeArgs),
    /// A program that hosts' owners allow; never a shell line.
    Command(CommandArgs),
    /// A WebAssembly module for WASI preview 1: runs on any host that offers it, in a folder of
    /// its own and with nothing else.
    Wasm(WasmArgs),
    /// A picture of a volume, or an animation of one workunit per frame, by a specification.
    #[command(after_help = HELP)]
    Volume(ApplicationArgs),
    /// The surface of one value in a volume, by a specification.
    #[command(after_help = HELP)]
    Isosurface(ApplicationArgs),
    /// The principal components of a table or of a series of volumes, by a specification.
    #[command(after_help = HELP)]
    Pca(ApplicationArgs),
    /// How well classes of brain scans are told, and their map reproduced, by a specification; one
    /// workunit per number of components.
    #[command(after_help = HELP)]
    Npairs(ApplicationArgs),
}

#[derive(Debug, clap::Args)]
struct GametreeArgs {
    /// The position in Forsyth-Edwards notation.
    #[arg(long, default_value = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")]
    fen: String,
    /// Depth in half-moves.
    #[arg(long)]
    depth: u8,
    /// Half-moves below the root at which the tree is split into workunits.
    #[arg(long, default_value_t = 1)]
    plies: u8,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct CommandArgs {
    #[command(flatten)]
    files: Files,
    /// Most memory of one replica with all that it starts, in MiB; beyond, it is killed, or on a
    /// host without control groups each of its processes is refused more [default: what the host
    /// has].
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u32>,
    /// The program's absolute path and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct WasmArgs {
    /// The module.
    module: PathBuf,
    #[command(flatten)]
    files: Files,
    /// Most memory of one replica, in MiB.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    memory_mib: u32,
    /// Most that its files may hold together, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    disk_mib: u32,
    /// Most CPU time of one replica, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    cpu_s: u64,
    /// Most instructions of one replica; counting them costs time.
    #[arg(long)]
    fuel: Option<u64>,
    /// The module's arguments.
    #[arg(last = true)]
    args: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Workunits and files of what runs with arguments.
#[derive(Debug, clap::Args)]
struct Files {
    /// How many workunits; {index} in an argument stands for each one's number.
    #[arg(long, default_value_t = 1, conflicts_with = "items")]
    count: u32,
    /// File with one item per line, a workunit each; {item} in an argument stands for it.
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
    /// File that the program reads, as NAME=PATH or PATH. May be given often.
    #[arg(long, value_name = "FILE")]
    input: Vec<String>,
    /// File that the program writes, beside its standard output. May be given often.
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// For people.
    #[arg(long, default_value = "")]
    name: String,
    /// Whose job it is; owners are served in turn.
    #[arg(long, env = "GLEANER_OWNER", default_value = "anonymous")]
    owner: OwnerName,
    /// How often each workunit is replicated at first.
    #[arg(long, default_value_t = 1)]
    replication: u8,
    /// How many equal outputs decide a workunit [default: a majority of --replication].
    #[arg(long)]
    quorum: Option<u8>,
    /// Replicas of a workunit that may be done or have failed before it is given up [default:
    /// three times --replication].
    #[arg(long)]
    max_replicas: Option<u16>,
    /// How long a replica may take before another host gets one, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    lease_s: u64,
    /// What becomes of a replica that a render drives out: kill it; keep it frozen, for at most so
    /// many seconds, to go on where the host is free again in time (keep:600); or let a module save
    /// a checkpoint first, within so many seconds, where the render leaves it a core (checkpoint:5).
    #[arg(long, default_value_t = OnRelease::Kill, value_name = "CHOICE")]
    on_release: OnRelease,
    #[command(flatten)]
    options: Options,
}

impl Common {
    fn job(&self, name: String, task: Task, workunits: Workunits) -> JobSpec {
        JobSpec {
            name: if self.name.is_empty() { name } else { self.name.clone() },
            owner: self.owner.clone(),
            lane: Lane::Background,
            task,
            workunits,
            replication: self.replication,
            quorum: self.quorum,
            max_replicas: self.max_replicas,
            lease_s: self.lease_s,
            profile: Default::default(),
            trust: Default::default(),
            on_release: self.on_release,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let (spec, options) = match args.what {
            What::Job { file, options } => (read_job(&file)?, options),
            What::Gametree(args) => (gametree(&args)?, args.common.options),
            What::Command(args) => {
                let client = args.common.options.client()?;
                (command(&client, &args).await?, args.common.options)
            }
            What::Wasm(args) => {
                let client = args.common.options.client()?;
                (wasm(&client, &args).await?, args.common.options)
            }
            What::Volume(args) => by_specification(Application::Volume, args).await?,
            What::Isosurface(args) => by_specification(Application::Isosurface, args).await?,
            What::Pca(args) => by_specification(Application::Pca, args).await?,
            What::Npairs(args) => by_specification(Application::Npairs, args).await?,
        };
        spec.check().map_err(|error| Failure::Usage(error.to_string()))?;
        let submitted: Submitted = options.client()?.post("/v1/jobs", &spec).await?;
        match options.format() {
            Format::Json => show::json(&submitted),
            Format::Table => show::line(submitted.job),
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn by_specification(
    kernel: Application,
    args: ApplicationArgs,
) -> anyhow::Result<(JobSpec, Options)> {
    let client = args.common.options.client()?;
    Ok((application(&client, kernel, &args).await?, args.common.options))
}

fn read_job(file: &Path) -> anyhow::Result<JobSpec> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read the job from stdin")?;
    } else {
        text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the job file {}", file.display()))?;
    }
    let spec = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{} is no job: {error}", file.display())))?;
    Ok(spec)
}

fn gametree(args: &GametreeArgs) -> anyhow::Result<JobSpec> {
    let items = gleaner_agent::gametree::split(&args.fen, args.depth, args.plies)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let kernel = KernelName::new("gametree").expect("a plain name");
    let name = format!("gametree depth {}", args.depth);
    Ok(args.common.job(name, Task::Kernel(kernel), Workunits::Items(items)))
}

async fn command(client: &Client, args: &CommandArgs) -> anyhow::Result<JobSpec> {
    let inputs = args.files.upload(client).await?;
    let outputs = args.files.output.clone();
    let task =
        CommandTask { argv: args.argv.clone(), inputs, outputs, memory_mib: args.memory_mib };
    let name = args.argv.first().cloned().unwrap_or_default();
    Ok(args.common.job(name, Task::Command(task), args.files.workunits()?))
}

async fn wasm(client: &Client, args: &WasmArgs) -> anyhow::Result<JobSpec> {
    let path = &args.module;
    let module =
        fs::read(path).with_context(|| format!("cannot read the module {}", path.display()))?;
    if !module.starts_with(MODULE_HEAD) {
        let what = "is no WebAssembly module in binary form: compile it for wasm32-wasip1";
        return Err(Failure::Usage(format!("{} {what}", path.display())).into());
    }
    if module.len() as u64 > WASM_MODULE_BYTES_MAX {
        let what =
            format!("is larger than the {WASM_MODULE_BYTES_MAX} bytes that are run: strip it");
        return Err(Failure::Usage(format!("{} {what}", path.display())).into());
    }
    let digest = Digest::of(&module);
    let mut task = WasmTask {
        args: args.args.clone(),
        outputs: args.files.output.clone(),
        memory_mib: args.memory_mib,
        disk_mib: args.disk_mib,
        cpu_s: args.cpu_s,
        fuel: args.fuel,
        ..WasmTask::new(digest)
    };
    // Before anything is uploaded.
    task.check().map_err(|error| Failure::Usage(error.to_string()))?;
    client.put_blob(digest, module).await?;
    task.inputs = args.files.upload(client).await?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(args.common.job(name, Task::Wasm(task), args.files.workunits()?))
}

/// How every module in binary form begins: its mark, and the one version that there is.
const MODULE_HEAD: &[u8] = b"\0asm\x01\0\0\0";

impl Files {
    /// Uploads the inputs.
    async fn upload(&self, client: &Client) -> anyhow::Result<Vec<InputFile>> {
        let mut inputs = Vec::new();
        for input in &self.input {
            let (name, path) = match input.split_once('=') {
                Some((name, path)) => (name.to_owned(), Path::new(path)),
                None => {
                    let path = Path::new(input);
                    (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path)
                }
            };
            let digest = upload(client, path).await?;
            inputs.push(InputFile { name, digest });
        }
        Ok(inputs)
    }

    fn workunits(&self) -> anyhow::Result<Workunits> {
        let Some(path) = &self.items else { return Ok(Workunits::Count(self.count)) };
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the items {}", path.display()))?;
        Ok(Workunits::Items(text.lines().map(str::to_owned).collect()))
    }
}

/// Uploads an input.
async fn upload(client: &Client, path: &Path) -> anyhow::Result<Digest> {
    let content =
        fs::read(path).with_context(|| format!("cannot read the input {}", path.display()))?;
    let digest = Digest::of(&content);
    client.put_blob(digest, content).await?;
    Ok(digest)
}
