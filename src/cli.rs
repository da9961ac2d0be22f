//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    agent, broker, cancel, completions, demo, doctor, explain, farm, fetch, forget, hosts, jobs,
    kernel, manual, monitor, simulate, stop, submit, wait,
};

/// Harvests the idle cores of render farms and desktops for background work, and is gone when a
/// render starts.
#[derive(Debug, Parser)]
#[command(name = "gleaner", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Logs more to stderr; twice for everything. RUST_LOG, where set, decides instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Logs errors only, and shows no progress.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed: a job has failed workunits, a check did not hold
  2  the command line or a configuration file is wrong
  3  the broker, or the monitor, cannot be reached
  4  there is no such job, workunit or file
  5  it refused, and said why
  6  a time-out that was asked for ran out
  7  it is not finished: what is left to be done, by hand or by the same command later, it said

gleaner hook always exits with 0.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the broker: keeps jobs, gives out replicas, decides workunits.
    Broker(broker::Args),
    /// Runs the resource monitor of a farm: says which cores its renders leave free.
    Monitor(monitor::Args),
    /// Runs the agent of this host: runs replicas on the cores that are free.
    Agent(agent::Args),
    /// Called by a farm manager before and after each render on this host.
    Hook(gleaner_hooks::HookArgs),
    /// Installs, checks or takes away the hooks with a farm manager; shows, stops and resumes the
    /// harvest of the whole farm.
    Farm(farm::Args),
    /// Ends all harvest on this host, until it is lifted; `gleaner farm stop` does on all hosts.
    Stop(stop::Args),
    /// Submits a job.
    Submit(submit::Args),
    /// Lists the jobs.
    Jobs(jobs::Args),
    /// Shows where one job stands.
    Status(jobs::StatusArgs),
    /// Waits until jobs have ended.
    Wait(wait::Args),
    /// Fetches a job's results.
    Fetch(fetch::Args),
    /// Cancels a job.
    Cancel(cancel::Args),
    /// Forgets jobs that have ended, with their results.
    Forget(forget::Args),
    /// Says why a job or a workunit stands where it stands.
    Explain(explain::Args),
    /// Lists the hosts.
    Hosts(hosts::Args),
    /// Runs the built-in kernels here: volumes, surfaces, components, scans.
    Kernel(kernel::Args),
    /// Compares policies on modelled and recorded farms.
    Simulate(simulate::Args),
    /// Says what isolates harvested work on this host, and measures how fast it is gone.
    Doctor(doctor::Args),
    /// Shows the whole thing at work on this machine.
    Demo(demo::DemoArgs),
    /// Prints what a shell needs to complete these commands.
    Completions(completions::Args),
    /// Writes the manual pages.
    Man(manual::Args),
    /// Renders one frame of the demo.
    #[command(hide = true)]
    DemoRender(demo::render::RenderArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_option_has_help() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        let mut open = vec![command];
        while let Some(command) = open.pop() {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(argument.get_help().is_some(), "{} {id} has no help", command.get_name());
            }
            open.extend(command.get_subcommands().filter(|sub| sub.get_name() != "help").cloned());
        }
    }
}
