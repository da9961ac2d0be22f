//! `gleaner submit`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use gleaner_protocol::api::Submitted;
use gleaner_protocol::job::{CommandTask, InputFile, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{Digest, KernelName, OwnerName};

use crate::client::{Client, Format, Options};
use crate::failure::Failure;
use crate::{process, show};

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
    /// The program's absolute path and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<String>,
    #[command(flatten)]
    common: Common,
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
        };
        spec.check().map_err(|error| Failure::Usage(error.to_string()))?;
        let submitted: Submitted = options.client()?.post("/v1/jobs", &spec).await?;
        match options.format {
            Format::Json => show::json(&submitted),
            Format::Table => show::line(submitted.job),
        }
        Ok(ExitCode::SUCCESS)
    })
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
    let mut inputs = Vec::new();
    for input in &args.input {
        let (name, path) = match input.split_once('=') {
            Some((name, path)) => (name.to_owned(), Path::new(path)),
            None => {
                let path = Path::new(input);
                (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path)
            }
        };
        let content =
            fs::read(path).with_context(|| format!("cannot read the input {}", path.display()))?;
        let digest = Digest::of(&content);
        client.put_blob(digest, content).await?;
        inputs.push(InputFile { name, digest });
    }
    let workunits = match &args.items {
        None => Workunits::Count(args.count),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read the items {}", path.display()))?;
            Workunits::Items(text.lines().map(str::to_owned).collect())
        }
    };
    let task = CommandTask { argv: args.argv.clone(), inputs, outputs: args.output.clone() };
    let name = args.argv.first().cloned().unwrap_or_default();
    Ok(args.common.job(name, Task::Command(task), workunits))
}
