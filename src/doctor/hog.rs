//! A process that takes one resource for ever: harvested, or beside the probe without Gleaner.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use gleaner_hooks::{SchedulingClass, set_scheduling_class};

use super::load::{Load, Worker};

/// How a hog ranks beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Rank {
    /// As it was started: harvested work has been put last already.
    AsStarted,
    /// At the lowest niceness.
    Nice19,
    /// In the idle scheduling class.
    SchedIdle,
}

/// Which one.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What it takes.
    #[arg(value_enum)]
    load: Load,
    /// How many there are of it.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// How it ranks beside others.
    #[arg(long, value_enum, default_value = "as-started")]
    rank: Rank,
    /// Folder for its files.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

impl Args {
    /// As a hidden command line of this program.
    pub(super) fn words(load: Load, threads: u32, rank: Rank) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let (load, rank) = (
            name(clap::ValueEnum::to_possible_value(&load)),
            name(clap::ValueEnum::to_possible_value(&rank)),
        );
        let words = ["doctor", "hog", &load, "--threads", &threads.to_string(), "--rank", &rank];
        words.map(str::to_owned).to_vec()
    }
}

/// Never returns but with an error.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.rank {
        Rank::AsStarted => {}
        Rank::Nice19 => {
            rustix::process::setpriority_process(None, 19).context("cannot be nice")?;
        }
        Rank::SchedIdle => {
            let is_set = set_scheduling_class(0, SchedulingClass::Idle);
            anyhow::ensure!(is_set, "the idle scheduling class is refused");
        }
    }
    let mut worker = Worker::new(args.load, args.threads, &args.folder)
        .with_context(|| format!("cannot set up a {} hog", args.load))?;
    writeln!(stdout(), "ready").and_then(|()| stdout().flush()).context("nobody listens")?;
    loop {
        worker.turn().with_context(|| format!("a {} hog", args.load))?;
    }
}
