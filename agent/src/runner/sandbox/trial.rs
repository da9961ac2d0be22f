//! What a host can confine commands with, found out by doing it.
//!
//! Versions say little: what a kernel has may be switched off, forbidden by a security module or
//! by the service manager. So the agent starts its own executable, which puts itself where a runner
//! would be and starts a command that is none; with less and less, until that works.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, exit};

use gleaner_protocol::Span;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};

use super::landlock_rules::{why_no_files, why_no_scope};
use super::rules::Confine;
use super::visible::exposed;
use super::{CellOrder, Confines, Finding, Layer, Layers, Promise, Sandbox, filter};
use crate::limits::TRIAL_MS_MAX;

/// The argument that makes an executable a trial.
const TRIAL_ARGUMENT: &str = "__trial";

/// How commands are confined on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// What the owner asks for.
    pub confine: Confine,
    /// Whether commands may use the network.
    pub network: bool,
    /// Whether they have none only because what they carried there would not be counted.
    #[serde(skip)]
    pub(crate) is_network_withheld: bool,
    /// What this host has for it.
    pub layers: Vec<Finding>,
    /// What is not kept.
    pub missing: Vec<Promise>,
    /// Why no command runs; none where they do.
    pub refused: Option<String>,
    /// What is used.
    #[serde(skip)]
    used: Layers,
}

impl Confinement {
    /// What runners are to use; none where nothing confines commands.
    pub(crate) fn layers(&self) -> Option<Layers> {
        (self.confine != Confine::Off).then_some(self.used)
    }

    /// In one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        if let Some(reason) = &self.refused {
            return format!("refused: {reason}");
        }
        if self.confine == Confine::Off {
            return "not confined, by the owner's word (commands.confine = \"off\")".into();
        }
        let granted = self.layers.iter().filter(|one| one.granted);
        let granted: Vec<_> = granted.map(|one| one.layer.to_string()).collect();
        let mut text = format!("confined by {}", granted.join(", "));
        for promise in &self.missing {
            let _ = write!(text, "; {}", promise.without());
        }
        text + match (self.network, self.is_network_withheld) {
            (true, _) => "; with the network",
            (false, true) => {
                "; without network, though commands.network is true: what commands carry is not \
                 counted, and preferences.network_mib_per_day sets how much may be (set it to 0, \
                 or commands.network to false)"
            }
            (false, false) => "; without network",
        }
    }
}

/// What is asked of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Attempt {
    confines: Confines,
    folder: PathBuf,
}

/// Finds out how commands are confined here. `program` is started for it, and works in `folder`,
/// which it makes and removes.
#[must_use]
pub(crate) fn try_out(
    program: &Path,
    folder: &Path,
    confine: Confine,
    confines: Confines,
) -> Confinement {
    let network = confines.network;
    let mut outcome = Confinement {
        confine,
        network,
        is_network_withheld: false,
        layers: Vec::new(),
        missing: Vec::new(),
        refused: None,
        used: Layers::default(),
    };
    if confine == Confine::Off {
        return outcome;
    }
    let (no_files, no_scope) = (why_no_files(), why_no_scope());
    let no_filter = filter::why_none();
    let rest = Layers {
        landlock: no_files.is_none(),
        // Landlock's fence comes with its rules.
        landlock_scope: no_files.is_none() && no_scope.is_none(),
        filter: no_filter.is_none(),
        ..Layers::default()
    };
    let whole = Layers { namespaces: true, fresh_proc: true, ..rest };
    let without_proc = Layers { fresh_proc: false, ..whole };
    let mut why = Vec::new();
    let mut used = None;
    for layers in [whole, without_proc, rest] {
        let confines = Confines { layers, ..confines.clone() };
        let attempt = Attempt { confines, folder: folder.to_owned() };
        match perform(program, &attempt) {
            Ok(()) => {
                used = Some(layers);
                break;
            }
            Err(reason) => why.push(reason),
        }
    }
    let trouble = used.is_none().then(|| why.last().cloned()).flatten();
    outcome.used = used.unwrap_or_default();
    outcome.layers = Layer::ALL
        .into_iter()
        .map(|layer| {
            let granted = outcome.used.has(layer);
            let why = match layer {
                _ if granted => None,
                Layer::Namespaces => why.get(1).or(why.last()).cloned(),
                Layer::FreshProc => why.first().cloned(),
                Layer::Landlock => no_files.clone(),
                Layer::LandlockScope => no_scope.clone().or_else(|| no_files.clone()),
                Layer::Filter => no_filter.clone(),
            };
            let mend = (!granted).then(|| layer.mend().to_owned());
            Finding { layer, granted, why, mend }
        })
        .collect();
    let is_root = rustix::process::geteuid().is_root();
    // A root of its own covers what is the agent's own, or is not made.
    let exposed = match outcome.used.namespaces {
        true => None,
        false => match exposed(&confines) {
            Ok(found) => {
                found.map(|path| format!("{} lies where commands may read", path.display()))
            }
            Err(error) => Some(format!("what lies where commands may read is not known: {error}")),
        },
    };
    let kept = |promise: Promise| {
        let open = promise == Promise::Files && exposed.is_some();
        promise.is_kept(outcome.used, is_root) && !open
    };
    outcome.missing = Promise::ALL.into_iter().filter(|promise| !kept(*promise)).collect();
    outcome.refused = trouble.map(|reason| format!("nothing could confine one: {reason}"));
    let required = outcome.missing.iter().find(|promise| promise.is_required());
    if let (Confine::Required, None, Some(promise)) = (confine, &outcome.refused, required) {
        let why = match exposed {
            Some(reason) if *promise == Promise::Files => reason,
            _ => promise.without().to_owned(),
        };
        outcome.refused = Some(format!(
            "{why}: `gleaner doctor` says what mends it; \
             commands.confine = \"available\" runs them all the same"
        ));
    }
    outcome
}

/// One try; why it failed.
fn perform(program: &Path, attempt: &Attempt) -> Result<(), String> {
    let request = serde_json::to_string(attempt).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args([TRIAL_ARGUMENT, &request])
        .env_clear()
        // What a failed try leaves dies with it.
        .process_group(0);
    let limit = Span::from_millis(TRIAL_MS_MAX);
    let (status, said) = ended_in_time(&mut command, limit)
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?
        .ok_or_else(|| format!("a trial has not ended in {limit}"))?;
    if status.success() {
        return Ok(());
    }
    let said = said.trim().to_owned();
    Err(if said.is_empty() { format!("a trial ended with {status}") } else { said })
}

/// How a program ended, and what it printed, a pipe's length at most. None where it takes too long:
/// then it is killed and not waited for, since what waits for a dead server does not die.
fn ended_in_time(command: &mut Command, limit: Span) -> io::Result<Option<(ExitStatus, String)>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let watched = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let has_ended = watched.is_some_and(|watched| {
        let mut fds = [PollFd::new(&watched, PollFlags::IN)];
        poll(&mut fds, Some(&limit.into())) == Ok(1)
    });
    if !has_ended {
        let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
        return Ok(None);
    }
    let status = child.wait()?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        // Something that it has started may hold the other end.
        let _ = rustix::io::ioctl_fionbio(&stdout, true);
        let _ = stdout.read_to_end(&mut said);
    }
    Ok(Some((status, String::from_utf8_lossy(&said).into_owned())))
}

/// Becomes a trial if this process was started as one; returns otherwise.
pub(crate) fn run_as_trial_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_none_or(|argument| argument != TRIAL_ARGUMENT) {
        return;
    }
    match arguments.next().ok_or_else(|| "no request".to_owned()).and_then(|text| trial(&text)) {
        Ok(()) => exit(0),
        Err(reason) => {
            println!("{reason}");
            exit(1)
        }
    }
}

fn trial(request: &str) -> Result<(), String> {
    let attempt: Attempt = serde_json::from_str(request).map_err(|error| error.to_string())?;
    let folder = attempt.folder;
    let outcome = start_and_end(attempt.confines, &folder);
    // In this mount namespace the root is still mounted there; outside it is an empty folder, which
    // whoever asked removes.
    outcome.map_err(|reason| reason.replace('\n', " "))
}

fn start_and_end(confines: Confines, base: &Path) -> Result<(), String> {
    let say = |error: io::Error| format!("cannot make a folder for a trial: {error}");
    let (folder, tmp) = (base.join("work"), base.join("tmp"));
    for path in [&folder, &tmp] {
        std::fs::create_dir_all(path).map_err(say)?;
    }
    let sandbox = Sandbox::raise(confines, base)?;
    let order = CellOrder {
        program: None,
        arguments: &[],
        environment: &[],
        folder: &folder,
        tmp: &tmp,
        data_mib: None,
    };
    let cell = sandbox.start(&order).map_err(|error| error.to_string())?;
    let status = cell.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("a trial's command ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0);
        command
    }

    #[test]
    fn a_trial_that_hangs_is_given_up() {
        let hung = ended_in_time(&mut shell("sleep 1000"), Span::from_millis(20));
        assert!(hung.expect("it starts").is_none());
        let long = Span::from_secs(60);
        // Its child holds the pipe.
        let ended = ended_in_time(&mut shell("sleep 1000 2>&1 & echo $!; exit 3"), long);
        let (status, said) = ended.expect("it starts").expect("it ends");
        assert_eq!(status.code(), Some(3));
        let child = Pid::from_raw(said.trim().parse().expect("a number")).expect("a number");
        rustix::process::kill_process(child, Signal::KILL).expect("it was left alone");
        assert!(ended_in_time(&mut Command::new("/no/such/program"), long).is_err());
    }
}
