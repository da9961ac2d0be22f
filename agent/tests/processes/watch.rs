//! Looking at processes from outside, and waiting for what happens to them.

use std::time::Duration;

use gleaner_hooks::ProcessStat;
use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Longer than anything takes; a story that waits for so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Processes of a group that have not ended.
pub(crate) fn members(pgid: i32) -> Vec<ProcessStat> {
    std::fs::read_dir("/proc")
        .expect("there")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| ProcessStat::of(pid).ok())
        .filter(|stat| stat.pgid == pgid && !stat.is_dead())
        .collect()
}

/// Processes that have not ended and have an argument that contains `marker`: they may be in a
/// namespace in which they have other numbers.
pub(crate) fn marked(marker: &str) -> Vec<i32> {
    let contains = |text: &[u8]| text.windows(marker.len()).any(|part| part == marker.as_bytes());
    std::fs::read_dir("/proc")
        .expect("there")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| ProcessStat::of(*pid).is_ok_and(|stat| !stat.is_dead()))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| contains(&text))
        })
        .collect()
}

/// The file that a process executes.
pub(crate) fn name_of(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The process that has started a runner: it leads the runner's session.
pub(crate) fn spawner_of(runner: i32) -> i32 {
    ProcessStat::of(runner).expect("it lives").session
}

/// Waits until no process of a group is left.
pub(crate) fn wait_for_end_of_group(pgid: i32) {
    // Each round waits for the end of one; only a group that is alive can grow.
    while let Some(member) = members(pgid).first() {
        wait_for_end(member.pid);
    }
}

/// Waits until a process has ended.
pub(crate) fn wait_for_end(pid: i32) {
    let number = Pid::from_raw(pid).expect("a process number");
    let Ok(handle) = pidfd_open(number, PidfdFlags::empty()) else { return };
    let mut fds = [PollFd::new(&handle, PollFlags::IN)];
    let limit = Timespec { tv_sec: LONG.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut fds, Some(&limit)).expect("polls");
    assert_eq!(ended, 1, "process {pid} does not end: {:?}", ProcessStat::of(pid));
}

/// Waits until `there` says so. For what nobody sends an event of: a state in `/proc`.
pub(crate) fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let end = boottime() + Span::from(LONG);
    while !there() {
        assert!(boottime() < end, "never came: {what}");
        pause();
    }
}

/// Leaves the cores to what is waited for, which is idle-class work.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_micros(200));
}
