//! `gleaner demo`: the whole thing at work on this machine.
//!
//! A broker, a monitor, three farm hosts and three desktop hosts run as real processes on
//! loopback. A stand-in farm manager renders the same frames twice: first without harvest, then
//! with the real hooks before and after each while a submitter has chess positions counted on
//! what is left. Everything is measured from outside, and every count is compared with the
//! published one.
//!
//! A result counts as right or wrong per position, once all its workunits are decided: what was
//! published is the number of a whole position.

mod cluster;
mod farm;
mod figures;
mod folders;
mod frame;
mod others;
mod plan;
mod positions;
pub(crate) mod render;
mod renderer;
mod show;
mod submitter;
mod table;
mod vector;
mod view;
mod volume;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use gleaner_protocol::{Span, boottime};
use tokio::sync::watch;

use self::cluster::Cluster;
use self::farm::{Farm, FarmLogs, FarmPhase};
use self::figures::Figures;
use self::folders::Folders;
use self::frame::Size;
use self::plan::{Plan, Sizing};
use self::renderer::{RenderChoice, Renderer};
use self::show::Show;
use self::submitter::Submitter;
use crate::client::Format;
use crate::failure::Failure;
use crate::process;

/// Shows the whole thing at work on this machine: renders the same frames without and with
/// harvest, and measures what that costs the renders and what it yields.
///
/// The exit code is 1 if a result is wrong, an accepted workunit or result is lost, or a frame
/// that was rendered beside harvested work differs or had such work on its cores.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// How long it may take.
    #[arg(long, default_value_t = 45.0, value_name = "SECONDS")]
    seconds: f64,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
    /// What the farm renders.
    #[arg(long, default_value = "volume", value_name = "RENDERER")]
    render: RenderChoice,
    /// Folder to put the rendered frames and all logs into; it may not exist yet.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Shortest demo in which each host renders and rests.
const SECONDS_MIN: f64 = 15.0;
const SECONDS_MAX: f64 = 3600.0;
/// What is not rendering: starting, measuring the first frame, asking for all results.
const OVERHEAD: Span = Span::from_millis(4_500);
/// How long one frame should take on the idle machine.
const FRAME_TARGET: Span = Span::from_millis(500);
/// Pictures have this ratio of width to height.
const ASPECT: f64 = 4.0 / 3.0;
/// A first picture, to measure how fast this machine is.
const PROBE_SIZE: Size = Size { width: 96, height: 72 };
/// Longest side of a frame.
const WIDTH_MAX: f64 = 960.0;
const WIDTH_MIN: f64 = 32.0;
/// Exit code after SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs it.
pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&args.seconds) {
        let range = format!("must be from {SECONDS_MIN} to {SECONDS_MAX}");
        return Err(Failure::Usage(format!("--seconds is {}, {range}", args.seconds)).into());
    }
    let renderer = Renderer::find(args.render)?;
    let folders = Folders::make(args.keep.as_deref())?;
    let length = Span::from_micros((args.seconds * 1e6) as u64);
    let show = Show::begin(length);
    let outcome = tokio::select! {
        outcome = play(length, &renderer, &folders, &show) => outcome.map(Some),
        () = process::stopped() => Ok(None),
        () = terminal_closed() => Ok(None),
    };
    show.end();
    let Some(Played { figures, others, complaints }) = outcome? else {
        eprintln!("stopped");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    match args.format {
        Format::Json => crate::show::json(&figures),
        Format::Table => println!("{}", table::of(&figures)),
    }
    if let Some(others) = &others {
        eprintln!("note: {others}");
    }
    for complaint in &complaints {
        eprintln!("error: {complaint}");
    }
    let good = complaints.is_empty() && figures.results_wrong == 0 && figures.lost == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ends when the terminal is gone, or whoever else sends SIGHUP.
async fn terminal_closed() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup()).expect("a handler can be installed");
    hangup.recv().await;
}

struct Played {
    figures: Figures,
    /// What other programs did to the harvest, where that shows.
    others: Option<String>,
    /// What should not have been.
    complaints: Vec<String>,
}

async fn play(
    length: Span,
    renderer: &Renderer,
    folders: &Folders,
    show: &Show,
) -> anyhow::Result<Played> {
    let began = boottime();
    let machine_cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sizing = Sizing::of_machine(u32::try_from(machine_cores).unwrap_or(u32::MAX));
    show.phase("starting a broker, a monitor and six agents", 0);
    let (cluster, mut parts) = Cluster::start(folders, sizing.host_cores).await?;
    show.pages(&cluster.broker_url);
    show.view(&view::open(&cluster, folders).await?);
    show.hosts_ready(&cluster.hosts);
    let act = async {
        let threads = sizing.render_threads;
        let logs = FarmLogs::create(&folders.logs)?;
        let mut farm = Farm { cluster: &cluster, renderer, size: PROBE_SIZE, threads, logs, show };
        let frame_took = fit_frames(&mut farm, folders).await?;
        let left = Span::from_micros(length.as_micros().saturating_sub(OVERHEAD.as_micros()));
        let phase = Span::from_micros(left.as_micros() / 2);
        let plan = Plan::new(phase, cluster.farm().len(), sizing, frame_took);
        show.phase(&format!("farm alone: {}", renderer.subject()), plan.frames.len());
        let without = farm.render_all(&plan, &folders.without, false).await?;
        show.phase("farm and harvest", plan.frames.len());
        let (with, figures) = with_harvest(&farm, &plan, folders, &without, sizing).await?;
        let complaints = complaints(&plan, &with, folders)?;
        let completed = figures.workunits_completed;
        let others = others::told(&without, sizing.machine_cores, completed);
        anyhow::Ok(Played { figures, others, complaints })
    };
    let outcome = tokio::select! {
        outcome = act => outcome,
        death = parts.first_death() => Err(death),
    };
    parts.shut_down().await;
    tracing::debug!("the demo took {}", boottime() - began);
    outcome
}

/// Chooses the size of the frames so that each takes about half a second here; how long it does.
async fn fit_frames(farm: &mut Farm<'_>, folders: &Folders) -> anyhow::Result<Span> {
    let probe = folders.scratch().join("probe.png");
    farm.size = match farm.renderer.fixed_size() {
        Some(size) => size,
        None => {
            let took = farm.measure(0, PROBE_SIZE, &probe).await?;
            let scale = FRAME_TARGET.as_secs_f64() / took.as_secs_f64().max(1e-4);
            let pixels = (PROBE_SIZE.width * PROBE_SIZE.height) as f64 * scale;
            let width = (pixels * ASPECT).sqrt().clamp(WIDTH_MIN, WIDTH_MAX);
            Size { width: width as usize, height: (width / ASPECT) as usize }
        }
    };
    farm.measure(0, farm.size, &probe).await
}

async fn with_harvest(
    farm: &Farm<'_>,
    plan: &Plan,
    folders: &Folders,
    without: &FarmPhase,
    sizing: Sizing,
) -> anyhow::Result<(FarmPhase, Figures)> {
    let slots = farm.cluster.hosts.iter().map(|host| host.cores).sum();
    let mut submitter = Submitter::new(&farm.cluster.broker_url, slots, farm.show)?;
    let (stop, stopped) = watch::channel(false);
    let rendering = async {
        let with = farm.render_all(plan, &folders.with, true).await;
        stop.send_replace(true);
        with
    };
    let (with, submitted) = tokio::join!(rendering, submitter.keep_busy(stopped));
    let with = with?;
    submitted?;
    let harvest = submitter.account().await?;
    let figures = Figures::new(without, &with, &harvest, sizing.machine_cores);
    Ok((with, figures))
}

/// What the renders have noticed of the harvest, which should be nothing.
fn complaints(plan: &Plan, with: &FarmPhase, folders: &Folders) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (frame, run) in plan.frames.iter().zip(&with.frames) {
        let number = frame.number;
        let path = |folder: &Path| farm::frame_path(folder, number);
        if !renderer::same_pixels(&path(&folders.without), &path(&folders.with))? {
            complaints.push(format!("frame {number} has other pixels with harvest than without"));
        }
        if run.release.is_some_and(|release| release.unfinished) {
            complaints.push(format!("frame {number}: harvested work was not stopped"));
        }
        if run.intruders > 0 {
            let intruders = run.intruders;
            complaints.push(format!("frame {number}: {intruders} replicas ran on its cores"));
        }
    }
    Ok(complaints)
}
