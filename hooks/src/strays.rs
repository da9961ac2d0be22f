//! Processes that have left the group in which they were started, found from its leader.
//!
//! # Invariants
//! - A process is signalled through a handle that was opened while it was seen to be a child of
//!   another of this family: so never one that has got its number since.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::ProcessStat;
use crate::family::{Relative, Walk, family};
use crate::limits::STRAY_ROUNDS_MAX;

/// Of a family, those that have left its leader's group.
pub(crate) fn strays_of(leader: i32, mut family: Vec<Relative>) -> Vec<Relative> {
    family.retain(|one| ProcessStat::of(one.pid).is_ok_and(|stat| stat.pgid != leader));
    family
}

/// Stops those of a stopped group that were found, and what they start meanwhile. Returns all that
/// there are.
pub(crate) fn stop_strays(
    leader: i32,
    mut strays: Vec<Relative>,
    walk: &mut Walk,
) -> Vec<Relative> {
    for _ in 0..STRAY_ROUNDS_MAX {
        if strays.is_empty() {
            break;
        }
        send_all(&strays, Signal::STOP);
        let again = strays_of(leader, family(leader, walk));
        if walk.is_over() {
            break;
        }
        let is_all = again == strays;
        strays = again;
        if is_all {
            break;
        }
    }
    strays
}

/// Lets what has left a group run on. A walk over its leader's family.
pub fn thaw_strays(leader: i32) {
    send_all(&strays_of(leader, family(leader, &mut Walk::patient())), Signal::CONT);
}

/// Kills those of a stopped group. To be called while its leader lives: they are nobody's family
/// after.
pub(crate) fn kill_strays(strays: &[Relative]) {
    send_all(strays, Signal::KILL);
}

fn send_all(strays: &[Relative], signal: Signal) {
    strays.iter().for_each(|stray| send(stray, signal));
}

fn send(stray: &Relative, signal: Signal) {
    let Some(pid) = Pid::from_raw(stray.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if ProcessStat::of(stray.pid).is_ok_and(|stat| stat.parent == stray.parent) {
        // One that ended in this moment is what was wanted.
        let _ = pidfd_send_signal(handle, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process_group;

    fn strays(leader: i32) -> Vec<Relative> {
        strays_of(leader, family(leader, &mut Walk::patient()))
    }

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
        send(&Relative { pid, parent: 1 }, Signal::KILL);
        assert!(sleep.try_wait().expect("ours").is_none());
        sleep.kill().and_then(|()| sleep.wait()).expect("ours");
    }
}
