//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    agent, audit, bench, broker, cancel, completions, dataset, demo, doctor, explain, farm, fetch,
    forget, history, hosts, invite, jobs, join, kernel, key, lanes, login, manual, monitor, people,
    shares, simulate, stop, submit, usage, view, wait,
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
  2  the command line, or a file that it names, is wrong or cannot be read
  3  the broker, or the monitor, cannot be reached
  4  there is no such job, workunit or file
  5  it refused, and said why
  6  a time-out that was asked for ran out
  7  it is not finished: what is left to be done, by hand or by the same command later, it said
  8  the broker declined the job, for it cannot be done by its due time

gleaner hook always exits with 0.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the broker: keeps jobs, gives out replicas, decides workunits.
    Broker(broker::Args),
    /// Runs the resource monitor of a farm: says which cores its renders leave free.
    Monitor(monitor::Args),
    /// Runs the agent of this host: runs replicas on the cores that are free.
    Agent(Box<agent::Args>),
    /// Called by a farm manager before and after each render on this host.
    Hook(gleaner_hooks::HookArgs),
    /// Installs, checks or takes away the hooks with a farm manager; shows, stops and resumes the
    /// harvest of the whole farm.
    Farm(farm::Args),
    /// Ends all harvest on this host, until it is lifted; `gleaner farm stop` does on all hosts.
    Stop(stop::Args),
    /// Submits a job.
    Submit(submit::Args),
    /// Keeps large data in chunks, beside which jobs run.
    Dataset(dataset::Args),
    /// Opens a volume in a browser, drawn by hosts.
    View(view::Args),
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
    /// Shows the lanes that share the farm, and who holds what.
    Lanes(lanes::Args),
    /// Shows how long runs of applications took, and what is predicted from them.
    History(history::Args),
    /// Invites somebody, or hosts of theirs: prints the line that they join with.
    Invite(invite::Args),
    /// Joins the broker of an invitation, with a key that is made for it.
    Join(join::Args),
    /// Prints a link that opens the broker's pages in a browser.
    Login(login::Args),
    /// Lists whom the broker knows by their keys.
    People(people::Args),
    /// Takes from somebody all that they may, at once.
    Revoke(people::RevokeArgs),
    /// Has the broker sign sessions with another key.
    Key(key::Args),
    /// Lists who let whom in, and out.
    Audit(audit::Args),
    /// Sums what replicas took that have ended, and what of it is charged.
    Usage(usage::Args),
    /// Shows what each owner is due of the farm, and has had.
    Shares(shares::Args),
    /// Runs the built-in kernels here: volumes, surfaces, components, scans.
    Kernel(kernel::Args),
    /// Compares policies on modelled and recorded farms.
    Simulate(simulate::Args),
    /// Says what isolates harvested work on this host, and measures how fast it is gone.
    Doctor(doctor::Args),
    /// Measures parts of it on this machine.
    Bench(bench::Args),
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
    use toml::Table;

    use super::*;

    /// The default that a help text names.
    fn told(argument: &clap::Arg) -> Option<String> {
        let help = argument.get_long_help().or_else(|| argument.get_help())?.to_string();
        let (_, rest) = help.split_once("[default: ")?;
        Some(rest.split_once(']')?.0.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// A value of a configuration file in the words of a help text.
    fn in_words(value: &toml::Value) -> String {
        match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Array(values) => {
                let words: Vec<String> = values.iter().map(in_words).collect();
                match words.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        format!("{} and {last}", rest.join(", "))
                    }
                    _ => words.join(", "),
                }
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn help_names_the_defaults_that_the_configuration_has() {
        for (part, default_toml) in [
            ("broker", gleaner_broker::DEFAULT_TOML),
            ("monitor", gleaner_monitor::DEFAULT_TOML),
            ("agent", gleaner_agent::DEFAULT_TOML),
        ] {
            let defaults: Table = default_toml.parse().expect("it is tested to be right");
            let tables = defaults.values().filter_map(toml::Value::as_table);
            let all: Vec<&Table> = [&defaults].into_iter().chain(tables).collect();
            let command = Cli::command();
            let command = command.find_subcommand(part).expect("it is a subcommand");
            let mut compared = 0;
            for argument in command.get_arguments() {
                let Some(long) = argument.get_long() else { continue };
                let key = long.replace('-', "_");
                let plural = format!("{key}s");
                let value = all.iter().find_map(|table| table.get(&key).or(table.get(&plural)));
                let (Some(value), Some(told)) = (value, told(argument)) else { continue };
                // What an empty or zero value stands for is told in words.
                let told = told.split(", which").next().unwrap_or_default().to_owned();
                let stands_for = matches!(in_words(value).as_str(), "" | "0") && told != "0";
                assert!(stands_for || told == in_words(value), "{part} --{long}: {told}, {value}");
                compared += 1;
            }
            assert!(compared > 3, "{part}: {compared} defaults were compared");
        }
    }

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
