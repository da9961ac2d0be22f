//! Ending what a command left behind.

use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::limits::SWEEP_ROUNDS_MAX;

/// Ends every process that descends from this one and still lives, whatever session or group it
/// has moved to: they are our children, for we adopt orphans. False where some could not be
/// ended.
///
/// Costs one system call where there is nothing to end, which is nearly always.
pub(super) fn end_descendants() -> bool {
    for _ in 0..SWEEP_ROUNDS_MAX {
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return true,
            // One has ended; there may be more.
            Ok(Some(_)) => {}
            Ok(None) => {
                let children = children();
                if children.is_empty() {
                    return false;
                }
                for child in children {
                    let _ = kill_process(child, Signal::KILL);
                }
                // It is dying: this waits for its end, after which its own children are ours.
                let _ = wait(WaitOptions::empty());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    false
}

fn children() -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw))
                .collect::<Vec<_>>()
        })
        .collect()
}
