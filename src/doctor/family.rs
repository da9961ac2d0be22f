//! What a process has started, and what that has used, seen from outside.

use std::fs;

use gleaner_hooks::ProcessStat;

/// Most processes that are looked at.
const PROCESSES_MAX: usize = 4096;

/// Processes that descend from `pid`, without itself; those that left it meanwhile are missed.
pub(super) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        let of_one = children(found[next]);
        found.extend(of_one);
        next += 1;
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> {
        list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    lists.flat_map(numbers).collect()
}

/// CPU time that a process has had so far, in nanoseconds, all its threads; 0 once it is
/// gone.
pub(super) fn cpu_ns(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

/// Memory that a process holds, in bytes; 0 where it has ended.
pub(super) fn resident_bytes(pid: i32) -> u64 {
    if ProcessStat::of(pid).map_or(true, |stat| stat.is_dead()) {
        return 0;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_grandchild_is_found_with_what_it_used() {
        let mut shell = Command::new("/bin/sh");
        // The first shell waits for a second one, which waits for a third that works.
        let script = "sh -c 'sh -c \"while :; do :; done\" & echo $!; wait' & wait";
        shell.args(["-c", script]).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("starts");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let worker: i32 = line.trim().parse().expect("a number");
        let pid = i32::try_from(shell.id()).expect("a number");
        assert!(descendants(pid).contains(&worker));
        while cpu_ns(worker) < 1_000_000 {
            std::thread::yield_now();
        }
        for pid in descendants(pid) {
            let pid = rustix::process::Pid::from_raw(pid).expect("a number");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.wait().expect("ours");
        assert_eq!(cpu_ns(pid), 0, "it was waited for");
    }
}
