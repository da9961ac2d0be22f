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
mod frames_on_gpu;
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
mod parked;
mod probe;
mod releases;
mod unkillable;
mod views;
mod wat;
mod watch;

use std::panic;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

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
    let on_gpus = [gpus::STORIES, gpu_faults::STORIES, frames_on_gpu::STORIES];
    #[cfg(not(feature = "gpu"))]
    let on_gpus = [&[][..]; 3];
    // What measures how long things take, or who gets how much of a core, is alone.
    let alone =
        [cores::STORIES, limits::STORIES, limits::BESIDE_OTHERS, as_user::ALONE, figures::STORIES];
    let stories = [
        // The longest first, and those that mostly wait beside it: at the end they would have the machine alone.
        as_user::STORIES,
        clocks::STORIES,
        kernels::STORIES,
        on_gpus[0],
        on_gpus[1],
        on_gpus[2],
        commands::STORIES,
        confinement::STORIES,
        modules::STORIES,
        module_lives::STORIES,
        releases::STORIES,
        parked::STORIES,
        deaths::STORIES,
        unkillable::STORIES,
        views::STORIES,
        links::STORIES,
        isolation::STORIES,
        faults::STORIES,
    ];
    if let [first, name] = &arguments[..]
        && first == STORY_ARGUMENT
    {
        let mut stories = stories.into_iter().chain(alone).flatten();
        let story = stories.find(|(known, _)| known == name).expect("one of ours");
        return if runs(story) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let chosen = |stories: &[&'static [Story]]| -> Vec<&Story> {
        let is_chosen = |name: &str| {
            filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str()))
        };
        stories.iter().copied().flatten().filter(|(name, _)| is_chosen(name)).collect()
    };
    let (beside, alone) = (chosen(&stories), chosen(&alone));
    let all = || beside.iter().chain(&alone);
    let names_none = |part: &&&String| !all().any(|(name, _)| name.contains(part.as_str()));
    if let Some(part) = filters.iter().find(names_none)
        && arguments.iter().any(|argument| argument == "--each")
    {
        println!("no story's name has {part:?} in it");
        return ExitCode::FAILURE;
    }
    println!("\nrunning {} stories", all().count());
    let mut failed = run_side_by_side(&beside);
    failed.extend(alone.into_iter().filter(|story| !runs(story)).map(|(name, _)| *name));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nfailures: {failed:?}");
    ExitCode::FAILURE
}

/// Says to this executable that it is to run one story.
const STORY_ARGUMENT: &str = "--story";

/// Runs a story in this process; whether it went well.
fn runs((name, story): &Story) -> bool {
    let ok = panic::catch_unwind(story).is_ok();
    println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
    ok
}

/// Runs stories, as many at a time as there are cores, each in a process of its own; those that
/// failed.
fn run_side_by_side(stories: &[&Story]) -> Vec<&'static str> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let program = std::env::current_exe().expect("it runs");
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((name, _)) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = Command::new(&program).args([STORY_ARGUMENT, name]).output();
                    let output = output.expect("it starts");
                    print!("{}", String::from_utf8_lossy(&output.stdout));
                    if !output.status.success() {
                        eprint!("{}", String::from_utf8_lossy(&output.stderr));
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(*name);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}
