//! `gleaner man`: the manual pages, made from the command line's own definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::show;

/// Writes the manual pages, one for each command: gleaner.1, gleaner-agent.1 and so on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to write them to, which is made where it is missing, such as
    /// /usr/local/share/man/man1.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A page for `help` of each would say nothing.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let version = command.render_version();
    let written = fs::create_dir_all(&args.dir).and_then(|()| {
        let mut pages = 0;
        write(command, version.trim(), &args.dir, &mut pages)?;
        Ok(pages)
    });
    let pages =
        written.with_context(|| format!("cannot write manual pages to {}", args.dir.display()))?;
    show::line(format_args!("{pages} pages in {}", args.dir.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(command: Command, version: &str, dir: &Path, pages: &mut usize) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write(sub.clone(), version, dir, pages)?;
    }
    Man::new(command).source(version).manual("Gleaner").generate_to(dir)?;
    *pages += 1;
    Ok(())
}
