//! `gleaner stop`: ends all harvest on this host, and keeps it ended until it is lifted.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use gleaner_hooks::{STATE_DIR_VARIABLE, StopMark, StopOutcome, stop_host};

use crate::client::Format;
use crate::show;

/// Ends all harvest on this host at once, and keeps it ended, across restarts and boots, until it
/// is lifted. Needs neither broker nor agent. An administrator may as well make the file
/// /var/lib/gleaner/stopped, which every agent of the machine obeys.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lifts the stop.
    #[arg(long)]
    lift: bool,
    /// Stops, or lifts, only the agent of this run folder [default: every agent, of the whole
    /// machine as root, else of this user].
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// table for people, json for programs.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let only_run = args.run_dir.is_some();
    let usual = || {
        let variable = std::env::var_os("GLEANER_RUN_DIR").map(PathBuf::from);
        variable.unwrap_or_else(|| gleaner_agent::Config::default().run_dir())
    };
    let run_dir = args.run_dir.clone().unwrap_or_else(usual);
    let mark = StopMark::of(&run_dir);
    // Where the mark of a part of a machine only is put, the rest is none of ours.
    let whole_machine = !only_run && std::env::var_os(STATE_DIR_VARIABLE).is_none();
    if args.lift {
        let lifted = mark.lift(only_run)?;
        gleaner_hooks::tell_of_stop(&run_dir);
        return say_lifted(args.format, &lifted, &mark);
    }
    let outcome = stop_host(&run_dir, &mark, only_run, whole_machine);
    match args.format {
        Format::Json => show::json(&outcome),
        Format::Table => print(&outcome, only_run),
    }
    if !outcome.troubles.is_empty() {
        bail!("{}", outcome.troubles.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

fn say_lifted(format: Format, lifted: &[PathBuf], mark: &StopMark) -> anyhow::Result<ExitCode> {
    match format {
        Format::Json => show::json(&lifted),
        Format::Table if lifted.is_empty() => show::line("nothing was stopped"),
        Format::Table => {
            for path in lifted {
                show::line(format!("{} is lifted", path.display()));
            }
        }
    }
    if let Some(left) = mark.look() {
        bail!("harvest is still stopped by {}", left.path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whose harvest a stop ends.
fn whose(only_run: bool) -> &'static str {
    match (only_run, rustix::process::geteuid().is_root()) {
        (true, _) => "the harvest of this run folder's agent",
        (false, true) => "all harvest on this host",
        (false, false) => "the harvest of this user's agents",
    }
}

fn print(outcome: &StopOutcome, only_run: bool) {
    let (groups, harvest) = (outcome.stopped, whose(only_run));
    if outcome.marks.is_empty() {
        show::line(format!("{groups} task groups were ended; more may begin"));
        return;
    }
    show::line(format!("{harvest} is stopped; {groups} task groups were ended"));
    for path in &outcome.marks {
        show::line(format!("it stays so while {} is there", path.display()));
    }
    if !only_run && !outcome.outlives_boot {
        show::line("it will not outlive a boot: the mark that would could not be put");
    }
    show::line("`gleaner stop --lift` lifts it");
}
