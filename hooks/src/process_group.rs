//! Process groups: who is in them, and the signals that stop them.
//!
//! # Invariants
//! - A number that would reach beyond one process group (0, 1 and below) is never signalled.
//! - A process is identified by its number and its start time: numbers are used again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use gleaner_protocol::{Span, Time, boottime};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::family::{Relative, Walk, family};
use crate::last_run::{let_end, let_family_stop, let_idle, let_one_stop};
use crate::limits::STAT_BYTES_MAX;
use crate::strays::{kill_strays, stop_strays, strays_of, thaw_strays};

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its number.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// State letter: `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: char,
    /// The group that it is in.
    pub pgid: i32,
    /// The session that it is in.
    pub session: i32,
    /// The kernel's flags, of which one says that it is the kernel's own. Source:
    /// `include/linux/sched.h`.
    pub flags: u64,
    /// CPU time that all its threads have used, without its children's, in clock ticks.
    pub cpu_ticks: u64,
    /// When it started, in clock ticks since the machine booted.
    pub start_ticks: u64,
}

impl ProcessStat {
    /// Reads it.
    ///
    /// # Errors
    /// No such process, or no `/proc`.
    pub fn of(pid: i32) -> io::Result<Self> {
        // As long as none is, so that one read has all of it.
        let mut text = Vec::with_capacity(STAT_BYTES_MAX);
        let file = File::open(format!("/proc/{pid}/stat"))?;
        file.take(STAT_BYTES_MAX as u64).read_to_end(&mut text)?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc stat line"))
    }

    /// Whether it is a thread of the kernel.
    #[must_use]
    pub const fn is_kernels(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Whether it has ended and only waits for its parent to take note.
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Reads it off the line of `/proc/PID/stat`; none where it is no such line.
    // The program's name stands in parentheses and may hold spaces and parentheses itself, so the
    // fields are counted from the last one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            pgid: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            cpu_ticks: fields.get(11)?.parse::<u64>().ok()?
                + fields.get(12)?.parse::<u64>().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

/// A process group that runs harvested work, identified by its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskGroup {
    /// Its number, which is its leader's.
    pub pgid: i32,
    /// When its leader started, in clock ticks since the machine booted.
    pub leader_start_ticks: u64,
}

impl TaskGroup {
    /// The group that the living process `pid` leads.
    ///
    /// # Errors
    /// No such process, or it leads no group.
    pub fn of_leader(pid: i32) -> io::Result<Self> {
        let stat = ProcessStat::of(pid)?;
        if stat.pgid != pid {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("process {pid} does not lead its group {}", stat.pgid),
            ));
        }
        Ok(Self { pgid: pid, leader_start_ticks: stat.start_ticks })
    }
}

/// Stops every process of a group where it stands (SIGSTOP), and what its leader's family has
/// started elsewhere; and lets it do so even on a host whose cores are all wanted.
///
/// # Errors
/// No such group, not ours, or a number that is no group's.
pub fn freeze(pgid: i32) -> io::Result<()> {
    tell_to_stop(pgid)?;
    stop_family(pgid, &mut Walk::patient());
    Ok(())
}

/// As [`freeze`]; the leader's family is looked for no longer than until then. False where there
/// was more of it, for which there is [`stop_stragglers`].
///
/// # Errors
/// As [`freeze`].
pub fn freeze_until(pgid: i32, until: Time) -> io::Result<bool> {
    tell_to_stop(pgid)?;
    let mut walk = Walk::until(until);
    stop_family(pgid, &mut walk);
    Ok(!walk.is_over())
}

/// Stops what the leader of a stopped group has started elsewhere.
pub fn stop_stragglers(pgid: i32) {
    stop_family(pgid, &mut Walk::patient());
}

/// Stops every process of a group where it stands, and has its leader do so at once. Takes the
/// same few microseconds however many there are.
pub(crate) fn tell_to_stop(pgid: i32) -> io::Result<()> {
    signal(pgid, Signal::STOP)?;
    let_one_stop(pgid);
    Ok(())
}

/// Has the family of a stopped group's leader stop at once, and what of it has left the group stop
/// at all: the latter, as far as the walk goes.
pub(crate) fn stop_family(pgid: i32, walk: &mut Walk) -> Vec<Relative> {
    let family = family(pgid, walk);
    let_family_stop(&family);
    stop_strays(pgid, strays_of(pgid, family), walk)
}

/// Whether a group's leader and all that it has started stand still: stopped, ended, or waiting for
/// what the kernel does not interrupt. False where there was no time to look at all of it.
#[must_use]
pub fn has_stopped(pgid: i32, until: Time) -> bool {
    let stands = |pid: i32| {
        ProcessStat::of(pid).map_or(true, |stat| stat.is_dead() || matches!(stat.state, 'T' | 'D'))
    };
    let mut walk = Walk::until(until);
    stands(pgid) && family(pgid, &mut walk).iter().all(|one| stands(one.pid)) && !walk.is_over()
}

/// Lets a frozen group run on (SIGCONT), in the idle class where all harvested work belongs.
///
/// # Errors
/// As [`freeze`].
pub fn thaw(pgid: i32) -> io::Result<()> {
    let_idle(pgid);
    thaw_strays(pgid);
    signal(pgid, Signal::CONT)
}

/// Puts a frozen group that was hurried to come to rest back into the idle class.
pub fn calm(pgid: i32) {
    let_idle(pgid);
}

/// Ends every process of a group (SIGKILL), frozen or not, and what its leader's family has
/// started elsewhere.
///
/// # Errors
/// As [`freeze`].
pub fn kill(pgid: i32) -> io::Result<()> {
    let mut walk = Walk::patient();
    let mut strays = strays_of(pgid, family(pgid, &mut walk));
    if !strays.is_empty() {
        // Nothing of it starts anything more.
        signal(pgid, Signal::STOP)?;
        strays = stop_strays(pgid, strays, &mut walk);
    }
    kill_with(pgid, &strays)?;
    let_end(pgid, &mut walk);
    Ok(())
}

/// Ends every process of a group, and these that have left it.
pub(crate) fn kill_with(pgid: i32, strays: &[Relative]) -> io::Result<()> {
    kill_strays(strays);
    signal(pgid, Signal::KILL)
}

fn signal(pgid: i32, signal: Signal) -> io::Result<()> {
    // kill(-1, …) would reach every process of the machine.
    match (pgid > 1).then(|| Pid::from_raw(pgid)).flatten() {
        Some(group) => Ok(kill_process_group(group, signal)?),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{pgid} is no task group")))
        }
    }
}

/// A process of a group whose leader is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) stat: ProcessStat,
    pub(crate) uid: u32,
}

/// Every process of the machine that has not ended, by a walk over `/proc`.
pub(crate) fn all_members() -> Vec<Member> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let uid = entry.metadata().ok()?.uid();
            let stat = ProcessStat::of(pid).ok()?;
            (!stat.is_dead()).then_some(Member { stat, uid })
        })
        .collect()
}

/// A handle that becomes readable when the process ends.
pub(crate) fn watch(pid: i32) -> Option<OwnedFd> {
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten()?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until all watched processes have ended or the time is over; returns how many have not.
pub(crate) fn wait_all(watched: &[OwnedFd], limit: Span) -> usize {
    let end = boottime() + limit;
    let mut left: Vec<&OwnedFd> = watched.iter().collect();
    while !left.is_empty() {
        let rest = end.since(boottime());
        let mut fds: Vec<PollFd<'_>> =
            left.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
        let outcome = poll(&mut fds, Some(&rest.into()));
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut index = 0;
        left.retain(|_| {
            index += 1;
            !ended[index - 1]
        });
        let interrupted = matches!(outcome, Err(rustix::io::Errno::INTR));
        if rest == Span::ZERO || (outcome.is_err() && !interrupted) {
            break;
        }
    }
    left.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c)) S 7 42 40 0 -1 4194560 1 0 0 0 5 6 7 8 20 0 1 0 777 1 2 3";
        let stat = ProcessStat::parse(line).expect("a stat line");
        assert_eq!((stat.pid, stat.parent, stat.state), (42, 7, 'S'));
        assert_eq!((stat.pgid, stat.session, stat.flags), (42, 40, 4_194_560));
        assert_eq!((stat.cpu_ticks, stat.start_ticks), (11, 777));
        assert!(!stat.is_kernels() && ProcessStat { flags: 0x0020_8040, ..stat }.is_kernels());
        for torn in ["", "42", "42 (x", "42 (x) S 1 2", ") S"] {
            assert_eq!(ProcessStat::parse(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn numbers_that_reach_beyond_one_group_are_refused() {
        for pgid in [i32::MIN, -7, -1, 0, 1] {
            assert!(freeze(pgid).is_err(), "{pgid}");
            assert!(thaw(pgid).is_err(), "{pgid}");
            assert!(kill(pgid).is_err(), "{pgid}");
        }
    }
}
