//! Processes that have left the group in which they were started, found from its leader.
//!
//! A runner adopts whatever its tasks orphan, so all that they ever started descends from it for
//! as long as it lives, whichever session or group that has gone to. Where control groups hold
//! them nobody has to look; where there are none, this is how they are found.
//!
//! # Invariants
//! - A process is signalled through a handle that was opened while it was seen to be a child of
//!   another of this family: so never one that has got its number since.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::ProcessStat;
use crate::limits::{LAST_RUN_PROCESSES_MAX, STRAY_ROUNDS_MAX};

/// One that has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stray {
    pid: i32,
    parent: i32,
}

/// Stops those of a stopped group, and what they start meanwhile. Says how many there are.
pub(crate) fn stop_strays(leader: i32) -> usize {
    let mut stopped = 0;
    for _ in 0..STRAY_ROUNDS_MAX {
        let strays = strays(leader);
        if strays.len() == stopped {
            break;
        }
        stopped = strays.len();
        strays.iter().for_each(|stray| stray.send(Signal::STOP));
    }
    stopped
}

/// Lets those of a group run on.
pub(crate) fn thaw_strays(leader: i32) {
    strays(leader).iter().for_each(|stray| stray.send(Signal::CONT));
}

/// Kills those of a stopped group. To be called while its leader lives: they are nobody's family
/// after.
pub(crate) fn kill_strays(leader: i32) {
    strays(leader).iter().for_each(|stray| stray.send(Signal::KILL));
}

impl Stray {
    fn send(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if ProcessStat::of(self.pid).is_ok_and(|stat| stat.parent == self.parent) {
            // One that ended in this moment is what was wanted.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// Descendants of a group's leader that are in another group.
fn strays(leader: i32) -> Vec<Stray> {
    if leader <= 1 {
        return Vec::new();
    }
    // Orphans become children of the leader's first thread, which starts all others too.
    let mut family = children(leader, leader);
    let mut next = 0;
    while next < family.len() && family.len() < LAST_RUN_PROCESSES_MAX {
        let parent = family[next].pid;
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        family.extend(threads.flat_map(|thread| children(parent, thread)));
    }
    family.retain(|one| ProcessStat::of(one.pid).is_ok_and(|stat| stat.pgid != leader));
    family
}

fn children(parent: i32, thread: i32) -> Vec<Stray> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
    let text = text.unwrap_or_default();
    let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(|pid| Stray { pid, parent }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process_group;

    fn state(pid: i32) -> char {
        ProcessStat::of(pid).map_or('X', |stat| stat.state)
    }

    fn until(pid: i32, states: &str) {
        let end = gleaner_protocol::boottime() + gleaner_protocol::Span::from_secs(20);
        while !states.contains(state(pid)) {
            assert!(gleaner_protocol::boottime() < end, "{pid} is {} still", state(pid));
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_has_begun_a_session_of_its_own_is_frozen_thawed_and_killed_with_the_group() {
        let mut shell = Command::new("/bin/sh");
        let script = "setsid sh -c 'echo $$; while :; do :; done' & wait";
        shell.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("starts");
        let leader = i32::try_from(shell.id()).expect("a number");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let stray: i32 = line.trim().parse().expect("a number");
        assert_eq!(strays(leader).iter().map(|one| one.pid).collect::<Vec<_>>(), [stray]);
        process_group::freeze(leader).expect("frozen");
        until(stray, "T");
        process_group::thaw(leader).expect("thawed");
        until(stray, "RS");
        process_group::kill(leader).expect("killed");
        until(stray, "XZ");
        shell.wait().expect("ours");
        assert_eq!(strays(leader), []);
    }

    #[test]
    fn a_child_of_somebody_else_is_not_signalled() {
        let mut sleep = Command::new("/bin/sleep").arg("1000").spawn().expect("starts");
        let pid = i32::try_from(sleep.id()).expect("a number");
        Stray { pid, parent: 1 }.send(Signal::KILL);
        assert!(sleep.try_wait().expect("ours").is_none());
        sleep.kill().and_then(|()| sleep.wait()).expect("ours");
        for number in [i32::MIN, -1, 0, 1] {
            assert_eq!(strays(number), []);
        }
    }
}
