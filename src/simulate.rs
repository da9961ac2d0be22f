//! `gleaner simulate`.

mod list;
mod plot_file;
mod progress;
mod promises;
mod storm;
mod table;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use gleaner_simulator::{Experiment, Seeds, plot, policies, scenario_named, settings};

use self::plot_file::PlotFile;
use crate::client::Format;
use crate::failure::Failure;
use crate::show;

/// Runs a modelled farm under the published policies, those that they were measured against, and
/// ours, and shows them side by side with the bound that no policy can beat.
///
/// The policies are those of the broker, in the broker's own scheduling core. The same seed and
/// parameters give the same bytes of output on any machine.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
#[command(subcommand_value_name = "OTHER", subcommand_help_heading = "Instead of a scenario")]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// What to run; --list has the names.
    #[arg(required_unless_present = "list")]
    scenario: Option<String>,
    /// Lists the scenarios, or SCENARIO alone: parameters with units, defaults, ranges and where
    /// they come from; policies; metrics.
    #[arg(long, conflicts_with_all = ["policy", "seed", "seeds", "set", "log", "measure", "plot"])]
    list: bool,
    /// A policy, or all. May be given often.
    #[arg(long, value_name = "NAME", default_value = "all", value_delimiter = ',')]
    policy: Vec<String>,
    /// Where all chance comes from.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// A run for each seed from A to before B, as 0..30; shows means and 95 % confidence
    /// intervals.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Sets a parameter of the scenario. May be given often.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A recorded farm to replay; the same as --set log=FILE.
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
    /// Also measures what scheduling costs; what is measured differs from run to run.
    #[arg(long)]
    measure: bool,
    /// Draws the comparison, a chart for each metric, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How many seeds may run at once [default: as many as there are cores].
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Storms of faults over broker, monitors, agents and hooks: every invariant after every
    /// event, and all work ends when the faults do.
    Storm(storm::Args),
    /// Deadline jobs on a recorded farm: who promises what, and how much of it is kept.
    Promises(promises::Args),
}

const HELP: &str = "\
Examples:
  gleaner simulate --list mixed-npairs
  gleaner simulate mixed-npairs --plot npairs.svg
  gleaner simulate fragment-short --policy plain,gleaner --seeds 0..30 --set faulty_share=0.01
  gleaner simulate replay --log farm.log
  gleaner simulate promises --log farm.log --format json

JSON (--format json), of one seed:
  {\"scenario\": NAME, \"seed\": N, \"parameters\": {KEY: VALUE, …}, \"bound\": {METRIC: NUMBER, …},
   \"policies\": {NAME: {METRIC: NUMBER, …}, …}}
Of studio, \"lanes\": {LANE: {METRIC: NUMBER, …}, …}, \"lost\": NUMBER stands for \"policies\".
Of several, \"seeds\": \"A..B\" stands for \"seed\", and each NUMBER is
  {\"mean\": …, \"ci95\": …, \"min\": …, \"max\": …, \"count\": …}
where the true mean is within ci95 of the mean in 95 of 100 cases, and count is how many seeds
brought a number. A metric that is not defined (the latency of no job) is left out.

Exit codes:
  0  done
  1  it failed: an invariant did not hold in a storm, a plot cannot be written
  2  a scenario, policy, parameter or file that is named is none";

pub(crate) fn run(args: Args, quiet: bool) -> anyhow::Result<ExitCode> {
    match args.other {
        Some(Other::Storm(storm)) => return storm::run(&storm, quiet),
        Some(Other::Promises(promises)) => return promises::run(promises, quiet),
        None => {}
    }
    if args.list {
        return list::run(args.scenario.as_deref(), args.format);
    }
    let name = args.scenario.as_deref().expect("the command line asks for one");
    let experiment = experiment(name, &args)?;
    let plot_file = args.plot.as_deref().map(PlotFile::prepare).transpose()?;
    let shown = progress::Shown::begin(quiet);
    let comparison = experiment.run(&shown).map_err(usage)?;
    shown.end();
    if let Some(file) = plot_file {
        file.write(&plot(experiment.scenario, &comparison))?;
    }
    match args.format {
        Format::Json => show::json(&comparison),
        Format::Table => table::print(experiment.scenario, &comparison),
    }
    Ok(ExitCode::SUCCESS)
}

fn experiment(name: &str, args: &Args) -> anyhow::Result<Experiment> {
    let scenario = scenario_named(name)
        .map_err(|error| Failure::Usage(format!("{error} (gleaner simulate --list has all)")))?;
    let log = args.log.as_ref().map(|path| format!("log={path}"));
    let set = args.set.iter().map(String::as_str).chain(log.as_deref());
    let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Ok(Experiment {
        scenario,
        settings: settings(scenario, set).map_err(usage)?,
        policies: policies(scenario, args.policy.iter().map(String::as_str)).map_err(usage)?,
        seeds: args.seeds.clone().unwrap_or(Seeds::One(args.seed)),
        measure: args.measure,
        threads: args.threads.unwrap_or_else(cores),
    })
}

/// What the user has to say otherwise.
fn usage(error: impl std::error::Error) -> Failure {
    Failure::Usage(error.to_string())
}
