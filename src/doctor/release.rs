//! How long harvested work takes to stop, and its memory to come back.
//!
//! A broker and an agent are started as on any host, and given endless work for every slot. Then
//! renders start, one after the other, when all of it computes: each trial is one preflight of
//! `gleaner-hook`, or of `gleaner hook` where that is not there. A thread looks from outside at
//! what the agent has noted; neither hook nor agent is asked.
//!
//! By turns with them the limit is measured: a program is started that does nothing, and then the
//! kernel is told, in as few words as there are, to stop the same replicas. What a release takes
//! longer is ours; the rest is the time that processes take to start and to stop.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use gleaner_hooks::{ProcessStat, RunDir};
use gleaner_protocol::api::JobStatus;
use gleaner_protocol::job::{OnRelease, Task, Workunits};
use gleaner_protocol::{KernelName, Span, boottime};
use serde::Serialize;

use super::How;
use super::bench::{AgentSettings, Bench, PATIENCE, end, hook_program};
use super::family::{descendants, resident_bytes};
use crate::child::Child;
use crate::client::Format;
use crate::release_watch::{Release, ReleaseWatch, computing_now, work_alone, working_now};
use crate::show;

/// How fast is a release on this host?
#[derive(Debug, clap::Args)]
#[command(after_help = MEASURED_WITH)]
pub(super) struct Args {
    /// Replicas that run when a render starts.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    replicas: u32,
    /// Renders that start.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: u32,
    /// Keeps the replicas frozen beside each render, instead of killing them: they have not to begin
    /// anew before the next one, so that many more renders are measured in the same time.
    #[arg(long)]
    keep: bool,
    /// Memory of the one replica whose memory is to come back, in MiB; 0 to leave that out. It is
    /// taken and given back five times, and the median is told.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    memory_mib: u64,
    #[command(flatten)]
    how: How,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    backend: String,
    hook: String,
    replicas: u32,
    kept: bool,
    trials: u32,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Of a program that does nothing, and the kernel alone.
    limit_p50_ms: f64,
    limit_p99_ms: f64,
    limit_max_ms: f64,
    memory_mib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_return_ms: Option<f64>,
}

/// What the figures of the README can be compared with.
const MEASURED_WITH: &str = "The figures in the README were taken with 64 replicas: those of kept ones \
     with --keep --trials 1000 --memory-mib 0, those of killed ones with --trials 100 --memory-mib 4096.";

/// A position whose count takes longer than any trial.
const ENDLESS: &str =
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1;depth=12";
/// Copies for ever, through one buffer of the size that it is asked for.
const MEMORY_HOG: &str = "/bin/dd";
/// Does nothing.
const NOTHING: &str = "/bin/true";
/// How often memory is taken and given back: an odd number has a median.
const MEMORY_TIMES: usize = 5;
/// For how long replicas are kept, in seconds: longer than a render of this takes.
const KEEP_S: u64 = 600;
/// Pause between two looks while time is measured.
const CLOSE_PAUSE: Duration = Duration::from_micros(500);

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("gleaner-doctor-").tempdir()?;
    let patient = Patient::start(folder.path(), &args).await?;
    let figures = patient.measure(&args).await?;
    patient.shut_down().await;
    match args.how.format {
        Format::Json => show::json(&figures),
        Format::Table => print(&figures),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(figures: &Figures) {
    let ms = |ms: f64| format!("{ms:.2} ms");
    let rows = vec![
        ["isolated by".into(), figures.backend.clone()],
        ["released by".into(), figures.hook.clone()],
        [
            if figures.kept { "replicas, kept frozen" } else { "replicas" }.into(),
            figures.replicas.to_string(),
        ],
        ["renders started".into(), figures.trials.to_string()],
        ["half of them had the cores after".into(), ms(figures.p50_ms)],
        ["99 of 100 after".into(), ms(figures.p99_ms)],
        ["the slowest after".into(), ms(figures.max_ms)],
        ["the kernel alone: half of them after".into(), ms(figures.limit_p50_ms)],
        ["99 of 100 after".into(), ms(figures.limit_p99_ms)],
        ["the slowest after".into(), ms(figures.limit_max_ms)],
        [
            format!("{} MiB of memory were back after", figures.memory_mib),
            figures.memory_return_ms.map_or_else(|| "-".into(), ms),
        ],
    ];
    show::table(["release", ""], rows);
}

/// What is measured, and with what.
struct Patient {
    bench: Bench,
    agent: Child,
}

impl Patient {
    async fn start(folder: &Path, args: &Args) -> anyhow::Result<Self> {
        let bench = Bench::start(folder).await?;
        let settings = AgentSettings {
            cores: args.replicas,
            isolation: args.how.isolation,
            give_way: false,
            program: MEMORY_HOG,
        };
        let agent = bench.agent(&settings).await?;
        Ok(Self { bench, agent })
    }

    async fn measure(&self, args: &Args) -> anyhow::Result<Figures> {
        let kernel = Task::Kernel(KernelName::new("gametree").expect("a plain name"));
        let items = vec![ENDLESS.to_owned(); args.replicas as usize];
        let backend = self.bench.standing()?.isolation;
        let on_release = match args.keep {
            true => OnRelease::Keep { for_s: KEEP_S },
            false => OnRelease::Kill,
        };
        let job = self.bench.submit(kernel, Workunits::Items(items.into()), on_release).await?;
        let progress = show::progress(u64::from(args.trials), "renders");
        let (mut took, mut limit) = (Vec::new(), Vec::new());
        let everyone = args.replicas as usize;
        let all = |run: &RunDir| computing_now(run) >= everyone;
        for trial in 0..args.trials {
            self.bench.until("all replicas to compute", all).await?;
            limit.push(self.limit().await?);
            self.bench.until("all replicas to compute", all).await?;
            if !work_alone(&self.bench.run_dir) {
                bail!("replicas have more processes or threads than are watched");
            }
            let booking = format!("trial-{trial}");
            let watch = ReleaseWatch::start(self.bench.run_dir.clone(), 0).await?;
            self.bench.hook("preflight", &booking, None).await?;
            let span = time_of(watch.finish()).with_context(|| format!("render {trial}"))?;
            took.push(span);
            self.bench.hook("postflight", &booking, None).await?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        let _: JobStatus = self.bench.client.delete(&format!("/v1/jobs/{job}")).await?;
        self.bench.until("the replicas to end", |run| working_now(run) == 0).await?;
        let (took, limit) = (Spread::of(took), Spread::of(limit));
        let hook = hook_program()?;
        let hook = hook.file_name().unwrap_or_default();
        Ok(Figures {
            backend,
            hook: hook.to_string_lossy().into_owned(),
            replicas: args.replicas,
            kept: args.keep,
            trials: args.trials,
            p50_ms: took.p50_ms,
            p99_ms: took.p99_ms,
            max_ms: took.max_ms,
            limit_p50_ms: limit.p50_ms,
            limit_p99_ms: limit.p99_ms,
            limit_max_ms: limit.max_ms,
            memory_mib: args.memory_mib,
            memory_return_ms: match args.memory_mib {
                0 => None,
                mib => Some(ms(self.memory_return(mib).await?)),
            },
        })
    }

    /// From the start of a program that does nothing until all has stopped that computed, once the
    /// kernel was told to stop it after that program's end.
    async fn limit(&self) -> anyhow::Result<Span> {
        let run_dir = &self.bench.run_dir;
        let (marks, groups) = (run_dir.enclosure()?, run_dir.groups()?);
        let watch = ReleaseWatch::start(run_dir.clone(), 0).await?;
        tokio::process::Command::new(NOTHING).status().await.context("cannot start a program")?;
        // Without control groups each is told by itself.
        if marks.freeze().is_err() {
            groups.iter().try_for_each(|group| gleaner_hooks::freeze(group.pgid))?;
        }
        let release = watch.finish();
        if marks.thaw().is_err() {
            groups.iter().try_for_each(|group| gleaner_hooks::thaw(group.pgid))?;
        }
        time_of(release).context("the kernel alone")
    }

    /// From the hook's start until a replica that holds so much memory is no more: the median.
    async fn memory_return(&self, mib: u64) -> anyhow::Result<Span> {
        let mut took = Vec::with_capacity(MEMORY_TIMES);
        for time in 0..MEMORY_TIMES {
            took.push(self.memory_return_once(mib, &format!("memory-{time}")).await?);
        }
        took.sort_unstable();
        Ok(took[MEMORY_TIMES / 2])
    }

    async fn memory_return_once(&self, mib: u64, booking: &str) -> anyhow::Result<Span> {
        let bytes = mib.saturating_mul(1 << 20);
        let buffer = format!("bs={mib}M");
        // A buffer may be longer than one read can fill.
        let words = [MEMORY_HOG, "if=/dev/zero", "of=/dev/null", "iflag=fullblock", &buffer];
        let task = Bench::command(&words);
        let job = self.bench.submit(task, Workunits::Count(1), OnRelease::Kill).await?;
        let full = |run: &RunDir| hog(run).is_some_and(|pid| resident_bytes(pid) >= bytes);
        self.bench.until("the memory to be full", full).await?;
        let pid =
            hog(&self.bench.run_dir).context("the replica that holds memory ended by itself")?;
        let begun = boottime();
        self.bench.hook("preflight", booking, None).await?;
        // It shows none from the moment on in which the kernel begins to take it back, and is dead
        // when that is done.
        while ProcessStat::of(pid).is_ok_and(|stat| !stat.is_dead()) {
            if boottime().since(begun) > Span::from(PATIENCE) {
                bail!("its memory did not come back");
            }
            tokio::time::sleep(CLOSE_PAUSE).await;
        }
        let took = boottime().since(begun);
        // It would begin anew beside the next one.
        let _: JobStatus = self.bench.client.delete(&format!("/v1/jobs/{job}")).await?;
        self.bench.hook("postflight", booking, None).await?;
        Ok(took)
    }

    async fn shut_down(self) {
        end(self.agent).await;
        self.bench.shut_down().await;
    }
}

/// How long a release took, where there was one and it came to an end.
fn time_of(release: Release) -> anyhow::Result<Span> {
    match release.took {
        _ if release.unfinished => bail!("harvested work went on although it was told to stop"),
        Some(span) => Ok(span),
        None => bail!("nothing computed that could be stopped"),
    }
}

/// How long something took, of many times.
struct Spread {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Spread {
    fn of(mut took: Vec<Span>) -> Self {
        took.sort_unstable();
        let at = |permille: usize| ms(took[(took.len() * permille / 1000).min(took.len() - 1)]);
        Self { p50_ms: at(500), p99_ms: at(990), max_ms: at(1000) }
    }
}

/// The replica that holds memory, below a runner.
fn hog(run_dir: &RunDir) -> Option<i32> {
    let groups = run_dir.groups().ok()?;
    groups.iter().flat_map(|group| descendants(group.pgid)).find(|pid| is_hog(*pid))
}

fn is_hog(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "dd")
}

fn ms(span: Span) -> f64 {
    (span.as_micros() as f64 / 10.0).round() / 100.0
}
