//! What a host can confine commands with, found out by doing it.
//!
//! Versions say little: what a kernel has may be switched off, forbidden by a security module or
//! by the service manager. So the agent starts its own executable, which puts itself where a runner
//! would be and starts a command that is none; with less and less, until that works.

use std::fmt::{self, Write as _};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, exit};

use gleaner_protocol::Span;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::CellWork;
use super::landlock_rules::{why_no_files, why_no_scope};
use super::rules::Confine;
use super::visible::exposed;
use super::{CellContent, CellOrder, Confines, Finding, Layer, Layers, Promise, Sandbox, filter};
use crate::child_end::ends_within;
use crate::limits::TRIAL_MS_MAX;
use crate::run::runner::folder::TaskFolder;
use crate::run::runner::frame::{self, FrameBuffer};
use crate::run::runner::look::{LookOrder, Seen, look};
use crate::run::runner::worker::Worker;

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
    /// What is not kept for kernels, applications and modules.
    pub work_missing: Vec<Promise>,
    /// Why none of these runs; none where they do.
    pub work_refused: Option<String>,
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

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    /// A program of the allow-list.
    Command,
    /// A WebAssembly module.
    Wasm,
    /// A kernel.
    Kernel,
    /// A kernel with a specification.
    Application,
    /// The same, with the GPU.
    Gpu,
}

impl WorkKind {
    const ALL: [Self; 5] = [Self::Command, Self::Wasm, Self::Kernel, Self::Application, Self::Gpu];
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::Wasm => "wasm",
            Self::Kernel => "kernel",
            Self::Application => "application",
            Self::Gpu => "gpu",
        })
    }
}

/// How work of one kind is confined on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunnerConfinement {
    /// Which kind.
    pub kind: WorkKind,
    /// Why none of it runs; none where it does.
    pub refused: Option<String>,
    /// Whether it has a root and mounts of its own.
    pub own_root: bool,
    /// Whether Landlock holds it to its files.
    pub landlock: bool,
    /// What some of it found from inside, in a runner that was started for that.
    pub seen: Option<Seen>,
    /// Why that is not known.
    pub trouble: Option<String>,
}

/// What is asked of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Attempt {
    confines: Option<Confines>,
    folder: PathBuf,
    kind: WorkKind,
    /// Memory that its process limits itself to, in MiB.
    memory_mib: Option<u32>,
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
        work_missing: Vec::new(),
        work_refused: None,
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
        let attempt = Attempt::new(Some(confines), folder, WorkKind::Command);
        match perform(program, &attempt) {
            Ok(_) => {
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
    let kept_for_work = |promise: Promise| {
        let open = promise == Promise::Files && exposed.is_some();
        promise.is_kept_for_work(outcome.used) && !open
    };
    outcome.work_missing =
        Promise::ALL.into_iter().filter(|promise| !kept_for_work(*promise)).collect();
    let used_confines = Confines { layers: outcome.used, ..confines.clone() };
    let attempt = Attempt::new(Some(used_confines), folder, WorkKind::Kernel);
    outcome.work_refused = match perform(program, &attempt) {
        Err(reason) => Some(format!("nothing could confine it: {reason}")),
        Ok(_) => None,
    };
    outcome.refused = trouble.map(|reason| format!("nothing could confine one: {reason}"));
    let refusal = |missing: &[Promise], what: &str| {
        let promise = missing.iter().find(|promise| promise.is_required())?;
        let why = match &exposed {
            Some(reason) if *promise == Promise::Files => reason.clone(),
            _ => promise.without().replace("a command", what),
        };
        Some(format!(
            "{why}: `gleaner doctor` says what mends it; \
             commands.confine = \"available\" runs them all the same"
        ))
    };
    if confine == Confine::Required {
        let of_commands = refusal(&outcome.missing, "a command");
        outcome.refused = outcome.refused.or(of_commands);
        let of_work = refusal(&outcome.work_missing, "a module or kernel");
        outcome.work_refused = outcome.work_refused.or(of_work);
    }
    outcome
}

/// How work of each kind is confined on this host, as some of each kind finds it from inside.
#[must_use]
pub(crate) fn look_at_each(
    program: &Path,
    folder: &Path,
    found: &Confinement,
    confines: &Confines,
    kernel_memory_mib: u32,
    has_gpu: bool,
) -> Vec<RunnerConfinement> {
    let layers = found.layers();
    let kinds = WorkKind::ALL.into_iter().filter(|kind| has_gpu || *kind != WorkKind::Gpu);
    kinds
        .map(|kind| {
            let confines = layers.map(|layers| Confines { layers, ..confines.clone() });
            let is_application = matches!(kind, WorkKind::Application | WorkKind::Gpu);
            let memory_mib = is_application.then_some(kernel_memory_mib);
            let attempt = Attempt { memory_mib, ..Attempt::new(confines, folder, kind) };
            let (seen, trouble) = match perform(program, &attempt) {
                Ok(said) => match serde_json::from_str(&said) {
                    Ok(seen) => (Some(seen), None),
                    Err(error) => (None, Some(format!("a trial said {said:?}: {error}"))),
                },
                Err(reason) => (None, Some(reason)),
            };
            let is_command = kind == WorkKind::Command;
            let refused = if is_command { &found.refused } else { &found.work_refused };
            RunnerConfinement {
                kind,
                refused: refused.clone(),
                own_root: layers.is_some_and(|layers| layers.namespaces),
                landlock: layers.is_some_and(|layers| layers.landlock),
                seen,
                trouble,
            }
        })
        .collect()
}

impl Attempt {
    fn new(confines: Option<Confines>, folder: &Path, kind: WorkKind) -> Self {
        Self { confines, folder: folder.to_owned(), kind, memory_mib: None }
    }
}

/// One try: what it said, or why it failed.
fn perform(program: &Path, attempt: &Attempt) -> Result<String, String> {
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
    let said = said.trim().to_owned();
    if status.success() {
        return Ok(said);
    }
    Err(if said.is_empty() { format!("a trial ended with {status}") } else { said })
}

/// How a program ended, and what it printed, a pipe's length at most. None where it takes too long:
/// then it is killed and not waited for, since what waits for a dead server does not die.
fn ended_in_time(command: &mut Command, limit: Span) -> io::Result<Option<(ExitStatus, String)>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    if !ends_within(&child, limit) {
        let pid = Pid::from_raw(child.id().cast_signed());
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
        Ok(seen) => {
            println!("{}", serde_json::to_string(&seen).unwrap_or_default());
            exit(0)
        }
        Err(reason) => {
            println!("{reason}");
            exit(1)
        }
    }
}

fn trial(request: &str) -> Result<Seen, String> {
    let attempt: Attempt = serde_json::from_str(request).map_err(|error| error.to_string())?;
    // In this mount namespace the root is still mounted there; outside it is an empty folder, which
    // whoever asked removes.
    look_as(attempt).map_err(|reason| reason.replace('\n', " "))
}

/// Has work of a kind look at what confines it.
fn look_as(attempt: Attempt) -> Result<Seen, String> {
    let Attempt { confines, folder: base, kind, memory_mib } = attempt;
    let say = |error: io::Error| format!("cannot make a folder for a trial: {error}");
    let (folder, beside) = (base.join("runner"), base.join("beside"));
    std::fs::create_dir_all(&folder).map_err(say)?;
    // For everybody, as far as who comes through to it.
    std::fs::write(&beside, "").map_err(say)?;
    let order = LookOrder { file: beside.display().to_string(), memory_mib };
    let Some(confines) = confines else { return Ok(look(&order)) };
    let sandbox = Sandbox::raise(confines, &folder)?;
    let mut folder = TaskFolder::new(folder);
    match kind {
        WorkKind::Command => look_as_command(&sandbox, &mut folder, &order),
        WorkKind::Wasm | WorkKind::Kernel | WorkKind::Application | WorkKind::Gpu => {
            let mut worker = Worker::start(&sandbox, &mut folder, kind == WorkKind::Gpu)?;
            let seen = worker.look(&order);
            worker.end();
            seen
        }
    }
}

/// What a command would find behind its walls, with the filter that commands have.
fn look_as_command(
    sandbox: &Sandbox,
    folder: &mut TaskFolder,
    order: &LookOrder,
) -> Result<Seen, String> {
    let say = |error: io::Error| format!("cannot prepare a trial's command: {error}");
    let (path, tmp) = (folder.enter().map_err(say)?.to_owned(), folder.tmp().to_owned());
    let identity = &sandbox.identity;
    if identity.is_other {
        for path in [&path, &tmp] {
            std::os::unix::fs::chown(path, Some(identity.uid), Some(identity.gid)).map_err(say)?;
        }
    }
    // First as a command is started, whose walls are these.
    let of = |what| CellOrder {
        what,
        arguments: &[],
        environment: &[],
        folder: &path,
        tmp: &tmp,
        data_mib: None,
    };
    let mut cell = sandbox.start(&of(CellContent::Nothing)).map_err(|error| error.to_string())?;
    let status = cell.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("a trial's command ended with {status}"));
    }
    let (ours, theirs) = UnixStream::pair().map_err(say)?;
    let (_files, their_files) = UnixStream::pair().map_err(say)?;
    let sockets = [theirs.into(), their_files.into()];
    let main = look_and_tell;
    let work = CellWork { main, sockets, has_gpu: false, is_command: true };
    frame::write_to(&ours, order).map_err(|error| error.to_string())?;
    let mut cell =
        sandbox.start(&of(CellContent::Work(&work))).map_err(|error| error.to_string())?;
    drop(work);
    let seen = FrameBuffer::default().read_from(&ours);
    cell.wait().map_err(|error| error.to_string())?;
    seen.map_err(|error| format!("a trial's command says nothing: {error}"))
}

fn look_and_tell([socket, _]: [OwnedFd; 2]) -> ! {
    let socket = UnixStream::from(socket);
    if let Ok(order) = FrameBuffer::default().read_from::<LookOrder>(&socket) {
        let _ = frame::write_to(&socket, &look(&order));
    }
    exit(0)
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
