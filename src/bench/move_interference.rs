//! `gleaner bench move-interference`: how much longer a render takes beside a copy of a chunk that moves, and
//! after its preflight hook has cut that.
//!
//! A render's stand-in does the same amount of work again and again: it computes, and reads a file that the
//! page cache has. In each round it does so alone, beside a move, alone, and after a preflight; each other round
//! the other way round, so that whatever else the machine does falls on all alike. A figure is the median of the
//! rounds' ratios to what it took alone in the same round, and the interval in which that median is with 95 %,
//! whatever the ratios' distribution.
//!
//! The time counts on a machine that does nothing else. Where others want its cores, how these are shared out changes
//! with each thread more; the render's CPU time tells then at least of caches, memory and files.

mod ratios;
mod render;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use gleaner_agent::Moving;
use gleaner_protocol::{Span, boottime};
use rustix::time::ClockId;
use serde::Serialize;
use tokio::time::sleep;

use crate::client::Format;
use crate::doctor::folder_on_disk;
use crate::show;
use ratios::{ROUNDS_MIN, Ratio};
use render::{Render, cpu_seconds};

/// Measures how much longer a render takes beside a copy of a chunk that comes at an owner's default rate, and
/// after its preflight hook has cut that. The host that gives the copy is on this machine too, and takes of it
/// what it takes elsewhere otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds, of four renders each.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(ROUNDS_MIN..=1000))]
    rounds: u32,
    /// What a render takes alone, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Threads of the render [default: as many as there are cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Size of the file that it reads, in MiB.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
    read_mib: u64,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// How long a move goes on before what is measured beside it begins.
const LEAD: Span = Span::from_millis(300);

/// What is beside a render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Move,
    /// A move that its preflight hook has cut.
    CutMove,
}

/// One round.
const ROUND: [Beside; 4] = [Beside::Nothing, Beside::Move, Beside::Nothing, Beside::CutMove];

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    threads: u32,
    rounds: u32,
    /// What a render took alone (median).
    alone_s: f64,
    /// What a render took beside a move, of what it took alone.
    beside_move: Ratios,
    /// What it took after its preflight.
    after_preflight: Ratios,
    /// What it took alone of what it took alone in the same round: the noise.
    alone: Ratios,
    /// What moved beside renders.
    move_mib_per_s: f64,
    /// What that took of the cores, on both ends.
    move_cores: f64,
    /// What others took of the cores meanwhile.
    others_cores: f64,
}

/// Of the time from a render's begin to its end, and of its CPU time.
#[derive(Debug, Clone, Copy, Serialize)]
struct Ratios {
    time: Ratio,
    cpu: Ratio,
}

/// What a render took, or what it took of that, in time and CPU time.
type Took = [f64; 2];

impl Ratios {
    /// What was taken of what, in each round.
    fn of(rounds: &[(Took, Took)]) -> Self {
        let of = |which: usize| {
            let ratios = rounds.iter().map(|(took, alone)| took[which] / alone[which]);
            Ratio::of(&ratios.collect::<Vec<_>>())
        };
        Self { time: of(0), cpu: of(1) }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cores = std::thread::available_parallelism().context("this host has no cores")?;
    let threads = args.threads.unwrap_or(u32::try_from(cores.get()).unwrap_or(u32::MAX));
    let folder = folder_on_disk()?;
    let bytes = args.read_mib << 20;
    let span = Span::from_secs(args.seconds);
    let render = Render::new(threads, &folder.path().join("read"), bytes, span);
    let render = render.context("cannot set up the render")?;
    let mut trial = Trial { render, moved: Moved::default() };
    let progress = show::progress(u64::from(args.rounds) * ROUND.len() as u64, "renders");
    let mut rounds = Vec::new();
    let (begun, busy) = (boottime(), Busy::now()?);
    crate::process::block_on(async {
        for round in 0..args.rounds {
            let mut took = [Took::default(); ROUND.len()];
            let mut places: Vec<usize> = (0..ROUND.len()).collect();
            if round % 2 == 1 {
                places.reverse();
            }
            for at in places {
                took[at] = trial.take(ROUND[at], folder.path()).await?;
                progress.inc(1);
            }
            rounds.push(took);
        }
        Ok(())
    })?;
    progress.finish_and_clear();
    let others = Busy::now()?.others_since(&busy) / boottime().since(begun).as_secs_f64();
    let mean = |[a, b]: Took, [c, d]: Took| [f64::midpoint(a, c), f64::midpoint(b, d)];
    let of = |ratio: &dyn Fn(&[Took; ROUND.len()]) -> (Took, Took)| {
        Ratios::of(&rounds.iter().map(ratio).collect::<Vec<_>>())
    };
    let moved = trial.moved;
    let figures = Figures {
        threads,
        rounds: args.rounds,
        alone_s: ratios::median(&rounds.iter().map(|of| of[0][0]).collect::<Vec<_>>()),
        beside_move: of(&|[first, moves, second, _]| (*moves, mean(*first, *second))),
        after_preflight: of(&|[first, _, second, cut]| (*cut, mean(*first, *second))),
        alone: of(&|[first, _, second, _]| (*second, *first)),
        move_mib_per_s: moved.bytes as f64 / f64::from(1 << 20) / moved.seconds,
        move_cores: moved.cpu_seconds / moved.seconds,
        others_cores: others,
    };
    match args.format {
        Format::Json => show::json(&figures),
        Format::Table => figures.print(),
    }
    Ok(ExitCode::SUCCESS)
}

impl Figures {
    fn print(&self) {
        let Self { threads, rounds, alone_s, .. } = self;
        show::line(format_args!(
            "A render of {threads} threads takes {alone_s:.2} s alone; {rounds} rounds."
        ));
        show::line(format_args!(
            "{:.1} MiB/s moved, for {:.2} cores on both ends; others took {:.2} cores meanwhile.",
            self.move_mib_per_s, self.move_cores, self.others_cores
        ));
        let rows = [
            ("beside a move", self.beside_move),
            ("after its preflight", self.after_preflight),
            ("alone, once more", self.alone),
        ];
        let percent = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
        let rows = rows.map(|(what, of)| {
            let interval = |of: Ratio| format!("{} to {}", percent(of.low), percent(of.high));
            let [time, cpu] = [of.time, of.cpu].map(|of| (percent(of.median), interval(of)));
            [what.to_owned(), time.0, time.1, cpu.0, cpu.1]
        });
        show::table(["the render", "longer", "95 %", "CPU time", "95 %"], rows.to_vec());
    }
}

struct Trial {
    render: Render,
    moved: Moved,
}

/// What moved beside renders, and what that took.
#[derive(Debug, Default, Clone, Copy)]
struct Moved {
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Trial {
    async fn take(&mut self, beside: Beside, folder: &Path) -> anyhow::Result<Took> {
        let moving = match beside {
            Beside::Nothing => None,
            Beside::Move | Beside::CutMove => {
                Some(Moving::start(folder).await.context("nothing can move")?)
            }
        };
        // As long without one, so that all renders begin after the same rest.
        sleep(LEAD.into()).await;
        if let Some(moving) = &moving {
            ensure!(moving.bytes() > 0, "nothing moves within {LEAD}");
            if beside == Beside::CutMove {
                moving.cut();
            }
        }
        let bytes = || moving.as_ref().map_or(0, Moving::bytes);
        let own = || cpu_seconds(ClockId::ProcessCPUTime);
        let (before, own_before, begun) = (bytes(), own(), boottime());
        let render = self.render.clone();
        let done = tokio::task::spawn_blocking(move || render.run());
        let cpu = done.await.context("the render panicked")?.context("the render")?;
        let seconds = boottime().since(begun).as_secs_f64();
        if beside == Beside::Move {
            self.moved.bytes += bytes() - before;
            self.moved.seconds += seconds;
            self.moved.cpu_seconds += own() - own_before - cpu;
        }
        Ok([seconds, cpu])
    }
}

/// CPU time so far, in seconds.
struct Busy {
    all: f64,
    own: f64,
}

impl Busy {
    fn now() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let numbers = text.split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = numbers.map_while(|number| number.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else {
            bail!("/proc/stat begins with {:?}", text.lines().next())
        };
        let ticks = user + nice + system + irq + softirq + steal;
        let all = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self { all, own: cpu_seconds(ClockId::ProcessCPUTime) })
    }

    /// What others than this process have taken since.
    fn others_since(&self, before: &Self) -> f64 {
        ((self.all - before.all) - (self.own - before.own)).max(0.0)
    }
}
