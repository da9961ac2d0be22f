//! Keeps what goes on beside renders off their cores where no control group does it: by the affinity
//! of each thread, which what it starts inherits.
//!
//! A task that sets its own undoes it: this is for hosts that have nothing better.

use std::fs;
use std::sync::Arc;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::SlotTable;
use super::group::Group;
use crate::limits::TREE_THREADS_MAX;

/// How often a group is gone over: what forks in between has been told by then, or has inherited.
const ROUNDS: u32 = 2;

impl SlotTable {
    /// Keeps all that runs here, and what begins later, to these CPUs.
    pub(crate) fn keep_to_cpus(&self, cpus: &[u32]) {
        let groups: Vec<Arc<Group>> = {
            let mut inner = self.lock();
            inner.cpus = Some(set_of(cpus));
            inner.runners.iter().flatten().map(|runner| Arc::clone(&runner.group)).collect()
        };
        groups.iter().for_each(|group| self.keep_in(group));
    }

    /// Has a group keep to them, if there are any. Whoever reaches it last has read last what these are.
    pub(super) fn keep_in(&self, group: &Group) {
        let Some(_reach) = group.reach() else { return };
        let set = self.lock().cpus;
        if let Some(set) = set {
            keep_family_to(group.pgid(), &set);
        }
    }
}

fn set_of(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter()
        .filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU)
        .for_each(|cpu| set.set(*cpu as usize));
    set
}

fn keep_family_to(leader: i32, set: &CpuSet) {
    for _ in 0..ROUNDS {
        let (mut open, mut threads_left) = (vec![leader], TREE_THREADS_MAX);
        while let Some(pid) = open.pop() {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for thread in threads {
                let Some(left) = threads_left.checked_sub(1) else { return };
                threads_left = left;
                let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
                // One that has ended in this moment runs nowhere.
                let _ = number.and_then(Pid::from_raw).map(|one| sched_setaffinity(Some(one), set));
                let children = fs::read_to_string(thread.path().join("children"));
                let children = children.unwrap_or_default();
                open.extend(
                    children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()),
                );
            }
        }
    }
}
