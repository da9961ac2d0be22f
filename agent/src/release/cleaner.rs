//! What outlives an agent that is killed, to clear up after it.
//!
//! Runners die with their agent: the kernel sees to it ([`crate::run::runner`]). What has left a
//! runner's group does not, and the agent's control groups, the folders of its tasks, outputs that
//! nobody will ask for and a load average that nobody keeps stay behind. So an agent starts its own
//! executable once more as its cleaner, which does nothing but wait for the agent's end on a pipe; then it
//! kills and removes all of that, and ends.
//!
//! # Invariants
//! - A cleaner touches nothing while an agent has the run folder's lock: a later agent clears up
//!   itself.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::time::Duration;

use gleaner_hooks::RunDir;
use gleaner_isolation::Enclosure;
use gleaner_protocol::{Span, boottime};
use rustix::fs::{FlockOperation, flock};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::host::observer::give_up_load_average;
use crate::limits::{CLEAR_UP_MS_MAX, CLEAR_UP_PAUSE_MS};

/// The argument that makes an executable a cleaner.
pub(crate) const CLEANER_ARGUMENT: &str = "__cleaner";

/// Name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"gleaner-cleaner";

/// A cleaner that waits. It clears up when this is dropped without [`Cleaner::dismiss`].
#[derive(Debug)]
pub(crate) struct Cleaner {
    child: Child,
    pipe: Option<OwnedFd>,
}

impl Cleaner {
    /// Starts one for the agent that has the lock `lock`.
    pub(crate) fn start(
        program: &Path,
        lock: &Path,
        run_dir: &RunDir,
        [tasks, spool]: [&Path; 2],
        enclosure: &Enclosure,
    ) -> io::Result<Self> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        let child = Command::new(program)
            .arg(CLEANER_ARGUMENT)
            .args([lock, run_dir.path(), tasks, spool])
            .args(enclosure.paths())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, pipe: Some(ours) })
    }
}

impl Cleaner {
    /// Tells it that nothing is left to do: an end without that word it clears up after.
    pub(crate) fn dismiss(mut self) {
        if let Some(pipe) = self.pipe.take() {
            let _ = rustix::io::write(&pipe, b".");
        }
        // It ends at once; unless it is waited for, its number stays taken.
        let _ = self.child.wait();
    }
}

/// Becomes a cleaner if this process was started as one; returns otherwise.
pub(crate) fn run_as_cleaner_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == CLEANER_ARGUMENT) {
        keeper_main(arguments.collect())
    }
}

fn keeper_main(arguments: Vec<OsString>) -> ! {
    let _ = rustix::thread::set_name(NAME);
    // What ends the agent's session or group does not end its cleaner.
    let _ = rustix::process::setsid();
    let mut paths = arguments.into_iter().map(PathBuf::from);
    let mut next = || paths.next().unwrap_or_else(|| exit(NOT_FOR_PEOPLE));
    let (lock, run_dir, folders) = (next(), next(), [next(), next()]);
    // While it is there: whoever removes the folders first leaves us the groups.
    let Ok(lock) = fs::File::open(lock) else { exit(NOT_FOR_PEOPLE) };
    let is_cleared_up = io::stdin().read(&mut [0]).is_ok_and(|read| read > 0);
    if !is_cleared_up && is_locked_in_time(&lock) {
        clear_up(run_dir, &folders, paths.collect());
    }
    exit(0)
}

/// An agent that is killed lets go of the pipe a moment before its lock; another may take it then.
fn is_locked_in_time(lock: &fs::File) -> bool {
    let end = boottime() + Span::from_millis(CLEAR_UP_MS_MAX / 2);
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(_) if boottime() >= end => return false,
            // Locks of files have no event.
            Err(_) => std::thread::sleep(Duration::from_millis(CLEAR_UP_PAUSE_MS)),
        }
    }
}

/// Exit code of a cleaner that no agent started.
const NOT_FOR_PEOPLE: i32 = 2;

fn clear_up(run_dir: PathBuf, folders: &[PathBuf], enclosure: Vec<PathBuf>) {
    if run_dir.exists()
        && let Ok(run_dir) = RunDir::open(run_dir)
    {
        let _ = run_dir.stop_groups();
        give_up_load_average(run_dir.path());
    }
    let end = boottime() + Span::from_millis(CLEAR_UP_MS_MAX / 2);
    // What else ends with the agent, its spawner say, may take a moment longer, and is beside us.
    while let Ok(false) = Enclosure::remove_at(enclosure.clone())
        && boottime() < end
    {
        std::thread::sleep(Duration::from_millis(CLEAR_UP_PAUSE_MS));
    }
    for entry in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        let _ = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
            _ => fs::remove_file(entry.path()),
        };
    }
}
