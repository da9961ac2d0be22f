//! `gleaner bench`: what parts of it take on this machine.

mod farm;
mod link;
mod move_interference;
mod moves;
mod views;

use std::process::ExitCode;

/// Measures parts of it on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Turns volumes as people do in browsers, and says how many pictures come how soon.
    Views(views::Args),
    /// Fetches a copy of a chunk from several sources, one of them slow and one wrong.
    Moves(moves::Args),
    /// Measures how much longer a render takes beside a copy of a chunk that moves.
    MoveInterference(move_interference::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Views(args) => views::run(args),
        What::Moves(args) => moves::run(args),
        What::MoveInterference(args) => move_interference::run(&args),
    }
}
