//! `gleaner bench moves`: one copy of a chunk from three sources, of which one is slow and one sends a
//! wrong byte.

use std::process::ExitCode;

use anyhow::{Context, bail};
use gleaner_agent::{Manner, MeasuredSource, measure_cut, measure_move};
use serde::Serialize;

use crate::client::Format;
use crate::show;

/// Fetches a copy of a chunk from three sources on this machine: a good one, one that is slower, and one
/// that sends a wrong byte.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Size of the chunk, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    mib: u64,
    /// What the good source and the wrong one send a second, in MiB.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1024))]
    mib_per_s: u64,
    /// How many times slower the slow one is.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    slower: u64,
    /// Whether the sources call, as hosts do that nobody can call.
    #[arg(long)]
    push: bool,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Pieces that the wrong source sends before the wrong one.
const RIGHT_PIECES: u32 = 3;

/// What came of it.
#[derive(Debug, Serialize)]
struct Figures {
    seconds: f64,
    mib_per_s: f64,
    /// Of the rates of both sources that are right.
    share_of_good_rates: f64,
    mib_of_good: f64,
    mib_of_slow: f64,
    mib_of_wrong: f64,
    /// How long a preflight hook takes to cut the connections of a host that has as many as it can.
    cut_ms: f64,
    /// The sources that were given up, and why.
    given_up: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    crate::process::block_on(async {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let rate = args.mib_per_s << 20;
        let slow = (rate / args.slower).max(1);
        let source = |bytes_per_s, manner| MeasuredSource { bytes_per_s, manner, calls: args.push };
        let sources = [
            source(rate, Manner::Right),
            source(slow, Manner::Right),
            source(rate, Manner::WrongAfter(RIGHT_PIECES)),
        ];
        let bytes = usize::try_from(args.mib << 20).context("too large for this machine")?;
        let content: Vec<u8> =
            (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let moved = measure_move(content, &sources, &folder.path().join("chunk")).await;
        let moved = moved.context("cannot measure a move")?;
        if !moved.is_whole {
            bail!("the chunk did not come: {moved:?}");
        }
        let cut = measure_cut().await.context("cannot measure a cut")?;
        let mib = |source: usize| moved.sent[source] as f64 / f64::from(1 << 20);
        let speed = bytes as f64 / moved.seconds;
        let names = ["good", "slow", "wrong"];
        let given_up = moved.failed.iter();
        let figures = Figures {
            seconds: moved.seconds,
            mib_per_s: speed / f64::from(1 << 20),
            share_of_good_rates: speed / (rate + slow) as f64,
            mib_of_good: mib(0),
            mib_of_slow: mib(1),
            mib_of_wrong: mib(2),
            cut_ms: cut.as_secs_f64() * 1_000.0,
            given_up: given_up
                .map(|(at, fault)| format!("{} {}", names[*at], fault.as_str()))
                .collect(),
        };
        match args.format {
            Format::Json => show::json(&figures),
            Format::Table => {
                for line in serde_json::to_string_pretty(&figures)?.lines() {
                    show::line(line.trim_matches(['{', '}', ',', ' ']));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
