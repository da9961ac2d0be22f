//! `gleaner bench move-interference`: how much longer a render takes beside a copy of a chunk that moves, and
//! after its preflight hook has cut that.
//!
//! A render's stand-in does the same amount of work again and again: it computes, and reads a file that the
//! page cache has. In each round it does so alone, beside a move, alone, and after a preflight; each other round
//! the other way round, so that whatever else the machine does falls on all alike. A figure is the median of the
//! rounds' ratios to what it took alone in the same round, and the interval in which that median is with 95 %,
//! whatever the ratios' distribution.

mod ratios;
mod render;

use std::process::ExitCode;

use anyhow::{Context, ensure};
use gleaner_agent::Moving;
use gleaner_protocol::{Span, boottime};
use serde::Serialize;
use tokio::time::sleep;

use crate::client::Format;
use crate::doctor::folder_on_disk;
use crate::show;
use ratios::{ROUNDS_MIN, Ratio};
use render::Render;

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
    beside_move: Ratio,
    /// What it took after its preflight.
    after_preflight: Ratio,
    /// What it took alone of what it took alone in the same round: the noise.
    alone: Ratio,
    /// What moved beside renders.
    move_mib_per_s: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cores = std::thread::available_parallelism().context("this host has no cores")?;
    let threads = args.threads.unwrap_or(u32::try_from(cores.get()).unwrap_or(u32::MAX));
    let folder = folder_on_disk()?;
    let bytes = args.read_mib << 20;
    let span = Span::from_secs(args.seconds);
    let render = Render::new(threads, &folder.path().join("read"), bytes, span);
    let mut trial = Trial { render: render.context("cannot set up the render")?, moved: (0, 0.0) };
    let progress = show::progress(u64::from(args.rounds) * ROUND.len() as u64, "renders");
    let (mut alone, mut beside, mut cut, mut again) = (vec![], vec![], vec![], vec![]);
    crate::process::block_on(async {
        for round in 0..args.rounds {
            let mut took = [0.0; ROUND.len()];
            let mut places: Vec<usize> = (0..ROUND.len()).collect();
            if round % 2 == 1 {
                places.reverse();
            }
            for at in places {
                took[at] = trial.take(ROUND[at], folder.path()).await?;
                progress.inc(1);
            }
            let [first, moves, second, cuts] = took;
            let mean = f64::midpoint(first, second);
            alone.extend([first, second]);
            beside.push(moves / mean);
            cut.push(cuts / mean);
            again.push(second / first);
        }
        Ok(())
    })?;
    progress.finish_and_clear();
    let (bytes, seconds) = trial.moved;
    let figures = Figures {
        threads,
        rounds: args.rounds,
        alone_s: ratios::median(&alone),
        beside_move: Ratio::of(&beside),
        after_preflight: Ratio::of(&cut),
        alone: Ratio::of(&again),
        move_mib_per_s: bytes as f64 / f64::from(1 << 20) / seconds,
    };
    match args.format {
        Format::Json => show::json(&figures),
        Format::Table => figures.print(),
    }
    Ok(ExitCode::SUCCESS)
}

impl Figures {
    fn print(&self) {
        let Self { threads, rounds, alone_s, move_mib_per_s, .. } = self;
        show::line(format_args!(
            "a render of {threads} threads takes {alone_s:.2} s alone; {rounds} rounds; \
             {move_mib_per_s:.1} MiB/s moved, both ends of it on this machine"
        ));
        let rows = [
            ("beside a move", self.beside_move),
            ("after its preflight", self.after_preflight),
            ("alone, once more", self.alone),
        ];
        let percent = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
        let rows = rows.map(|(what, of)| {
            let interval = format!("{} to {}", percent(of.low), percent(of.high));
            [what.to_owned(), format!("{:.4}", of.median), percent(of.median), interval]
        });
        show::table(["the render", "of alone", "longer", "95 %"], rows.to_vec());
    }
}

struct Trial {
    render: Render,
    /// Bytes that moved beside renders, and in how many seconds.
    moved: (u64, f64),
}

impl Trial {
    /// What one render takes, in seconds.
    async fn take(&mut self, beside: Beside, folder: &std::path::Path) -> anyhow::Result<f64> {
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
        let carried = || moving.as_ref().map_or(0, Moving::bytes);
        let (before, begun) = (carried(), boottime());
        let render = self.render.clone();
        let done = tokio::task::spawn_blocking(move || render.run());
        done.await.context("the render panicked")?.context("the render")?;
        let (seconds, bytes) = (boottime().since(begun).as_secs_f64(), carried() - before);
        if beside == Beside::Move {
            self.moved = (self.moved.0 + bytes, self.moved.1 + seconds);
        }
        Ok(seconds)
    }
}
