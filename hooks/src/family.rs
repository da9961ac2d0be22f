//! What a group's leader has started, and what that has: all of it, whichever session or group it
//! has gone to.
//!
//! A runner adopts whatever its tasks orphan, so all that they ever started descends from it for
//! as long as it lives. Where control groups hold them nobody has to look; where there are none,
//! this is how they are found.
//!
//! # Invariants
//! - A walk ends: it is bounded in time, in threads and in processes.

use std::fs;

use gleaner_protocol::{Span, Time, boottime};

use crate::limits::{FAMILY_MAX, FAMILY_THREADS_MAX, FAMILY_WALK};

/// One that descends from a group's leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relative {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
}

/// How much may still be looked at.
#[derive(Debug)]
pub(crate) struct Walk {
    until: Time,
    threads_left: usize,
    /// Of one family.
    processes_max: usize,
    /// Something was not looked at.
    is_over: bool,
}

impl Walk {
    /// For whoever may take its time.
    pub(crate) fn patient() -> Self {
        Self::of(FAMILY_WALK)
    }

    /// For this long, over as many families as there are.
    pub(crate) fn of(limit: Span) -> Self {
        Self::until(boottime() + limit)
    }

    pub(crate) const fn until(until: Time) -> Self {
        let (threads_left, processes_max) = (FAMILY_THREADS_MAX, FAMILY_MAX);
        Self { until, threads_left, processes_max, is_over: false }
    }

    /// Whether it has ended before all was looked at.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether one more thread is looked at.
    fn goes_on(&mut self) -> bool {
        self.is_over |= self.threads_left == 0 || boottime() >= self.until;
        self.threads_left = self.threads_left.saturating_sub(1);
        !self.is_over
    }

    /// All threads of a process, as far as it goes; none of one that is gone.
    pub(crate) fn threads(&mut self, pid: i32) -> impl Iterator<Item = i32> {
        let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.take_while(|_| self.goes_on())
    }
}

/// Descendants of a group's leader, parents before their children.
pub(crate) fn family(leader: i32, walk: &mut Walk) -> Vec<Relative> {
    let mut family = Vec::new();
    if leader <= 1 || !walk.goes_on() {
        return family;
    }
    let most = walk.processes_max;
    // Orphans become children of the leader's first thread, which starts all others too.
    extend(&mut family, most, leader, leader);
    let mut next = 0;
    while next < family.len() && family.len() < most && !walk.is_over() {
        let parent = family[next].pid;
        next += 1;
        walk.threads(parent).for_each(|thread| extend(&mut family, most, parent, thread));
    }
    family
}

/// Takes in what a thread has started, as far as there is room.
fn extend(family: &mut Vec<Relative>, most: usize, parent: i32, thread: i32) {
    let room = most.saturating_sub(family.len());
    let text = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
    let text = text.unwrap_or_default();
    let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    family.extend(pids.map(|pid| Relative { pid, parent }).take(room));
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_family_is_found_as_far_as_it_is_bounded() {
        const MOST: usize = 64;
        let script = format!(
            "i=0; while [ $i -lt {} ]; do sleep 1000 & i=$((i+1)); done; echo; wait",
            MOST + 8
        );
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script]).process_group(0).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("it is there");
        let leader = i32::try_from(shell.id()).expect("a number");
        let stdout = shell.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut String::new()).expect("a line");
        let small = || Walk { processes_max: MOST, ..Walk::patient() };
        let found = family(leader, &mut small());
        assert_eq!(found.len(), MOST, "no more, though one process has started them all");
        assert!(found.iter().all(|one| one.parent == leader));
        assert_eq!(family(leader, &mut Walk::of(Span::ZERO)), [], "there was no time");
        let mut walk = Walk { threads_left: 1, ..small() };
        assert_eq!(family(leader, &mut walk).len(), MOST, "a single thread was looked at");
        assert_eq!((walk.threads(leader).count(), walk.is_over()), (0, true));
        crate::kill(leader).expect("killed");
        shell.wait().expect("ours");
        for number in [i32::MIN, -1, 0, 1] {
            assert_eq!(family(number, &mut Walk::patient()), []);
        }
    }
}
