//! `gleaner doctor`: what isolates harvested work on this host and confines its commands, which GPU
//! its owner could give, how fast harvested work is gone, how much renders suffer from it, and what
//! the agent itself takes.

mod bench;
mod confinement;
mod family;
mod hog;
mod idle;
mod interference;
mod load;
mod probe;
mod release;
mod told;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use gleaner_agent::{
    Config, Confinement, Isolation, MissingAbility, confinement, find_gpu, missing_abilities,
};
use gleaner_isolation::{Enclosure, Report};
use gleaner_protocol::GpuInfo;
use serde::Serialize;

use crate::agent::control;
use crate::client::Format;
use crate::{process, show};
pub(crate) use load::folder_on_disk;

/// Says which control groups isolate harvested work on this host, and what its kernel has to
/// confine commands with, for whoever asks: what is missing, what that costs, and what mends it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    measure: Option<Measure>,
    #[command(flatten)]
    how: How,
}

/// What all of it is asked.
#[derive(Debug, clap::Args)]
struct How {
    /// The way of isolation: auto, cgroup2, cgroup1 or process-groups.
    #[arg(long, default_value = "auto", value_name = "WAY")]
    isolation: Isolation,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Measure {
    /// Says for each kind of work (command, module, kernel, application, with the GPU) what confines
    /// it on this host, as some of each kind finds it in a runner that is started for that.
    Confinement(confinement::Args),
    /// Measures how long harvested work takes to stop when a render starts: a real broker, a real
    /// agent and the real hook, judged from outside.
    Release(release::Args),
    /// Measures how much slower a render runs because of harvested work that wants the same:
    /// arithmetic, memory or a disk; announced by the hook on all cores or on half of them, or
    /// not at all. Beside it the same work at niceness 19 and in the idle class, without Gleaner.
    Interference(interference::Args),
    /// Measures what the agent itself takes while it has nothing to run: CPU time and memory.
    Idle(idle::Args),
    /// What is harvested for the measurement of interference.
    #[command(hide = true)]
    Hog(hog::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.measure {
        Some(Measure::Confinement(args)) => confinement::run(&args),
        Some(Measure::Release(args)) => process::block_on(release::run(args)),
        Some(Measure::Interference(args)) => process::block_on(interference::run(args)),
        Some(Measure::Idle(args)) => process::block_on(idle::run(args)),
        Some(Measure::Hog(args)) => hog::run(&args),
        None => {
            let trial =
                Enclosure::open(args.how.isolation, &format!("doctor-{}", std::process::id()));
            let (isolation, missing_abilities) = (trial.report(), missing_abilities(&trial));
            trial.remove()?;
            let folder = tempfile::tempdir()?;
            let program = Path::new("/proc/self/exe");
            let commands = confinement(&Config::default(), program, &folder.path().join("trial"))?;
            let found = process::block_on(async { Ok(find_gpu(program, None).await) })?;
            let (gpu, no_gpu) = (found.as_ref().ok().cloned(), found.err());
            let (agent, pressure) = (control::isolation_here(), Pressure::here());
            match args.how.format {
                Format::Json => {
                    show::json(&Found {
                        agent,
                        isolation,
                        pressure,
                        missing_abilities,
                        commands,
                        gpu,
                        no_gpu,
                    });
                }
                Format::Table => {
                    print(agent.as_deref(), &isolation);
                    told::paragraph(&pressure.to_string());
                    print_missing_abilities(&missing_abilities);
                    print_commands(&commands);
                    print_gpu(gpu.as_ref(), no_gpu.as_deref());
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What was found out.
#[derive(Debug, Serialize)]
struct Found {
    /// What isolates the work of the agent that runs, if one does.
    agent: Option<String>,
    #[serde(flatten)]
    isolation: Report,
    pressure: Pressure,
    /// What an agent of whoever asks would lack besides.
    missing_abilities: Vec<MissingAbility>,
    commands: Confinement,
    /// The GPU that its owner could give.
    gpu: Option<GpuInfo>,
    /// Why there is none.
    no_gpu: Option<String>,
}

/// Whether the kernel tells of waits for memory and disks, by which an agent gives way to what nobody
/// announces.
#[derive(Debug, Serialize)]
struct Pressure {
    told: bool,
    /// What is lost without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<&'static str>,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<&'static str>,
}

impl Pressure {
    fn here() -> Self {
        Self::told(fs::read("/proc/pressure/memory").is_ok())
    }

    fn told(told: bool) -> Self {
        let unless_told = |text| (!told).then_some(text);
        Self {
            told,
            cost: unless_told(
                "work that nobody announces is given way to later where it waits for a disk, and \
                 where it waits for memory only when next to none is free",
            ),
            mend: unless_told(
                "add psi=1 to the kernel's command line (grubby --update-kernel=ALL --args=psi=1, \
                 where there is grubby) and start the host anew",
            ),
        }
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cost, self.mend) {
            (Some(cost), Some(mend)) => write!(
                f,
                "this kernel tells nothing of waits for memory and disks: {cost}; to mend it, {mend}"
            ),
            _ => f.write_str("this kernel tells of waits for memory and disks"),
        }
    }
}

fn print_missing_abilities(missing_abilities: &[MissingAbility]) {
    for missing in missing_abilities {
        told::paragraph(&format!(
            "for an agent of this user: {missing}; to mend it, {}",
            missing.mend
        ));
    }
}

fn print_gpu(gpu: Option<&GpuInfo>, why: Option<&str>) {
    match gpu {
        Some(gpu) => {
            show::line(format_args!("kernels can be computed on {gpu}"));
            show::line(format_args!("it takes {}", gpu.limits()));
        }
        None => show::line(format_args!("no GPU can be given: {}", why.unwrap_or_default())),
    }
}

fn print_commands(commands: &Confinement) {
    told::paragraph(&format!("commands, run by this user, are {}", commands.in_words()));
    let rows = commands.layers.iter().map(|one| told::Row {
        name: one.layer.to_string(),
        here: if one.granted { "granted" } else { "missing" }.into(),
        about: about([("why", one.why.clone()), ("to mend it", one.mend.clone())]),
    });
    told::print(["layer", "here"], &rows.collect::<Vec<_>>());
}

fn print(agent: Option<&str>, report: &Report) {
    let backend = report.backend;
    match agent {
        // Its service has a group of its own, and whoever asks may be in another.
        Some(agent) => {
            show::line(format_args!("the work of the agent that runs is isolated by {agent}"));
            show::line(format_args!("that of one started from here would be by {backend}"));
        }
        None => show::line(format_args!("harvested work is isolated by {backend}")),
    }
    let rows = report.abilities.iter().map(|one| told::Row {
        name: one.ability.to_string(),
        here: one.provider.map_or_else(|| "missing".into(), |provider| provider.to_string()),
        about: about([
            ("why", one.why.clone()),
            ("without it", one.cost.map(Into::into)),
            ("to mend it", one.mend.clone()),
        ]),
    });
    told::print(["ability", "granted by"], &rows.collect::<Vec<_>>());
}

/// What there is to say of something that is missing.
fn about<const N: usize>(told: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    told.into_iter().filter_map(|(word, text)| Some((word, text?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_tells_nothing_of_pressure_is_said_to() {
        let said = Pressure::told(false).to_string();
        assert!(said.contains("tells nothing") && said.contains("psi=1"), "{said}");
        assert!(!Pressure::told(true).to_string().contains("psi=1"));
        let told = serde_json::to_value(Pressure::told(true)).expect("JSON");
        assert_eq!(told, serde_json::json!({ "told": true }));
    }
}
