//! `gleaner bench`: what parts of it take on this machine.

mod farm;
mod link;
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
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Views(args) => views::run(args),
    }
}
