//! `gleaner completions`.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::show;

/// Prints what a shell needs to complete command lines of gleaner.
///
/// For bash into ~/.local/share/bash-completion/completions/gleaner, for fish into
/// ~/.config/fish/completions/gleaner.fish, for zsh into _gleaner in a folder of $fpath.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&Cli::command()), "gleaner", &mut text);
    show::script(String::from_utf8_lossy(&text).trim_end());
    ExitCode::SUCCESS
}

/// The command without what is hidden from its help, which no generator leaves out by itself.
fn shown(command: &Command) -> Command {
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown);
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned())
        .subcommands(subcommands)
}
