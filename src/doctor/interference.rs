//! How much slower a render runs because of harvested work.
//!
//! A probe stands for the render, hogs that want the same resource for the harvested work. The
//! probe is measured in turns without and with them, within one run, so that whatever else a
//! machine does falls on both alike: `off gleaner off nice19 off idle off gleaner …`. While it is
//! off, not even an agent runs; each time that it is on, a new agent harvests every core before
//! the render comes, announced by a hook or not. The same hogs at niceness 19 and in the idle
//! scheduling class, without Gleaner, show what it is worth.

mod figures;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use gleaner_agent::Isolation;
use gleaner_hooks::{ProcessIo, RunDir};
use gleaner_protocol::job::{OnRelease, Workunits};
use gleaner_protocol::{Span, boottime};
use indicatif::ProgressBar;

use super::How;
use super::bench::{AgentSettings, Bench, PATIENCE, end, gleaner, this_program as this_file};
use super::family::{cpu_ns, descendants};
use super::hog::{self, Rank};
use super::load::{Load, folder_on_disk};
use super::probe::Probe;
use crate::child::{Child, Log};
use crate::client::Format;
use crate::show;
use figures::{Figures, Row, Series};

/// How much does harvest slow a render down on this host?
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Seconds of one measurement; each figure is the median of several.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Measurements with harvest per row; there are three times as many without.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// What the render wants, and the harvested work too [default: each in turn]. May be given
    /// often.
    #[arg(long, value_enum)]
    probe: Vec<Load>,
    /// How the render comes [default: each in turn]. May be given often.
    #[arg(long, value_enum)]
    case: Vec<Case>,
    /// Whether the agent gives way to what no hook announced, as it does unless its owner says
    /// otherwise.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    give_way: bool,
    #[command(flatten)]
    how: How,
}

/// How a render comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Case {
    /// A hook announces it, on all cores.
    Announced,
    /// A hook announces it, on half of the cores; the other half is harvested on.
    Half,
    /// Nobody announces it; it is measured from its second second on.
    Unannounced,
}

impl Case {
    const ALL: [Self; 3] = [Self::Announced, Self::Half, Self::Unannounced];

    /// Threads of the render on a host with so many cores.
    fn threads(self, cores: u32) -> u32 {
        match self {
            Self::Announced | Self::Unannounced => cores,
            Self::Half => (cores / 2).max(1),
        }
    }

    /// For how long the render runs before it is measured.
    const fn lead(self) -> Span {
        match self {
            Self::Announced | Self::Half => Span::ZERO,
            Self::Unannounced => Span::from_secs(1),
        }
    }
}

/// What is beside the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Gleaner,
    Hogs(Rank),
}

/// One row's measurements, in their order. Each with something is between two without.
const ROUND: [Beside; 6] = [
    Beside::Nothing,
    Beside::Gleaner,
    Beside::Nothing,
    Beside::Hogs(Rank::Nice19),
    Beside::Nothing,
    Beside::Hogs(Rank::SchedIdle),
];

/// CPU time after which a hog is set up and at work, in nanoseconds.
const AT_WORK_NS: u64 = 20_000_000;
/// Pause between two looks at what goes on beside the probe.
const LOOK: Duration = Duration::from_millis(250);

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = folder_on_disk()?;
    let cores = std::thread::available_parallelism().context("this host has no cores")?;
    let trial = Trial {
        bench: Bench::start(folder.path()).await?,
        folder: folder.path().to_owned(),
        program: this_program()?,
        cores: u32::try_from(cores.get()).context("too many cores")?,
        span: Span::from_secs(args.seconds),
        rounds: args.rounds,
        isolation: args.how.isolation,
        give_way: args.give_way,
    };
    let figures = trial.measure(&args).await?;
    trial.bench.shut_down().await;
    match args.how.format {
        Format::Json => show::json(&figures),
        Format::Table => figures.print(),
    }
    Ok(ExitCode::SUCCESS)
}

fn this_program() -> anyhow::Result<String> {
    let path = this_file()?;
    path.into_os_string().into_string().ok().context("the path of this program is not UTF-8")
}

/// What all measurements share.
struct Trial {
    bench: Bench,
    folder: PathBuf,
    program: String,
    cores: u32,
    span: Span,
    rounds: u32,
    isolation: Isolation,
    give_way: bool,
}

impl Trial {
    async fn measure(&self, args: &Args) -> anyhow::Result<Figures> {
        let or_all =
            |given: &[Load]| if given.is_empty() { Load::ALL.to_vec() } else { given.into() };
        let cases = if args.case.is_empty() { Case::ALL.to_vec() } else { args.case.clone() };
        let loads = or_all(&args.probe);
        let count = loads.len() * cases.len() * ROUND.len() * args.rounds as usize;
        let progress = show::progress(count as u64, "measurements");
        let mut figures = Figures::new(self.cores);
        for load in loads {
            for case in &cases {
                progress.set_message(format!("{load} {}", figures::name_of(*case)));
                let row = self.row(load, *case, &progress, &mut figures.backend).await?;
                figures.rows.push(row);
            }
        }
        progress.finish_and_clear();
        Ok(figures)
    }

    async fn row(
        &self,
        load: Load,
        case: Case,
        progress: &ProgressBar,
        backend: &mut String,
    ) -> anyhow::Result<Row> {
        let mut words = vec![self.program.clone()];
        words.extend(hog::Args::words(load, self.cores, Rank::AsStarted));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let hogs = Workunits::Count(self.cores);
        let job = self.bench.submit(Bench::command(&words), hogs, OnRelease::Kill).await?;
        let place = self.folder.join("probe");
        let probe = Probe::new(load, case.threads(self.cores), &place);
        let mut probe = probe.with_context(|| format!("cannot set up the {load} probe"))?;
        let mut series = Series::default();
        for _ in 0..self.rounds {
            for beside in ROUND {
                probe = match beside {
                    Beside::Nothing => {
                        let (probe, rate) = self.observe(probe, case).await?;
                        series.off.push(rate);
                        probe
                    }
                    Beside::Gleaner => {
                        let on = self.beside_gleaner(probe, load, case, backend).await?;
                        series.on.push(on.rate);
                        series.harvested.push(on.harvested);
                        on.probe
                    }
                    Beside::Hogs(rank) => {
                        let (probe, rate) = self.beside_hogs(probe, load, case, rank).await?;
                        match rank {
                            Rank::Nice19 => series.nice19.push(rate),
                            _ => series.sched_idle.push(rate),
                        }
                        probe
                    }
                };
                progress.inc(1);
            }
        }
        let _: gleaner_protocol::api::JobStatus =
            self.bench.client.delete(&format!("/v1/jobs/{job}")).await?;
        Ok(series.row(load, case))
    }

    /// The probe's rate while nothing is started beside it. Its threads run on others than this
    /// one.
    async fn observe(&self, mut probe: Probe, case: Case) -> anyhow::Result<(Probe, f64)> {
        let (lead, span) = (case.lead(), self.span);
        let measured = tokio::task::spawn_blocking(move || {
            let rate = probe.measure(lead, span);
            rate.map(|rate| (probe, rate))
        });
        measured.await.context("the probe panicked")?.context("the probe")
    }

    async fn beside_gleaner(
        &self,
        probe: Probe,
        load: Load,
        case: Case,
        backend: &mut String,
    ) -> anyhow::Result<On> {
        let settings = AgentSettings {
            cores: self.cores,
            isolation: self.isolation,
            give_way: self.give_way,
            program: &self.program,
        };
        let agent = self.bench.agent(&settings).await?;
        *backend = self.bench.standing()?.isolation;
        let all = self.cores as usize;
        self.bench.until("every core to be harvested", |run| at_work(run, load) >= all).await?;
        match case {
            Case::Announced => self.bench.hook("preflight", BOOKING, None).await?,
            Case::Half => {
                let threads = case.threads(self.cores);
                self.bench.hook("preflight", BOOKING, Some(threads)).await?;
            }
            Case::Unannounced => {}
        }
        let measured = self.observe(probe, case);
        let (measured, harvested) = self.beside(measured, case).await;
        let (probe, rate) = measured?;
        if case != Case::Unannounced {
            self.bench.hook("postflight", BOOKING, None).await?;
        }
        end(agent).await;
        Ok(On { probe, rate, harvested })
    }

    /// How many cores' worth of hogs worked beside what is awaited, on average.
    async fn beside<T>(&self, awaited: impl Future<Output = T>, case: Case) -> (T, f64) {
        let mut awaited = std::pin::pin!(awaited);
        let lead = tokio::time::sleep(case.lead().into());
        tokio::select! {
            // Too early, which is a failure of what is awaited.
            done = &mut awaited => return (done, 0.0),
            () = lead => {}
        }
        let begun = boottime();
        let (mut before, mut worked_ns) = (work_of(&self.bench.run_dir), 0);
        loop {
            let is_over = tokio::select! {
                done = &mut awaited => Some(done),
                () = tokio::time::sleep(LOOK) => None,
            };
            let now = work_of(&self.bench.run_dir);
            for (group, ns) in &now {
                let earlier = before.iter().find(|(other, _)| other == group);
                worked_ns += ns.saturating_sub(earlier.map_or(0, |(_, earlier)| *earlier));
            }
            before = now;
            if let Some(done) = is_over {
                let span = boottime().since(begun).as_micros().max(1);
                return (done, worked_ns as f64 / 1_000.0 / span as f64);
            }
        }
    }

    async fn beside_hogs(
        &self,
        probe: Probe,
        load: Load,
        case: Case,
        rank: Rank,
    ) -> anyhow::Result<(Probe, f64)> {
        let mut hogs = Vec::new();
        for index in 0..self.cores {
            hogs.push(self.start_hog(load, rank, index)?);
        }
        for hog in &mut hogs {
            hog.line(PATIENCE).await?;
        }
        // Those that are dropped are killed, and waited for.
        self.observe(probe, case).await
    }

    fn start_hog(&self, load: Load, rank: Rank, index: u32) -> anyhow::Result<Child> {
        let words = hog::Args::words(load, self.cores, rank);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = gleaner(&words)?;
        command.arg("--folder").arg(self.folder.join(format!("hog-{index}")));
        Child::start("a hog", command, &log_of(&self.folder)?)
    }
}

/// A measurement beside harvested work.
struct On {
    probe: Probe,
    rate: f64,
    /// Cores' worth of hogs that worked meanwhile, on average.
    harvested: f64,
}

/// The render's name.
const BOOKING: &str = "probe";

fn log_of(folder: &Path) -> anyhow::Result<Log> {
    Log::create(folder, "hogs")
}

/// Harvested hogs that are set up.
fn at_work(run_dir: &RunDir, load: Load) -> usize {
    let written = |pgid| -> u64 {
        descendants(pgid).into_iter().map(|pid| ProcessIo::of(pid).written_bytes).sum()
    };
    let works =
        |(pgid, ns): &(i32, u64)| *ns >= AT_WORK_NS && written(*pgid) >= load.written_at_work();
    work_of(run_dir).into_iter().filter(works).count()
}

/// What has been started in each slot, and the CPU time that it has had, in nanoseconds.
fn work_of(run_dir: &RunDir) -> Vec<(i32, u64)> {
    let groups = run_dir.groups().unwrap_or_default();
    let used = |pgid| descendants(pgid).into_iter().map(cpu_ns).sum();
    groups.into_iter().map(|group| (group.pgid, used(group.pgid))).collect()
}
