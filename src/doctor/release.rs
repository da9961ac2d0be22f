//! How long harvested work takes to stop, and its memory to come back.
//!
//! A broker and an agent are started as on any host, and given endless work for every slot. Then
//! renders start, one after the other: each trial is one `gleaner hook preflight`. A thread looks
//! from outside at what the agent has noted; neither hook nor agent is asked.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use gleaner_agent::Isolation;
use gleaner_hooks::{ProcessStat, RunDir};
use gleaner_isolation::Enclosure;
use gleaner_protocol::api::{JobStatus, Submitted};
use gleaner_protocol::job::{CommandTask, JobSpec, Task, Workunits};
use gleaner_protocol::{KernelName, OwnerName, Span, boottime};
use serde::Serialize;

use crate::child::{Child, Log};
use crate::client::{Client, Format};
use crate::release_watch::{ReleaseWatch, working_now};
use crate::show;

/// How fast is a release on this host?
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Replicas that run when a render starts.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    replicas: u32,
    /// Renders that start.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: u32,
    /// Memory of the one replica whose memory is to come back, in MiB; 0 to leave that out.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    memory_mib: u64,
    /// The way of isolation: auto, cgroup2, cgroup1 or process-groups.
    #[arg(long, default_value = "auto", value_name = "WAY")]
    isolation: Isolation,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    backend: &'static str,
    replicas: u32,
    trials: u32,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    memory_mib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_return_ms: Option<f64>,
}

/// A position whose count takes longer than any trial.
const ENDLESS: &str =
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1;depth=12";
/// Copies for ever, through one buffer of the size that it is asked for.
const MEMORY_HOG: &str = "/bin/dd";
/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at what has no event.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause between two looks while time is measured.
const CLOSE_PAUSE: Duration = Duration::from_micros(500);

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("gleaner-doctor-").tempdir()?;
    let mut bench = Bench::start(folder.path(), &args).await?;
    let figures = bench.measure(&args).await?;
    bench.shut_down().await;
    match args.format {
        Format::Json => show::json(&figures),
        Format::Table => print(&figures),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(figures: &Figures) {
    let ms = |ms: f64| format!("{ms:.2} ms");
    let rows = vec![
        ["isolated by".into(), figures.backend.into()],
        ["replicas".into(), figures.replicas.to_string()],
        ["renders started".into(), figures.trials.to_string()],
        ["half of them had the cores after".into(), ms(figures.p50_ms)],
        ["99 of 100 after".into(), ms(figures.p99_ms)],
        ["the slowest after".into(), ms(figures.max_ms)],
        [
            format!("{} MiB of memory were back after", figures.memory_mib),
            figures.memory_return_ms.map_or_else(|| "-".into(), ms),
        ],
    ];
    show::line(show::table(["release", ""], rows));
}

/// A broker, an agent, and what its run folder shows.
struct Bench {
    run_dir: RunDir,
    client: Client,
    parts: Vec<Child>,
    backend: &'static str,
}

impl Bench {
    async fn start(folder: &Path, args: &Args) -> anyhow::Result<Self> {
        let trial = Enclosure::open(args.isolation, &format!("doctor-{}", std::process::id()));
        let backend = trial.report().backend;
        trial.remove()?;
        let run = RunDir::open(folder.join("run"))?;
        let mut broker = gleaner(&["broker", "--listen", "127.0.0.1:0", "--data-dir"])?;
        broker.arg(folder.join("broker"));
        let mut broker = Child::start("the broker", broker, &Log::create(folder, "broker")?)?;
        let line = broker.line(PATIENCE).await?;
        let Some(url) = line.strip_prefix("listening on ") else {
            bail!("the broker said {line:?} instead of the address that it listens on");
        };
        let mut agent = gleaner(&["agent", "--name", "patient", "--broker", url])?;
        agent.args(["--cores", &args.replicas.to_string(), "--give-way", "false"]);
        agent.args(["--isolation", name_of(args.isolation), "--allow-command", MEMORY_HOG]);
        agent.arg("--run-dir").arg(run.path()).arg("--work-dir").arg(folder.join("work"));
        let mut agent = Child::start("the agent", agent, &Log::create(folder, "agent")?)?;
        agent.line(PATIENCE).await?;
        let client = Client::local(url)?;
        Ok(Self { run_dir: run, client, parts: vec![agent, broker], backend })
    }

    async fn measure(&mut self, args: &Args) -> anyhow::Result<Figures> {
        let kernel = Task::Kernel(KernelName::new("gametree").expect("a plain name"));
        let items = vec![ENDLESS.to_owned(); args.replicas as usize];
        let job = self.submit(kernel, Workunits::Items(items)).await?;
        let progress = show::progress(u64::from(args.trials), "renders");
        let mut took: Vec<Span> = Vec::with_capacity(args.trials as usize);
        for trial in 0..args.trials {
            let everyone = args.replicas as usize;
            self.until("all replicas to work", |run| working_now(run) >= everyone).await?;
            let booking = format!("trial-{trial}");
            let watch = ReleaseWatch::start(self.run_dir.clone(), 0).await?;
            self.hook("preflight", &booking).await?;
            let release = watch.finish();
            match release.took {
                Some(span) if !release.unfinished => took.push(span),
                _ => bail!("trial {trial}: harvested work went on beside the render"),
            }
            self.hook("postflight", &booking).await?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        let _: JobStatus = self.client.delete(&format!("/v1/jobs/{job}")).await?;
        self.until("the replicas to end", |run| working_now(run) == 0).await?;
        took.sort_unstable();
        let at = |permille: usize| took[(took.len() * permille / 1000).min(took.len() - 1)];
        Ok(Figures {
            backend: self.backend,
            replicas: args.replicas,
            trials: args.trials,
            p50_ms: ms(at(500)),
            p99_ms: ms(at(990)),
            max_ms: ms(at(1000)),
            memory_mib: args.memory_mib,
            memory_return_ms: match args.memory_mib {
                0 => None,
                mib => Some(ms(self.memory_return(mib).await?)),
            },
        })
    }

    /// From the hook's start until a replica that holds so much memory is no more.
    async fn memory_return(&mut self, mib: u64) -> anyhow::Result<Span> {
        let bytes = mib.saturating_mul(1 << 20);
        let buffer = format!("bs={mib}M");
        let argv = [MEMORY_HOG, "if=/dev/zero", "of=/dev/null", &buffer];
        let argv = argv.map(String::from).to_vec();
        let task = CommandTask { argv, inputs: Vec::new(), outputs: Vec::new() };
        self.submit(Task::Command(task), Workunits::Count(1)).await?;
        let full = |run: &RunDir| hog(run).is_some_and(|pid| resident_bytes(pid) >= bytes);
        self.until("the memory to be full", full).await?;
        let pid = hog(&self.run_dir).context("the replica that holds memory ended by itself")?;
        let begun = boottime();
        self.hook("preflight", "memory").await?;
        while resident_bytes(pid) > 0 {
            if boottime().since(begun) > Span::from(PATIENCE) {
                bail!("its memory did not come back");
            }
            tokio::time::sleep(CLOSE_PAUSE).await;
        }
        Ok(boottime().since(begun))
    }

    async fn submit(
        &self,
        task: Task,
        workunits: Workunits,
    ) -> anyhow::Result<gleaner_protocol::JobId> {
        let spec = JobSpec {
            name: "doctor".into(),
            owner: OwnerName::new("doctor").expect("a plain name"),
            lane: Default::default(),
            task,
            workunits,
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: 24 * 3600,
            profile: Default::default(),
            trust: Default::default(),
        };
        let submitted: Submitted = self.client.post("/v1/jobs", &spec).await?;
        Ok(submitted.job)
    }

    async fn hook(&self, kind: &str, booking: &str) -> anyhow::Result<()> {
        let mut hook = gleaner(&["hook", kind, "--farm", "generic"])?;
        hook.arg("--run-dir").arg(self.run_dir.path()).env("GLEANER_BOOKING", booking);
        let hook = hook.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = tokio::process::Command::from(std::mem::replace(hook, Command::new("")))
            .status()
            .await
            .context("cannot start the hook")?;
        if status.success() { Ok(()) } else { bail!("the hook failed: {status}") }
    }

    /// What the run folder shows has no event.
    async fn until(&mut self, what: &str, holds: impl Fn(&RunDir) -> bool) -> anyhow::Result<()> {
        let end = boottime() + Span::from(PATIENCE);
        while !holds(&self.run_dir) {
            if boottime() > end {
                bail!("waited {} s for {what}", PATIENCE.as_secs());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn shut_down(mut self) {
        for part in &mut self.parts {
            part.ask_to_end();
            // One that failed to end in good order is killed as it is dropped.
            let _ = tokio::time::timeout(PATIENCE, part.status()).await;
        }
    }
}

fn gleaner(arguments: &[&str]) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn name_of(isolation: Isolation) -> &'static str {
    let named = Isolation::NAMES.into_iter().find(|(_, one)| *one == isolation);
    named.map_or("auto", |(name, _)| name)
}

/// The replica that holds memory: the child of a runner.
fn hog(run_dir: &RunDir) -> Option<i32> {
    let groups = run_dir.groups().ok()?;
    groups.iter().find_map(|group| {
        let path = format!("/proc/{0}/task/{0}/children", group.pgid);
        let children = std::fs::read_to_string(path).ok()?;
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| is_hog(*pid))
    })
}

fn is_hog(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "dd")
}

/// Memory that a process holds; 0 where it has ended.
fn resident_bytes(pid: i32) -> u64 {
    if ProcessStat::of(pid).map_or(true, |stat| stat.is_dead()) {
        return 0;
    }
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn ms(span: Span) -> f64 {
    (span.as_micros() as f64 / 10.0).round() / 100.0
}
