//! `gleaner doctor`: what isolates harvested work on this host, and how fast it is gone.

mod release;

use std::process::ExitCode;

use gleaner_agent::Isolation;
use gleaner_isolation::{Enclosure, Report};

use crate::client::Format;
use crate::{process, show};

/// Says which control groups isolate harvested work on this host, what is missing, what that
/// costs, and the command that mends it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    measure: Option<Measure>,
    /// The way of isolation to look at: auto, cgroup2, cgroup1 or process-groups.
    #[arg(long, default_value = "auto", value_name = "WAY")]
    isolation: Isolation,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Measure {
    /// Measures how long harvested work takes to stop when a render starts: a real broker, a real
    /// agent and the real hook, judged from outside.
    Release(release::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.measure {
        Some(Measure::Release(args)) => process::block_on(release::run(args)),
        None => {
            let trial = Enclosure::open(args.isolation, &format!("doctor-{}", std::process::id()));
            let report = trial.report();
            trial.remove()?;
            match args.format {
                Format::Json => show::json(&report),
                Format::Table => print(&report),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn print(report: &Report) {
    show::line(format_args!("harvested work is isolated by {}", report.backend));
    let rows = report.abilities.iter().map(|one| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        [
            one.ability.to_string(),
            one.provider.map_or_else(|| "missing".into(), |provider| provider.to_string()),
            or_dash(one.why.clone()),
            or_dash(one.cost.map(Into::into)),
            or_dash(one.mend.clone()),
        ]
    });
    let header = ["ability", "granted by", "why not", "what that costs", "what mends it"];
    show::line(show::table(header, rows.collect()));
}
