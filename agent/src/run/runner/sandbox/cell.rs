//! One command behind its walls, from the runner's side.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitOptions, getrlimit, kill_process, pidfd_open, waitpid,
};
use rustix::thread::{Gid, Uid};
use thiserror::Error;

use super::super::process_count::backstop;
use super::gpu_view;
use super::landing::{
    Bind, Landing, News, Program, Rooms, Step, Then, WorkMain, fork, fork_whole, land,
};
use super::landlock_rules::{Files, rules};
use super::mount_table::MountTable;
use super::root::{TASK, TMP, c_path};
use super::visible::{DEVICES, readable};
use super::{Confines, NewRoot, Sandbox};
use crate::limits::TASK_PROCESSES_MAX;

/// A command that is to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellOrder<'a> {
    /// What runs.
    pub(crate) what: CellContent<'a>,
    /// Its arguments, without the program.
    pub(crate) arguments: &'a [String],
    /// What it is told besides where its folders are.
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// Its folder, as the runner sees it.
    pub(crate) folder: &'a Path,
    /// Its folder for passing things.
    pub(crate) tmp: &'a Path,
    /// Memory that each of its processes may have, in MiB; none for no limit.
    pub(crate) data_mib: Option<u64>,
}

/// What runs behind walls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CellContent<'a> {
    /// Nothing: a trial of the walls.
    Nothing,
    /// A command: its program as it is listed.
    Program(&'a Path),
    /// What executes no program.
    Work(&'a CellWork),
}

/// Work that goes on as a copy of the runner.
#[derive(Debug)]
pub(crate) struct CellWork {
    /// What it does.
    pub(crate) main: WorkMain,
    /// With these.
    pub(crate) sockets: [OwnedFd; 2],
    /// Whether it sees the GPU.
    pub(crate) has_gpu: bool,
    /// Whether it is behind the walls of commands: for a trial of these.
    pub(crate) is_command: bool,
}

impl<'a> CellOrder<'a> {
    /// Of work that executes no program.
    pub(crate) const fn work(work: &'a CellWork, folder: &'a Path, tmp: &'a Path) -> Self {
        let what = CellContent::Work(work);
        Self { what, arguments: &[], environment: &[], folder, tmp, data_mib: None }
    }

    /// Whether it has the walls of what runs inside a worker, and not of commands.
    fn is_work(&self) -> bool {
        matches!(self.what, CellContent::Work(work) if !work.is_command)
    }

    fn has_gpu(&self) -> bool {
        matches!(self.what, CellContent::Work(work) if work.has_gpu)
    }
}

/// A command behind its walls.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The command, or the first process of its namespace.
    pid: Pid,
    /// What it prints.
    pub(crate) stdout: Option<File>,
    /// What it prints as errors.
    pub(crate) stderr: Option<File>,
    news: File,
}

/// Why a command did not run.
#[derive(Debug, Error)]
pub(crate) enum CellError {
    /// Something that the runner does for it failed.
    #[error("cannot {what}: {source}")]
    Prepare {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It could not lock itself in.
    #[error("cannot confine it: it could not {step}: {source}")]
    Confine {
        /// What it was about to do.
        step: String,
        /// Why not.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("{0}")]
    Exec(io::Error),
}

impl Sandbox {
    /// Starts a command. Its folders must be there and be its user's.
    pub(crate) fn start(&self, order: &CellOrder<'_>) -> Result<Cell, CellError> {
        let prepare = |what| move |source| CellError::Prepare { what, source };
        let pipe = || {
            let pipe = pipe_with(PipeFlags::CLOEXEC);
            pipe.map_err(|error| prepare("make a pipe")(error.into()))
        };
        let null = || {
            rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| prepare("open /dev/null")(error.into()))
        };
        let (news, tell) = pipe()?;
        let is_work = matches!(order.what, CellContent::Work(_));
        let (stdout, stderr, streams) = if is_work {
            (None, None, [null()?, null()?, null()?])
        } else {
            let (stdout, output) = pipe()?;
            let (stderr, errors) = pipe()?;
            (Some(File::from(stdout)), Some(File::from(stderr)), [null()?, output, errors])
        };
        let landing = self.landing(order, streams, tell)?;
        let forked = match landing.rooms {
            Some(_) => {
                let own = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
                // Only commands may have the network.
                let network = if order.is_work() { libc::CLONE_NEWNET } else { 0 };
                fork(own | network)
            }
            None if is_work => fork_whole(),
            None => fork(0),
        };
        let forked = forked.map_err(|error| prepare("start a process")(error.into()))?;
        let Some(pid) = forked else { land(&landing) };
        Ok(Cell { pid, stdout, stderr, news: File::from(news) })
    }

    fn landing(
        &self,
        order: &CellOrder<'_>,
        streams: [OwnedFd; 3],
        news: OwnedFd,
    ) -> Result<Landing, CellError> {
        let prepare = |what| move |source| CellError::Prepare { what, source };
        let root = self.root.as_ref();
        let seen = |ours: &Path, theirs: &str| match root {
            Some(_) => PathBuf::from(theirs),
            None => ours.to_owned(),
        };
        let (folder, tmp) = (seen(order.folder, TASK), seen(order.tmp, TMP));
        let then = match order.what {
            CellContent::Program(program) => {
                Then::Program(self.program(program, order, &folder, &tmp).map_err(CellError::Exec)?)
            }
            CellContent::Work(CellWork { main, sockets: [orders, files], .. }) => {
                let doors = if order.is_work() { self.doors_of_work() } else { self.doors };
                Then::Work(*main, [orders.as_raw_fd(), files.as_raw_fd()], doors)
            }
            CellContent::Nothing => Then::End,
        };
        let layers = self.confines.layers;
        let rules = match layers.landlock {
            true => Some(self.rules(order).map_err(prepare("make Landlock's rules"))?),
            false => None,
        };
        let rooms = root.map(|root| rooms(root, order, &self.confines)).transpose();
        let is_work = order.is_work();
        let identity = if is_work { self.identity_of_work() } else { self.identity.clone() };
        let groups = if order.has_gpu() { gpu_view::groups() } else { Vec::new() };
        let user = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        Ok(Landing {
            rooms: rooms.map_err(prepare("prepare its root"))?,
            folder: c_path(&folder).map_err(prepare("name its folder"))?,
            user: identity.is_other.then_some(user),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            processes: self.processes_max(),
            data_bytes: order.data_mib.map(data_bytes),
            rules,
            filter: self.filter.clone(),
            streams,
            news,
            then,
        })
    }

    /// Processes and threads that a command's user may have: its own, where the kernel tells them from
    /// others'. Never more than this process may have itself.
    fn processes_max(&self) -> Option<u64> {
        let most = match self.counts_processes {
            true => u64::from(TASK_PROCESSES_MAX),
            false => backstop()?,
        };
        Some(getrlimit(Resource::Nproc).maximum.map_or(most, |maximum| most.min(maximum)))
    }

    fn program(
        &self,
        listed: &Path,
        order: &CellOrder<'_>,
        folder: &Path,
        tmp: &Path,
    ) -> io::Result<Program> {
        let path = match &self.root {
            Some(root) => root.seen(listed)?,
            None => listed.to_owned(),
        };
        let name = c_path(listed)?;
        let arguments = order.arguments.iter().map(|argument| CString::new(argument.as_str()));
        let words: Result<Vec<_>, _> = [Ok(name)].into_iter().chain(arguments).collect();
        let places = [("HOME", folder), ("TMPDIR", tmp)];
        let places = places.map(|(key, path)| (key, path.as_os_str()));
        let told = order.environment.iter().map(|(key, value)| (*key, OsStr::new(*value)));
        let environment = told
            .chain(places)
            .map(|(key, value)| CString::new([key.as_bytes(), b"=", value.as_bytes()].concat()));
        let environment: Result<Vec<_>, _> = environment.collect();
        Ok(Program::new(c_path(&path)?, words?, environment?))
    }

    fn rules(&self, order: &CellOrder<'_>) -> io::Result<OwnedFd> {
        let scope = self.confines.layers.landlock_scope;
        let own = [order.folder, order.tmp];
        let (read, devices) = match &self.root {
            // All that there is, is to be read.
            Some(root) => {
                let devices = DEVICES.iter().map(|path| root.inside(Path::new(path)));
                let mut read = vec![root.path.clone()];
                if order.has_gpu() {
                    read.extend(gpu_view::files(&self.confines.hidden));
                }
                (read, devices.collect())
            }
            None => {
                let mut read = readable(&self.confines);
                read.extend(self.confines.programs.iter().cloned());
                // Of processes a kernel shows each what it may see; what is inside of them is fenced.
                read.push("/proc".into());
                if order.has_gpu() {
                    read.extend(gpu_view::files(&self.confines.hidden));
                }
                (read, DEVICES.iter().map(PathBuf::from).collect::<Vec<_>>())
            }
        };
        let driven = if order.has_gpu() { gpu_view::devices() } else { Vec::new() };
        rules(&Files { read: &read, own: &own, devices: &devices, driven: &driven }, scope)
    }
}

/// So many MiB, and never more than this process may have itself.
fn data_bytes(mib: u64) -> u64 {
    let bytes = mib.saturating_mul(1 << 20);
    getrlimit(Resource::Data).maximum.map_or(bytes, |most| bytes.min(most))
}

/// What becomes of a bind that is only to be read.
const SEALED: MountFlags =
    MountFlags::BIND.union(MountFlags::RDONLY).union(MountFlags::NOSUID).union(MountFlags::NODEV);

fn rooms(root: &NewRoot, order: &CellOrder<'_>, confines: &Confines) -> io::Result<Rooms> {
    let at = |path: &str| c_path(&root.inside(Path::new(path)));
    let devices = DEVICES.iter().filter(|path| root.inside(Path::new(path)).exists());
    let bind = |from: &Path, at: &Path, options| -> io::Result<Bind> {
        let at = c_path(&root.inside(at))?;
        Ok(Bind { from: c_path(from)?, at, options })
    };
    let mut binds =
        vec![bind(order.folder, Path::new(TASK), None)?, bind(order.tmp, Path::new(TMP), None)?];
    if order.has_gpu() {
        let has_place = |path: &PathBuf| root.inside(path).exists();
        for path in gpu_view::devices().into_iter().filter(has_place) {
            binds.push(bind(&path, &path, None)?);
        }
        let table = MountTable::read()?;
        for path in gpu_view::files(&confines.hidden).into_iter().filter(has_place) {
            binds.push(bind(&path, &path, Some(table.flags_at(&path)? | SEALED))?);
        }
    }
    Ok(Rooms {
        root: c_path(&root.path)?,
        follows_host: root.follows_host,
        devices: devices.map(|path| at(path)).collect::<io::Result<_>>()?,
        binds,
        proc: if confines.layers.fresh_proc { Some(at("/proc")?) } else { None },
    })
}

impl Cell {
    /// Becomes readable when it has ended; none where the kernel has no such handles.
    pub(crate) fn exit(&self) -> Option<OwnedFd> {
        pidfd_open(self.pid, PidfdFlags::empty()).ok()
    }

    /// Ends it; where it has a namespace, with all that it started.
    pub(crate) fn kill(&self) {
        // It has not been waited for, so its number is nobody else's.
        let _ = kill_process(self.pid, Signal::KILL);
    }

    /// Waits for its end, and says how it ended.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, CellError> {
        let prepare = |what| move |source| CellError::Prepare { what, source };
        let status = loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => break status,
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(prepare("wait for its end")(error.into())),
            }
        };
        let mut told = [0; News::BYTES];
        match self.news.read_exact(&mut told) {
            Ok(()) => {}
            // It started its program, or was killed before it said anything.
            Err(_) => return Ok(ExitStatus::from_raw(status.as_raw())),
        }
        match News::decode(told) {
            Some(News { step: Step::Ended, value }) => Ok(ExitStatus::from_raw(value)),
            Some(News { step: Step::Exec, value }) => {
                Err(CellError::Exec(io::Error::from_raw_os_error(value)))
            }
            Some(News { step, value }) => {
                let source = io::Error::from_raw_os_error(value);
                Err(CellError::Confine { step: step.to_string(), source })
            }
            None => Ok(ExitStatus::from_raw(status.as_raw())),
        }
    }
}
