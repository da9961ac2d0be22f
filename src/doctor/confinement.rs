//! `gleaner doctor confinement`: what confines each kind of work on this host, found out by trials.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_agent::{Config, RunnerConfinement, Seen, confinement_of_each, find_gpu};
use serde::Serialize;

use crate::client::Format;
use crate::{process, show};

/// What of it, and how to print it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The agent's configuration, whose table `commands` holds; the defaults where not given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What was found out.
#[derive(Debug, Serialize)]
struct Found {
    /// How it was found out.
    found_by: &'static str,
    /// By kinds of work.
    runners: Vec<RunnerConfinement>,
    /// Why work with the GPU was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpu: Option<String>,
}

const FOUND_BY: &str = "a runner of each kind, started by this user, looked from inside";

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_toml(&text).with_context(|| format!("in {}", path.display()))?
        }
        None => Config::default(),
    };
    let program = Path::new("/proc/self/exe");
    let folder = tempfile::tempdir()?;
    let no_gpu = process::block_on(async { Ok(find_gpu(program, None).await.err()) })?;
    let folder = folder.path().join("trial");
    let runners = confinement_of_each(&config, program, &folder, no_gpu.is_none())?;
    let found = Found { found_by: FOUND_BY, runners, no_gpu };
    match args.format {
        Format::Json => show::json(&found),
        Format::Table => print(&found),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(found: &Found) {
    show::line(format_args!("found out so: {}", found.found_by));
    let header = ["work", "user", "network", "filter", "files", "processes", "memory", "runs here"];
    let rows = found.runners.iter().map(row).collect();
    show::table(header, rows);
    if let Some(why) = &found.no_gpu {
        show::line(format_args!("work with the GPU was not tried: {why}"));
    }
}

fn row(one: &RunnerConfinement) -> [String; 8] {
    let runs = match (&one.refused, &one.trouble) {
        (Some(reason), _) => format!("refused: {reason}"),
        (None, Some(trouble)) => format!("the trial failed: {trouble}"),
        (None, None) => "yes".to_owned(),
    };
    let of = |say: &dyn Fn(&Seen) -> String| one.seen.as_ref().map_or_else(|| "?".into(), say);
    let most = |limit: Option<u64>, unit: &str| {
        limit.map_or_else(|| "no limit of its own".to_owned(), |most| format!("{most}{unit}"))
    };
    [
        one.kind.to_string(),
        of(&|seen| seen.uid.to_string()),
        of(&|seen| if seen.network_sockets { "yes" } else { "none" }.to_owned()),
        of(&|seen| if seen.filter && seen.no_new_privs { "yes" } else { "none" }.to_owned()),
        of(&|seen| files(one, seen)),
        of(&|seen| most(seen.process_limit, "")),
        of(&|seen| most(seen.memory_limit_mib, " MiB")),
        runs,
    ]
}

fn files(one: &RunnerConfinement, seen: &Seen) -> String {
    if seen.reads_host_files {
        return "this host's".to_owned();
    }
    let by = [(one.own_root, "a root of its own"), (one.landlock, "Landlock")];
    let by: Vec<_> = by.into_iter().filter_map(|(is_used, by)| is_used.then_some(by)).collect();
    by.join(", ")
}
