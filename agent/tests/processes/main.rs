//! Stories of whole agents: real processes, real sockets, a stand-in for the broker.
//!
//! Runners, and agents that are to be killed, are started out of this very executable, so its
//! `main` is its own. `cargo test -p gleaner-agent --test processes [PART OF A NAME…]` runs some; with
//! `--each` it fails where one of the parts names none.

mod agent;
mod as_user;
mod broker;
mod clocks;
mod commands;
mod confinement;
mod cores;
mod deaths;
mod faults;
mod figures;
#[cfg(feature = "gpu")]
mod gpu_faults;
#[cfg(feature = "gpu")]
mod gpus;
mod isolation;
mod kernels;
mod limits;
mod links;
mod module_lives;
mod modules;
mod probe;
mod releases;
mod unkillable;
mod wat;
mod watch;

use std::panic;
use std::process::ExitCode;

/// A story and its name.
type Story = (&'static str, fn());

fn main() -> ExitCode {
    gleaner_agent::run_as_runner_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, tries)) = arguments.split_first()
        && first == probe::PROBE_ARGUMENT
    {
        probe::probe_main(tries);
    }
    if let [first, config, handicap] = &arguments[..]
        && first == agent::AGENT_ARGUMENT
    {
        agent::agent_main(config, handicap);
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    #[cfg(feature = "gpu")]
    let on_gpus = [gpus::STORIES, gpu_faults::STORIES];
    #[cfg(not(feature = "gpu"))]
    let on_gpus = [&[][..]; 2];
    let stories: [&[Story]; 18] = [
        kernels::STORIES,
        on_gpus[0],
        on_gpus[1],
        commands::STORIES,
        confinement::STORIES,
        modules::STORIES,
        module_lives::STORIES,
        releases::STORIES,
        deaths::STORIES,
        unkillable::STORIES,
        links::STORIES,
        clocks::STORIES,
        isolation::STORIES,
        cores::STORIES,
        limits::STORIES,
        faults::STORIES,
        as_user::STORIES,
        figures::STORIES,
    ];
    let chosen: Vec<&Story> = stories
        .into_iter()
        .flatten()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|part| name.contains(*part)))
        .collect();
    let names_none = |part: &&&String| !chosen.iter().any(|(name, _)| name.contains(**part));
    if let Some(part) = filters.iter().find(names_none)
        && arguments.iter().any(|argument| argument == "--each")
    {
        println!("no story's name has {part:?} in it");
        return ExitCode::FAILURE;
    }
    println!("\nrunning {} stories", chosen.len());
    let mut failed = Vec::new();
    for (name, story) in chosen {
        let ok = panic::catch_unwind(story).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if !ok {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nfailures: {failed:?}");
    ExitCode::FAILURE
}
