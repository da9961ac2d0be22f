//! `gleaner submit`.

mod application;
mod chunks;
pub(crate) mod due;
mod feature;
pub(crate) mod input;
mod items;
mod parcel;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gleaner_kernels::application::Application;
use gleaner_protocol::api::{Promise, Submitted};
use gleaner_protocol::job::{
    Attempts, CommandTask, JobSpec, Lane, OnRelease, RunsOn, Task, WasmTask, Workunits,
};
use gleaner_protocol::limits::{
    CORES_MAX, JOB_NAME_BYTES_MAX, PROFILE_S_MAX, WASM_MODULE_BYTES_MAX,
};
use gleaner_protocol::{
    DatasetName, Digest, Feature, JobId, KernelName, OwnerName, Profile, ProjectName, Share,
};
use serde::Serialize;

use crate::client::{Client, ClientError, Format, Options};
use crate::failure::{DECLINED, Failure};
use crate::given_file::{self, GivenFileError, STDIN};
use crate::{explain, process, show};
use application::{ApplicationArgs, HELP, PictureArgs, SurfaceArgs, application};
use chunks::{Chunks, pictures, surface};
use due::Due;
use feature::NamedFeature;
use input::{NamedInput, is_there};
use items::{count, items};
use parcel::Parcel;

/// Clocks that are apart by no more than this are not spoken of, in seconds.
const SKEW_TOLD_S: i64 = 5;

/// How sure a job is to be in time where nobody says.
const DEFAULT_CONFIDENCE_PERMILLE: u16 = 900;

/// Longest job file, in bytes: as JSON for people, of which the broker gets what counts.
const JOB_FILE_BYTES_MAX: u64 = 64 << 20;

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
    Volume(PictureArgs),
    /// The surface of one value in a volume, by a specification; or in a dataset, one workunit per
    /// brick.
    #[command(after_help = HELP)]
    Isosurface(SurfaceArgs),
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
    /// Most memory of one replica with all that it starts, in MiB. It goes to hosts that have as much.
    /// Beyond, it is killed, or on a host without control groups each of its processes is refused
    /// more [default: what the host has].
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
    cpu_max_s: u64,
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
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = count,
          conflicts_with_all = ["items", "dataset"])]
    count: u32,
    /// File with one item per line, a workunit each; - for stdin. {item} in an argument stands for the
    /// item. UTF-8; blank lines at the end are left out.
    #[arg(long, value_name = "FILE")]
    items: Option<PathBuf>,
    /// Dataset (`gleaner dataset`) of which each workunit reads a chunk, on a host that keeps a copy of
    /// it; {chunk} in an argument stands for the name of the chunk's file.
    #[arg(long, value_name = "NAME", conflicts_with = "items")]
    dataset: Option<DatasetName>,
    /// File that the program reads, as PATH or NAME=PATH; NAME=- for stdin. ./ in front makes a path of
    /// a text with =, as in ./date=1/part.csv. May be given often.
    #[arg(long, value_name = "FILE")]
    input: Vec<OsString>,
    /// File that the program writes, beside its standard output. May be given often. What it prints to
    /// standard error is kept where `stderr` is named; else only the end of it, where it fails.
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// For people.
    #[arg(long, default_value = "")]
    name: String,
    /// Whose job it is; who has joined with a key submits as its owner.
    #[arg(long, env = "GLEANER_OWNER", default_value = "anonymous")]
    owner: OwnerName,
    /// The project that answers for what the job takes, in the place of its owner. Whoever has joined the
    /// broker with an invitation to a project submits to that one.
    #[arg(long, env = "GLEANER_PROJECT", value_name = "NAME")]
    project: Option<ProjectName>,
    /// How often each workunit is replicated at first.
    #[arg(long, default_value_t = 1)]
    replication: u8,
    /// How many equal outputs decide a workunit [default: a majority of --replication].
    #[arg(long)]
    quorum: Option<u8>,
    /// Outputs of a workunit that may come without enough of them being equal, before it is given
    /// up [default: three times --replication]. What has no output is counted by --attempts.
    #[arg(long)]
    max_replicas: Option<u16>,
    /// Attempts without an output after which a workunit fails: those that failed, that timed out
    /// (--lease-s), and that were lost with their hosts. What a render drives out is no attempt,
    /// nor is what a host refuses. One that is left out keeps its default.
    #[arg(long, value_name = "LIST", default_value_t = Attempts::default())]
    attempts: Attempts,
    /// On which hosts it may run, and its inputs may go: any, farm, or desktop (volunteers') [default:
    /// the broker's default_on, which is any unless its admin says farm].
    #[arg(long, value_name = "WHERE")]
    on: Option<RunsOn>,
    /// Cores of one host that each workunit takes: a part of one, from 0.5 on (in background), or whole
    /// ones (in background, or due). GLEANER_CORES tells a command how many; others compute on one.
    #[arg(long, value_name = "CORES", default_value = "1", value_parser = cores)]
    cores: Share,
    /// GPUs of one host that each workunit has to itself (in background, due or as a batch): it goes where one is
    /// given that no other workunit asks for. Of a kernel with a specification, whose outputs are compared
    /// within a tolerance: others would not use one.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    gpus: u8,
    /// How long a replica may take before it has timed out, and another host gets one, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    lease_s: u64,
    /// When all of it is to be done: in 45m, at 17:30, at "2026-11-27 17:30", or a time with its zone,
    /// 2026-11-27T17:30Z. The broker accepts the job if it can be in time, or says when it could be. It
    /// has one replica of each workunit.
    #[arg(long, value_name = "WHEN")]
    due: Option<Due>,
    /// How sure it is to be in time for the broker to accept it, from 0.5 to 0.999 [default: 0.9].
    #[arg(long, value_name = "PART", value_parser = confidence, requires = "due")]
    confidence: Option<u16>,
    /// CPU time that each workunit is expected to take, in seconds.
    #[arg(long = "cpu-s", value_name = "SECONDS", value_parser = seconds)]
    takes_us: Option<u64>,
    /// Class of jobs that it belongs to: deadline (with --due), dataset (with --dataset: where copies
    /// are), batch (to be done soon as a whole), or background [default: deadline with --due, dataset
    /// with --dataset, else background].
    #[arg(long)]
    lane: Option<Lane>,
    /// How many workunits run out of order at most, from the first that has not ended: a job that reads a
    /// dataset then gives results in order soon (`gleaner fetch --follow --in-order`) [default: all].
    #[arg(long, value_name = "WORKUNITS")]
    window: Option<u32>,
    /// What becomes of a replica that a render drives out: kill it; keep it frozen, for at most so
    /// many seconds, to go on where the host is free again in time (keep:600); or let a module save
    /// a checkpoint first, within so many seconds, where the render leaves it a core (checkpoint:5).
    #[arg(long, default_value_t = OnRelease::Kill, value_name = "CHOICE")]
    on_release: OnRelease,
    /// A number that says how large the work is, such as samples=64, to predict run times from
    /// (`gleaner history`). May be given often. Sizes of inputs, sides of volumes (NIfTI, NRRD) and
    /// numbers among the arguments and in items are taken anyway.
    #[arg(long, value_name = "NAME=VALUE")]
    feature: Vec<NamedFeature>,
    #[command(flatten)]
    options: Options,
}

impl Common {
    fn lane(&self) -> Lane {
        let default = if self.due.is_some() { Lane::Deadline } else { Lane::Background };
        self.lane.unwrap_or(default)
    }

    fn profile(&self) -> Profile {
        let (due_ms, due_at_ms) = match self.due {
            None => (None, None),
            Some(Due::In(ms)) => (Some(ms), None),
            Some(Due::At(ms)) => (None, Some(ms)),
        };
        let confidence_permille =
            self.due.map(|_| self.confidence.unwrap_or(DEFAULT_CONFIDENCE_PERMILLE));
        Profile {
            due_ms,
            due_at_ms,
            confidence_permille,
            cpu_us: self.takes_us,
            window: self.window,
            features: self.features(),
            ..Profile::default()
        }
    }

    fn job(&self, name: String, task: Task, workunits: Workunits) -> JobSpec {
        JobSpec {
            name: if self.name.is_empty() { shortened(name) } else { self.name.clone() },
            owner: self.owner.clone(),
            project: self.project.clone(),
            lane: self.lane(),
            task,
            workunits,
            replication: self.replication,
            quorum: self.quorum,
            max_replicas: self.max_replicas,
            lease_s: self.lease_s,
            profile: self.profile(),
            trust: Default::default(),
            on_release: self.on_release,
            attempts: self.attempts,
            on: self.on,
            cores_permille: self.cores,
            gpus: self.gpus,
        }
    }
}

/// A part of a core, or whole ones.
fn cores(text: &str) -> Result<Share, String> {
    let cores: f64 = text.parse().map_err(|_| "expected a number such as 4 or 0.5".to_owned())?;
    match (0.0..=f64::from(CORES_MAX)).contains(&cores) {
        true => Ok(Share::permille((cores * 1000.0).round() as u32)),
        false => Err(format!("expected a number up to {CORES_MAX}")),
    }
}

/// A part of all, in thousandths.
fn confidence(text: &str) -> Result<u16, String> {
    let part: f64 = text.parse().map_err(|_| "expected a number such as 0.9".to_owned())?;
    match (0.5..=0.999).contains(&part) {
        true => Ok((part * 1000.0).round() as u16),
        false => Err(format!("{text} is not from 0.5 to 0.999")),
    }
}

/// A positive number of seconds, in microseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match (1e-3..=PROFILE_S_MAX as f64).contains(&seconds) {
        true => Ok((seconds * 1e6) as u64),
        false => Err(format!("{text} is not from 0.001 to {PROFILE_S_MAX} seconds")),
    }
}

impl Common {
    fn features(&self) -> BTreeMap<String, Feature> {
        self.feature.iter().map(|of| (of.name.clone(), of.value)).collect()
    }
}

/// A name that nobody chose, as long as a job's may be.
fn shortened(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(JOB_NAME_BYTES_MAX));
    name
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let (parcel, options) = match args.what {
            What::Job { file, options } => (Parcel::of(read_job(&file)?)?, options),
            What::Gametree(args) => (Parcel::of(gametree(&args)?)?, args.common.options),
            What::Command(args) => {
                let chunks = args.files.chunks(&args.common).await?;
                (command(&args, chunks)?, args.common.options)
            }
            What::Wasm(args) => {
                let chunks = args.files.chunks(&args.common).await?;
                (wasm(&args, chunks)?, args.common.options)
            }
            What::Volume(args) => pictures(args).await?,
            What::Isosurface(args) => surface(args).await?,
            What::Pca(args) => by_specification(Application::Pca, args)?,
            What::Npairs(args) => by_specification(Application::Npairs, args)?,
        };
        let client = options.client()?;
        let submitted = match parcel.send(&client).await {
            Ok(submitted) => submitted,
            Err(error) => return say_declined(error, options.format()),
        };
        say_submitted(&submitted, options.format());
        if submitted.promise.is_some() {
            warn_of_skew(&client).await;
        }
        explain::warn_if_nobody_can(&client, submitted.job).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// The job, and what it is promised.
fn say_submitted(submitted: &Submitted, format: Format) {
    let Submitted { job, workunits, promise } = submitted;
    if format == Format::Json {
        let of = |promise: &Promise| {
            let part = |permille: Option<u16>| permille.map(|of| f64::from(of) / 1000.0);
            PromiseAnswer {
                due: due::utc(promise.due_ms),
                confidence: part(promise.confidence_permille),
                chance: part(promise.chance_permille),
                expected_end: promise.expected_end_ms.map(due::utc),
            }
        };
        let (job, workunits, promise) = (*job, *workunits, promise.as_ref().map(of));
        return show::json(&Answer { job, workunits, promise });
    }
    show::line(job);
    if let Some(promise) = promise {
        let expected = promise.expected_end_ms.map(|end| format!(", expected {}", due::here(end)));
        let due = due::here(promise.due_ms);
        let chance = promise.chance_permille.map(|of| format!("{} % by ", f64::from(of) / 10.0));
        let (chance, expected) = (chance.unwrap_or("due ".into()), expected.unwrap_or_default());
        show::note(format_args!("accepted: {chance}{due}{expected}"));
    }
}

/// Says if the broker's clock shows another time than the one here: due times count by the broker's.
/// That it cannot be said is no failure: the job is there.
async fn warn_of_skew(client: &Client) {
    let Ok(answer) = client.raw("/v1/lanes").await else { return };
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let Some(ahead_s) = date.and_then(due::seconds_ahead) else { return };
    if ahead_s.abs() > SKEW_TOLD_S {
        let (by, where_) = (ahead_s.abs(), if ahead_s > 0 { "ahead of" } else { "behind" });
        show::note(format_args!(
            "warning: the broker's clock is {by} s {where_} the one here, and due times count by it"
        ));
    }
}

/// What is printed of a submission as JSON. Times are UTC.
#[derive(Serialize)]
struct Answer {
    job: JobId,
    workunits: u32,
    #[serde(flatten)]
    promise: Option<PromiseAnswer>,
}

/// Of a job that is due at a time.
#[derive(Serialize)]
struct PromiseAnswer {
    due: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chance: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_end: Option<String>,
}

/// Why a job is declined, and when it could be due; any other failure is passed on.
fn say_declined(error: anyhow::Error, format: Format) -> anyhow::Result<ExitCode> {
    let refused = error.downcast_ref::<ClientError>().and_then(ClientError::declined);
    let Some(declined) = refused else { return Err(error) };
    match format {
        Format::Json => show::json(&Declined {
            declined: declined.error.clone(),
            earliest_due: declined.earliest_due_ms.map(due::utc),
        }),
        Format::Table => {
            let earliest = declined.earliest_due_ms.map(due::here);
            let earliest = earliest.map(|due| format!("; it could be due at {due}"));
            show::note(format_args!(
                "declined: {}{}",
                declined.error,
                earliest.unwrap_or_default()
            ));
        }
    }
    Ok(ExitCode::from(DECLINED))
}

/// What is printed of a job that is declined, as JSON.
#[derive(Serialize)]
struct Declined {
    declined: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_due: Option<String>,
}

fn by_specification(
    kernel: Application,
    args: ApplicationArgs,
) -> anyhow::Result<(Parcel, Options)> {
    Ok((application(kernel, &args)?, args.how.common.options))
}

fn read_job(file: &Path) -> anyhow::Result<JobSpec> {
    let content = given_file::read_or_stdin("the job", file, JOB_FILE_BYTES_MAX)?;
    let text = given_file::text(file, content)?;
    let spec = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{} is no job: {error}", file.display())))?;
    Ok(spec)
}

fn gametree(args: &GametreeArgs) -> anyhow::Result<JobSpec> {
    let items = gleaner_agent::gametree::split(&args.fen, args.depth, args.plies)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let kernel = KernelName::new("gametree").expect("a plain name");
    let name = format!("gametree depth {}", args.depth);
    Ok(args.common.job(name, Task::Kernel(kernel), Workunits::Items(items.into())))
}

fn command(args: &CommandArgs, chunks: Option<Chunks>) -> anyhow::Result<Parcel> {
    let named = args.files.named()?;
    let task = |inputs| {
        Task::Command(CommandTask {
            argv: args.argv.clone(),
            inputs,
            outputs: args.files.output.clone(),
            memory_mib: args.memory_mib,
        })
    };
    let name = args.argv.first().cloned().unwrap_or_default();
    let workunits = args.files.workunits(chunks)?;
    let reads = chunks.map(|of| of.reads);
    Parcel::pack(Vec::new(), &named, |inputs| {
        args.common.over(reads, args.common.job(name.clone(), task(inputs), workunits.clone()))
    })
}

fn wasm(args: &WasmArgs, chunks: Option<Chunks>) -> anyhow::Result<Parcel> {
    let named = args.files.named()?;
    let path = &args.module;
    let module = given_file::read("the module", path, WASM_MODULE_BYTES_MAX)?;
    let task = WasmTask {
        args: args.args.clone(),
        outputs: args.files.output.clone(),
        memory_mib: args.memory_mib,
        disk_mib: args.disk_mib,
        cpu_s: args.cpu_max_s,
        fuel: args.fuel,
        ..WasmTask::new(Digest::of(&module))
    };
    // What any agent would find wrong with it.
    gleaner_agent::check_module(&module, task.memory_mib).map_err(|problem| {
        let path = path.clone();
        GivenFileError::Content { path, problem: format!("cannot be run: {problem}") }
    })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let workunits = args.files.workunits(chunks)?;
    let reads = chunks.map(|of| of.reads);
    Parcel::pack(vec![module], &named, |inputs| {
        let task = WasmTask { inputs, ..task.clone() };
        let job = args.common.job(name.clone(), Task::Wasm(task), workunits.clone());
        args.common.over(reads, job)
    })
}

impl Files {
    fn named(&self) -> Result<Vec<NamedInput>, Failure> {
        let named: Result<Vec<_>, _> =
            self.input.iter().map(|text| NamedInput::read(text, is_there)).collect();
        let named = named?;
        let of_stdin = named.iter().filter(|input| input.path == Path::new(STDIN)).count()
            + usize::from(self.items.as_deref() == Some(Path::new(STDIN)));
        if of_stdin > 1 {
            let problem = "stdin (-) can be read once: give the others as files";
            return Err(Failure::Usage(problem.into()));
        }
        Ok(named)
    }

    fn workunits(&self, chunks: Option<Chunks>) -> anyhow::Result<Workunits> {
        match (&self.items, chunks) {
            (_, Some(chunks)) => Ok(Workunits::Count(chunks.count)),
            (Some(path), None) => items(path),
            (None, None) => Ok(Workunits::Count(self.count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn what_is_not_given_is_as_in_a_job_without_it() {
        let cli = Cli::try_parse_from(["gleaner", "submit", "wasm", "x.wasm"]).expect("complete");
        let Command::Submit(Args { what: What::Wasm(args) }) = cli.command else {
            panic!("submit")
        };
        let task = WasmTask::new(Digest::of(b""));
        assert_eq!(
            (args.memory_mib, args.disk_mib, args.cpu_max_s, args.fuel),
            (task.memory_mib, task.disk_mib, task.cpu_s, task.fuel)
        );
        let text = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        let shortest: JobSpec = serde_json::from_str(text).expect("a job");
        let workunits = args.files.workunits(None).expect("one");
        let job = args.common.job(String::new(), shortest.task.clone(), workunits);
        assert_eq!(job, shortest);
    }
}
