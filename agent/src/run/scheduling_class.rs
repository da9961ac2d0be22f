//! Who runs last: harvested work, until it is to stop.
//!
//! A class ranks a thread among those that the kernel weighs together. Where it groups tasks by
//! session, the sessions are weighed first: so that of the runners is the last of them
//! ([`crate::run::spawner`]).

use std::fs;

use gleaner_hooks::{SchedulingClass, set_scheduling_class};

/// Puts this thread, and all that it will start, into the idle class: it runs only where nothing
/// else wants the core. Where that is refused, at the lowest priority.
pub(crate) fn become_idle() {
    if !set_scheduling_class(SELF, SchedulingClass::Idle) {
        let _ = rustix::process::setpriority_process(None, LOWEST);
    }
}

/// Has what this thread, and all that it will start, reads and writes wait for others' disk
/// accesses. The kernel would do that of itself for what is in the idle class, but not for what was
/// lifted out of it to stop, nor where that class was refused.
#[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
pub(crate) fn make_io_idle() {
    // Where it is refused the disk is shared as the kernel sees fit.
    // SAFETY: the call takes three numbers and writes nothing.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, IO_OF_PROCESS, SELF, IO_IDLE) };
}

/// Takes this thread out of the idle class, and out of that in which it was told to stop.
#[cfg(feature = "wasm")]
pub(crate) fn become_ordinary() {
    let _ = set_scheduling_class(SELF, SchedulingClass::Ordinary);
}

/// Has the first thread of a process that was sent a stop signal obey it at once. To stop is
/// work of the thread itself, a few microseconds of it: in the idle class it would not get to it
/// while anything else wants the core.
pub(crate) fn let_stop(pid: i32) {
    if pid > 0 && !set_scheduling_class(pid, SchedulingClass::Urgent) {
        let _ = set_scheduling_class(pid, SchedulingClass::Ordinary);
    }
}

/// Has a runner, and the worker that it runs something in, obey at once: [`let_stop`].
pub(crate) fn let_runner_obey(pid: i32) {
    let_stop(pid);
    // What only waits for its child has nothing to obey.
    descendants(pid).into_iter().filter(|pid| children(*pid).is_empty()).for_each(let_stop);
}

/// What a process has started, and what these have.
fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        if found.len() < DESCENDANTS_MAX {
            found.extend(children(pid));
        }
    }
    found
}

/// A runner has two where it runs a worker. A command may have more, which die as they come to it.
const DESCENDANTS_MAX: usize = 16;

/// What the first thread of a process has started.
fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Puts the first thread of another process into the idle class again.
pub(crate) fn be_idle(pid: i32) {
    if pid > 0 {
        // Where that is refused it has ended, or was never lifted.
        let _ = set_scheduling_class(pid, SchedulingClass::Idle);
    }
}

/// Has a stopped process die like any other, once it is told to. In the idle class its memory would
/// not come back while anything else wants the core; above the others it would keep them from it
/// for as long as giving back its memory takes, which its last thread does.
pub(crate) fn let_die(pid: i32) {
    if pid <= 0 {
        return;
    }
    for pid in std::iter::once(pid).chain(descendants(pid)) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            // Where that is refused it takes longer.
            let _ = set_scheduling_class(thread, SchedulingClass::Ordinary);
        }
    }
}

/// The calling thread.
const SELF: i32 = 0;

const LOWEST: i32 = 19;

/// `IOPRIO_WHO_PROCESS` of the kernel's `ioprio.h`, which means one thread.
const IO_OF_PROCESS: i32 = 1;
/// `IOPRIO_CLASS_IDLE` there, above the thirteen bits of a level that it does not have.
const IO_IDLE: i32 = 3 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
    fn io_priority() -> i64 {
        // SAFETY: the call takes two numbers and writes nothing.
        unsafe { libc::syscall(libc::SYS_ioprio_get, IO_OF_PROCESS, SELF) }
    }

    #[test]
    fn disk_accesses_are_idle_without_the_idle_class() {
        // In threads of their own: the other tests are none of its business.
        let inherited = std::thread::spawn(|| {
            make_io_idle();
            assert_eq!(io_priority(), i64::from(IO_IDLE));
            std::thread::spawn(io_priority).join().expect("no panic")
        });
        assert_eq!(inherited.join().expect("no panic"), i64::from(IO_IDLE));
    }
}
