//! `gleaner`: the one binary. Each subcommand is a thin file over the crate that does the work.

mod agent;
mod audit;
mod bench;
mod broker;
mod cancel;
mod child;
mod cli;
mod client;
mod completions;
mod configuration;
mod dataset;
mod demo;
mod doctor;
mod explain;
mod failure;
mod farm;
mod fetch;
mod forget;
mod given_file;
mod history;
mod hook;
mod hosts;
mod invite;
mod jobs;
mod join;
mod joined;
mod kernel;
mod key;
mod lanes;
mod login;
mod manual;
mod monitor;
mod people;
mod process;
mod release_watch;
mod shares;
mod show;
mod simulate;
mod stop;
mod submit;
mod usage;
mod view;
mod wait;
mod wall_clock;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    // Runners and comparers are this binary too, and start by the dozen: nothing comes before them.
    gleaner_agent::run_as_runner_if_asked();
    gleaner_broker::run_as_comparer_if_asked();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if gleaner_hooks::is_hook_alone(&arguments) {
        return gleaner_hooks::run_hook_alone(arguments);
    }
    let secure = Some(hook::post_through_tls as gleaner_hooks::SecurePoster);
    if let Some(code) = gleaner_hooks::run_hook_if_asked(&arguments, secure) {
        return code;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => match gleaner_hooks::run_hook_in_spite_of(&error, &arguments) {
            Some(code) => return code,
            None => error.exit(),
        },
    };
    if let Command::Hook(args) = cli.command {
        // The hook runs before other people's renders: no runtime, no logger, always 0.
        return gleaner_hooks::run_hook(args, secure);
    }
    // What modelled parts would log is no news of this process.
    let modelled = matches!(cli.command, Command::Simulate(_));
    process::start_logging(cli.verbose, cli.quiet || (modelled && cli.verbose == 0));
    let done = match cli.command {
        Command::Broker(args) => broker::run(args),
        Command::Monitor(args) => monitor::run(args),
        Command::Agent(args) => agent::run(*args),
        Command::Hook(args) => return gleaner_hooks::run_hook(args, secure),
        Command::Farm(args) => farm::run(args),
        Command::Submit(args) => submit::run(args),
        Command::Dataset(args) => dataset::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Status(args) => jobs::run_status(args),
        Command::Wait(args) => wait::run(args),
        Command::Fetch(args) => fetch::run(args),
        Command::Cancel(args) => cancel::run(args),
        Command::Forget(args) => forget::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Hosts(args) => hosts::run(args),
        Command::Lanes(args) => lanes::run(args),
        Command::History(args) => history::run(args),
        Command::Invite(args) => invite::run(args),
        Command::Join(args) => join::run(args),
        Command::Login(args) => login::run(args),
        Command::View(args) => view::run(args),
        Command::Bench(args) => bench::run(args),
        Command::People(args) => people::run(args),
        Command::Revoke(args) => people::run_revoke(args),
        Command::Key(args) => key::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Usage(args) => usage::run(&args),
        Command::Shares(args) => shares::run(args),
        Command::Kernel(args) => kernel::run(args, cli.quiet),
        Command::Stop(args) => stop::run(&args),
        Command::Simulate(args) => simulate::run(args, cli.quiet),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => Ok(completions::run(&args)),
        Command::Man(args) => manual::run(&args),
        Command::Demo(args) => process::block_on(demo::run(args)),
        Command::DemoRender(args) => demo::render::run(args),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}
