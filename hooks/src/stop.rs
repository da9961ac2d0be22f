//! Ending all harvest on a host, whatever state its agent is in.
//!
//! # Invariants
//! - The mark is there, and the epoch raised, before the first group is stopped: whatever begins
//!   meanwhile is refused, or stopped by its own agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gleaner_isolation::{Marks, enclosures_at_work};
use gleaner_protocol::Span;
use serde::Serialize;

use crate::last_run::let_sessions_end;
use crate::run_dir::SOCKET;
use crate::{
    ProcessStat, RunDir, SocketAnswer, SocketRequest, StopMark, ask, freeze, kill, process_group,
};

/// What [`stop_host`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StopOutcome {
    /// Where the mark stands.
    pub marks: Vec<PathBuf>,
    /// Whether one of them outlives a boot.
    pub outlives_boot: bool,
    /// Task groups that were ended here.
    pub stopped: u32,
    /// Whether an agent took note of it.
    pub agent_knows: bool,
    /// What went wrong, in words.
    pub troubles: Vec<String>,
}

/// How long an agent may take to obey.
const AGENT_MAX: Span = Span::from_secs(1);
/// How long killed groups may take to be gone.
const END_MAX: Span = Span::from_secs(2);
/// Rounds in which what was started meanwhile is looked for.
const ROUNDS_MAX: u32 = 5;
/// The name that runners give themselves, and the argument that makes them.
const RUNNER: (&str, &str) = ("gleaner-runner", "__runner");

/// Puts the mark and ends every group that the run folder records; on a `whole_machine` also every
/// runner that this user may end, and whatever is in the control groups of any agent. Never fails;
/// says what came of it.
#[must_use]
pub fn stop_host(
    run_dir: &Path,
    mark: &StopMark,
    only_run: bool,
    whole_machine: bool,
) -> StopOutcome {
    let mut outcome = StopOutcome::default();
    let put = mark.put(only_run);
    (outcome.marks, outcome.outlives_boot) = (put.marks, put.outlives_boot);
    outcome.troubles.extend(put.refused.iter().map(ToString::to_string));
    // Nothing is made for the sake of being stopped.
    let folder = run_dir.is_dir().then(|| RunDir::open(run_dir)).transpose();
    match &folder {
        Ok(Some(folder)) => {
            if let Err(error) = folder.raise_epoch() {
                outcome.troubles.push(error.to_string());
            }
            let report = folder.stop_groups();
            outcome.stopped += report.stopped;
            outcome.troubles.extend(report.troubles);
        }
        Ok(None) => {}
        Err(error) => outcome.troubles.push(error.to_string()),
    }
    outcome.agent_knows = tell_of_stop(run_dir);
    if let Ok(Some(folder)) = &folder {
        // What a hung agent had under way.
        let report = folder.stop_groups();
        outcome.stopped += report.stopped;
        outcome.troubles.extend(report.troubles);
    }
    if whole_machine {
        let (stopped, left) = stop_all_work();
        outcome.stopped += stopped;
        if !left.is_empty() {
            outcome.troubles.push(format!("these processes could not be ended: {left:?}"));
        }
    }
    outcome
}

/// Has the agent of a run folder look for the mark; says whether it did.
pub fn tell_of_stop(run_dir: &Path) -> bool {
    let answer = ask(&run_dir.join(SOCKET), &SocketRequest::LookForStop, AGENT_MAX);
    matches!(answer, Ok(SocketAnswer::Noted))
}

/// Ends every runner of the machine, and what has left one and is still in an agent's control
/// groups: how many groups of runners there were, and the processes that are left.
fn stop_all_work() -> (u32, Vec<i32>) {
    let mut stopped = BTreeSet::new();
    let count = |stopped: &BTreeSet<i32>| u32::try_from(stopped.len()).unwrap_or(u32::MAX);
    for _ in 0..ROUNDS_MAX {
        let (runners, enclosures) = (runners(), enclosures_at_work());
        let enclosed: Vec<i32> = enclosures.iter().flat_map(Marks::members).collect();
        if runners.is_empty() && enclosed.is_empty() {
            return (count(&stopped), Vec::new());
        }
        let all = runners.iter().chain(&enclosed);
        let watched: Vec<_> = all.filter_map(|pid| process_group::watch(*pid)).collect();
        let_sessions_end(&runners);
        for pgid in &runners {
            let _ = freeze(*pgid);
        }
        for enclosure in &enclosures {
            stop_enclosure(enclosure);
        }
        stopped.extend(runners.into_iter().filter(|pgid| kill(*pgid).is_ok()));
        process_group::wait_all(&watched, END_MAX);
    }
    let left: BTreeSet<i32> =
        runners().into_iter().chain(enclosures_at_work().iter().flat_map(Marks::members)).collect();
    (count(&stopped), left.into_iter().collect())
}

/// As far as we may: what could not be ended is told in the end.
fn stop_enclosure(enclosure: &Marks) {
    let _ = enclosure.freeze();
    let _ = enclosure.kill();
    // What comes into it when the stop is lifted is to run.
    let _ = enclosure.thaw();
}

/// Living processes that call themselves runners, were started as such, and lead their group.
fn runners() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_runner(*pid)).collect()
}

fn is_runner(pid: i32) -> bool {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let leads = |stat: ProcessStat| stat.pgid == pid && !stat.is_dead();
    read("comm").trim_ascii_end() == RUNNER.0.as_bytes()
        && read("cmdline").split(|byte| *byte == 0).nth(1) == Some(RUNNER.1.as_bytes())
        && ProcessStat::of(pid).is_ok_and(leads)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::{encode_line, read_line_bounded};

    /// An agent that gives this answer to the next question.
    fn answers(folder: &Path, answer: SocketAnswer) -> thread::JoinHandle<()> {
        let socket = folder.join(SOCKET);
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(socket).expect("bound");
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a question");
            read_line_bounded(&mut client).expect("a line");
            client.write_all(&encode_line(&answer).expect("short")).expect("it listens");
        })
    }

    #[test]
    fn an_agent_that_refuses_does_not_know() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!tell_of_stop(folder.path()), "nobody is there");
        for (answer, knows) in [
            (SocketAnswer::Noted, true),
            (SocketAnswer::Error { reason: "what?".into() }, false),
            (SocketAnswer::Paused { frozen: 0 }, false),
        ] {
            let agent = answers(folder.path(), answer.clone());
            assert_eq!(tell_of_stop(folder.path()), knows, "{answer:?}");
            agent.join().expect("no panic");
        }
    }
}
