//! Running a command: its folder, its environment, its end.
//!
//! What confines it is [`super::sandbox`]'s business; an owner who wants none of it has commands
//! started as any other program is, with the rights of the agent.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use gleaner_protocol::job::STDERR;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{Content, Digest, boottime};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::capture::{CaptureError, Running, Text, capture};
use super::children_cpu::children_cpu_us;
use super::data_limit::DataLimit;
use super::folder::TaskFolder;
use super::order::CommandLimits;
use super::outputs::{Collector, copy_hashed};
use super::process_count;
use super::sandbox::{
    Bounds, Cell, CellContent, CellError, CellOrder, Confines, Identity, Refusal, Sandbox,
};
use super::substitute::substitute;
use super::sweep::end_descendants;
use super::{CommandOrder, Reply};
use crate::harvest::Product;

/// Where a command finds the programs that it starts itself.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Has the C library ask for huge pages where a program takes much memory: a render has it back
/// some thirty times sooner than in small ones. Other libraries pass it over.
pub(crate) const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Why a command has no output.
enum Trouble {
    /// Its own doing.
    Failed(String),
    /// The same, and it has left more behind than can be ended here.
    Overrun(String),
    /// This host's.
    CannotRun(String),
}

/// What a runner runs commands with.
#[derive(Debug)]
pub(super) struct Commands {
    /// What confines them; None where nothing does.
    sandbox: Result<Option<Sandbox>, Refusal>,
    limits: CommandLimits,
}

impl Commands {
    /// Puts this process, which must have one thread only, where its commands are confined, if they
    /// are. `base` is the runner's folder.
    pub(super) fn prepare(confines: Option<Confines>, limits: CommandLimits, base: &Path) -> Self {
        let sandbox = confines.map(|confines| Sandbox::raise(confines, base)).transpose();
        Self { sandbox, limits }
    }

    /// What confines them, and all else that runs here; none where nothing does.
    ///
    /// # Errors
    /// It could not be made, in words.
    pub(super) fn sandbox(&self) -> Result<Option<&Sandbox>, &Refusal> {
        self.sandbox.as_ref().map(Option::as_ref)
    }

    /// Runs one command to its end, and everything that it started.
    pub(super) fn run(
        &self,
        folder: &mut TaskFolder,
        collector: &Collector,
        order: &CommandOrder,
    ) -> Reply {
        let cpu_before = children_cpu_us();
        let outcome = match &self.sandbox {
            Ok(sandbox) => {
                Attempt { sandbox: sandbox.as_ref(), limits: self.limits, collector, order }
                    .perform(folder)
            }
            Err(refusal) => Err(Trouble::CannotRun(refusal.clone())),
        };
        let cpu_us = children_cpu_us().saturating_sub(cpu_before);
        if !matches!(outcome, Err(Trouble::Overrun(_))) {
            folder.clear();
        }
        match outcome {
            Ok(files) => Reply::Done { files, cpu_us, measured: None },
            Err(Trouble::Failed(reason)) => Reply::Failed { reason, cpu_us },
            // What it has started may be in its folder still.
            Err(Trouble::Overrun(reason)) => Reply::Overrun { reason, cpu_us },
            Err(Trouble::CannotRun(reason)) => Reply::CannotRun(reason),
        }
    }
}

/// One command and what it is run with.
struct Attempt<'a> {
    sandbox: Option<&'a Sandbox>,
    limits: CommandLimits,
    collector: &'a Collector,
    order: &'a CommandOrder,
}

impl Attempt<'_> {
    fn perform(&self, folder: &mut TaskFolder) -> Result<Vec<Product>, Trouble> {
        let Self { order, collector, .. } = self;
        let user = self.sandbox.map(Sandbox::identity).filter(|identity| identity.is_other);
        let path = enter(folder, user)
            .map_err(|error| Trouble::CannotRun(format!("cannot make a task's folder: {error}")))?;
        let tmp = folder.tmp().to_owned();
        for input in &order.inputs {
            stage(&input.source, &path.join(&input.name), input.digest, user).map_err(
                |reason| Trouble::CannotRun(format!("input {:?}: {reason}", input.name)),
            )?;
        }
        let bounds = Bounds {
            folders: vec![path.clone(), tmp.clone()],
            bytes_max: self.limits.bytes_max,
            files_max: self.limits.files_max,
        };
        let mut process = self.start(&path, &tmp)?;
        let overflow = |name| move || collector.spool_file(order.token, name);
        let errors = order.outputs.iter().any(|name| name == STDERR).then(|| overflow(STDERR));
        let (mut overrun, is_counted) = (None, self.sandbox.is_some_and(Sandbox::counts_processes));
        let look = || {
            let begun = boottime();
            let soon = if is_counted { Ok(None) } else { process_count::check() };
            let soon =
                soon.inspect_err(|reason| overrun = Some(format!("{reason}, and was ended")))?;
            let rest = Bounds::rest_after(boottime().since(begun));
            let pause = bounds.look()?;
            Ok(soon.map_or(pause, |soon| pause.min(soon)).max(rest))
        };
        let printed = capture(process.running(), overflow("stdout"), errors, bounds.first(), look);
        if let Some(reason) = overrun {
            return Err(Trouble::Overrun(reason));
        }
        if printed.is_err() {
            // It has ended already, or this ends it.
            process.kill();
        }
        let status = process.wait(&order.program)?;
        let swept = end_descendants();
        let printed = printed.map_err(|error| match error {
            CaptureError::TooLong => {
                Trouble::Failed(format!("it printed more than {BLOB_BYTES_MAX} bytes"))
            }
            CaptureError::Outgrown(reason) => Trouble::Failed(format!("{reason}, and was ended")),
            CaptureError::Io(error) => {
                Trouble::Failed(format!("cannot read what it prints: {error}"))
            }
        })?;
        if !swept {
            return Err(Trouble::Overrun("it left processes behind that cannot be ended".into()));
        }
        bounds.look_last().map_err(Trouble::Failed)?;
        if !status.success() {
            return Err(Trouble::Failed(describe(status, &printed.stderr_tail)));
        }
        let mut files = vec![keep_text("stdout", printed.stdout)?];
        files.extend(printed.stderr.map(|text| keep_text(STDERR, text)).transpose()?);
        for name in order.outputs.iter().filter(|name| *name != STDERR) {
            files.push(
                collector
                    .keep_file(order.token, &path.join(name), name)
                    .map_err(Trouble::Failed)?,
            );
        }
        Ok(files)
    }

    fn start(&self, folder: &Path, tmp: &Path) -> Result<Process, Trouble> {
        let order = self.order;
        let index = order.index.to_string();
        let item = order.item.as_deref().unwrap_or(&index);
        let chunk = order.chunk.as_deref();
        let arguments = order.arguments.iter();
        let arguments = arguments.map(|argument| substitute(argument, &index, item, chunk));
        let cores = order.cores.to_string();
        let environment = [
            ("PATH", PATH),
            HUGE_PAGES,
            ("GLEANER_INDEX", &index),
            ("GLEANER_ITEM", item),
            ("GLEANER_CORES", &cores),
        ];
        let Some(sandbox) = self.sandbox else {
            let mut command = Command::new(&order.program);
            command.args(arguments).env_clear().envs(environment);
            command.env("HOME", folder).env("TMPDIR", tmp).current_dir(folder);
            let limit = order.data_mib.map(DataLimit::set);
            // No `pre_exec`: it would make the standard library fork where it can do better.
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| not_started(&order.program, &error))?;
            if let (Some(limit), Some(pid)) = (limit, number_of(&child)) {
                limit.make_hard(pid);
            }
            return Ok(Process::Free(child));
        };
        let arguments: Vec<String> = arguments.collect();
        let cell = CellOrder {
            what: CellContent::Program(&order.program),
            arguments: &arguments,
            environment: &environment,
            folder,
            tmp,
            data_mib: order.data_mib,
        };
        let started = sandbox.start(&cell);
        started.map(Process::Confined).map_err(|error| explain(&order.program, &error))
    }
}

fn number_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// A command that runs.
enum Process {
    /// As any other program.
    Free(Child),
    /// Behind its walls.
    Confined(Cell),
}

impl Process {
    /// What there is to read of it; once.
    fn running(&mut self) -> Running {
        match self {
            Self::Free(child) => {
                let number = number_of(child);
                let file = |fd: Option<OwnedFd>| fd.map(File::from);
                Running {
                    stdout: file(child.stdout.take().map(OwnedFd::from)),
                    stderr: file(child.stderr.take().map(OwnedFd::from)),
                    exit: number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
                }
            }
            Self::Confined(cell) => Running {
                stdout: cell.stdout.take(),
                stderr: cell.stderr.take(),
                exit: cell.exit(),
            },
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Free(child) => drop(child.kill()),
            Self::Confined(cell) => cell.kill(),
        }
    }

    fn wait(self, program: &Path) -> Result<ExitStatus, Trouble> {
        match self {
            Self::Free(mut child) => {
                child.wait().map_err(|error| Trouble::Failed(format!("cannot wait: {error}")))
            }
            Self::Confined(mut cell) => cell.wait().map_err(|error| explain(program, &error)),
        }
    }
}

fn explain(program: &Path, error: &CellError) -> Trouble {
    match error {
        CellError::Exec(error) => not_started(program, error),
        CellError::Prepare { .. } | CellError::Confine { .. } => {
            Trouble::CannotRun(format!("cannot start {}: {error}", program.display()))
        }
    }
}

fn not_started(program: &Path, error: &io::Error) -> Trouble {
    let reason = format!("cannot start {}: {error}", program.display());
    match error.kind() {
        // Too many or impossible arguments: no host could start it.
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => Trouble::Failed(reason),
        _ => Trouble::CannotRun(reason),
    }
}

/// The task's folder, which is `user`'s where its command becomes one.
fn enter(folder: &mut TaskFolder, user: Option<&Identity>) -> io::Result<PathBuf> {
    let path = folder.enter()?.to_owned();
    if let Some(Identity { uid, gid, .. }) = user {
        for folder in [&path, folder.tmp()] {
            std::os::unix::fs::chown(folder, Some(*uid), Some(*gid))?;
        }
    }
    Ok(path)
}

fn stage(
    source: &Path,
    target: &Path,
    digest: Digest,
    user: Option<&Identity>,
) -> Result<(), String> {
    let found = File::open(source).and_then(|source| copy_hashed(source, target));
    let found = found.map_err(|error| error.to_string())?;
    if found != digest {
        return Err(format!("the cached file is damaged: it holds {found}, not {digest}"));
    }
    let Some(Identity { uid, gid, .. }) = user else { return Ok(()) };
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().read(true).custom_flags(no_follow).open(target);
    file.and_then(|file| fchown(&file, Some(*uid), Some(*gid))).map_err(|error| error.to_string())
}

fn keep_text(name: &str, text: Text) -> Result<Product, Trouble> {
    let name = name.to_owned();
    let Some(mut file) = text.overflow else {
        return Ok(Product { name, content: Content::Inline(text.head) });
    };
    let mut address = || {
        file.rewind()?;
        Ok((Digest::of_reader(&mut file)?, file.metadata()?.len()))
    };
    let (digest, bytes) = address()
        .map_err(|error: io::Error| Trouble::Failed(format!("cannot keep its output: {error}")))?;
    Ok(Product { name, content: Content::Stored { digest, bytes } })
}

fn describe(status: ExitStatus, stderr: &str) -> String {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended without a status".into(),
    };
    if stderr.is_empty() { end } else { format!("{end}; standard error ends: {stderr}") }
}
