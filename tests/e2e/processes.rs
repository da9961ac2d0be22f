//! Processes as the kernel shows them to anyone: what is judged here needs no word of Gleaner's.

use std::fs;
use std::thread;

use gleaner_protocol::{Time, boottime};

use crate::patience::{LOOK_AGAIN, PATIENCE};

/// A process at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) pgid: i32,
    /// `R`, `S`, `D`, `T`, `Z` and so on.
    pub(crate) state: char,
    /// A SIGKILL or SIGSTOP is on its way to it: it cannot come back to its own code.
    stopping: bool,
    /// A SIGKILL is.
    dying: bool,
    /// CPU time that it has used, in clock ticks.
    pub(crate) cpu_ticks: u64,
}

/// Bits in the signal masks of `/proc`.
const SIGKILL: u64 = 1 << (9 - 1);
const SIGSTOP: u64 = 1 << (19 - 1);
/// From the kernel's `sched.h`.
const PF_EXITING: i64 = 0x4;

impl Process {
    /// None where there is no such process.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let mask = |name| u64::from_str_radix(field(name)?.trim(), 16).ok();
        let signals = mask("SigPnd:")? | mask("ShdPnd:")?;
        // It has taken its SIGKILL, and only gives back what it has.
        let exits = number(6)? & PF_EXITING != 0;
        Some(Self {
            pid,
            parent: i32::try_from(number(1)?).ok()?,
            pgid: i32::try_from(number(2)?).ok()?,
            state: field("State:")?.trim().chars().next()?,
            stopping: exits || signals & (SIGKILL | SIGSTOP) != 0,
            dying: exits || signals & SIGKILL != 0,
            cpu_ticks: u64::try_from(number(11)? + number(12)?).ok()?,
        })
    }

    /// Whether it computes, or is about to as soon as it gets a core.
    fn computes(&self) -> bool {
        matches!(self.state, 'R' | 'D') && !self.stopping
    }
}

/// Every process of the machine.
pub(crate) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("a /proc");
    entries
        .filter_map(|entry| Process::of(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Those of these processes that compute. Each is looked at twice: between the two looks a
/// signal may have done its work.
pub(crate) fn computing(pids: &[i32]) -> Vec<Process> {
    let computes =
        |pid: i32| Process::of(pid).filter(Process::computes).filter(|_| !is_in_freezer(pid));
    pids.iter().filter_map(|pid| computes(*pid).and_then(|_| computes(*pid))).collect()
}

/// When none of these processes computes any more. A look takes less than a millisecond.
pub(crate) fn stopped_at(pids: &[i32]) -> Time {
    let begun = boottime();
    while !computing(pids).is_empty() {
        assert!(boottime() - begun < PATIENCE.into(), "they compute on beside the render");
        thread::yield_now();
    }
    boottime()
}

/// CPU time that these processes have used, in clock ticks; those that are gone count nothing.
pub(crate) fn cpu_ticks(pids: &[i32]) -> u64 {
    pids.iter().filter_map(|pid| Process::of(*pid)).map(|process| process.cpu_ticks).sum()
}

/// Whether a process is stopped by a signal, or has come to rest in the freezer of its control
/// group.
pub(crate) fn is_frozen(pid: i32) -> bool {
    Process::of(pid).is_some_and(|process| process.state == 'T')
        || group_says(pid, "cgroup.events", "frozen 1")
        || group_says(pid, "freezer.state", "FROZEN")
}

/// Whether a process is frozen, or cannot come back to its own code before it is, or ends.
pub(crate) fn is_held(pid: i32) -> bool {
    Process::of(pid).is_some_and(|process| process.stopping) || is_in_freezer(pid) || is_frozen(pid)
}

/// Whether it comes to rest there before it can execute anything of its own.
fn is_in_freezer(pid: i32) -> bool {
    group_says(pid, "cgroup.freeze", "1")
        || group_says(pid, "freezer.state", "FROZEN")
        || group_says(pid, "freezer.state", "FREEZING")
}

/// Whether a file of one of a process's control groups holds a line.
fn group_says(pid: i32, file: &str, line: &str) -> bool {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let (groups, mounts) = (read(format!("/proc/{pid}/cgroup")), read("/proc/self/mounts".into()));
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let points: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(" cgroup"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    paths.filter(|path| *path != "/").any(|path| {
        points.iter().any(|point| {
            read(format!("{point}{path}/{file}")).lines().any(|one| one.trim() == line)
        })
    })
}

/// A variable of a process's environment, as it was started.
pub(crate) fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut pairs = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Whether a process lives: it is there, no zombie, and no SIGKILL is on its way to it. (One that
/// is killed may wait for a core until it can die.)
pub(crate) fn lives(pid: i32) -> bool {
    let ended = |process: &Process| process.dying || matches!(process.state, 'Z' | 'X');
    Process::of(pid).is_some_and(|process| !ended(&process))
}

/// Whether a process dies in time. Work in the idle class that was killed may wait long for the
/// core that it needs to be gone; that it can do nothing else any more is what counts.
pub(crate) fn dies(pid: i32) -> bool {
    let end = boottime() + PATIENCE.into();
    while lives(pid) {
        if boottime() > end {
            return false;
        }
        // Signals on their way have no event.
        thread::sleep(LOOK_AGAIN);
    }
    true
}
