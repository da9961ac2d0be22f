//! `gleaner key`.

use std::process::ExitCode;

use crate::client::{Format, Options};
use crate::{process, show};

/// The broker's own key, with which it signs sessions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Has the broker make another one: all sessions end, and whoever has a key gets a new session by
    /// itself. For when somebody may have seen broker.key of its data folder.
    Rotate {
        #[command(flatten)]
        options: Options,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Rotate { options } = args.command;
    process::block_on(async {
        let key: String = options.client()?.post("/v1/key", &()).await?;
        match options.format() {
            Format::Json => show::json(&key),
            Format::Table => show::line(format!("the broker signs with {key} from now on")),
        }
        Ok(ExitCode::SUCCESS)
    })
}
