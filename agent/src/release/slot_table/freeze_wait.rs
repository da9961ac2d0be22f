//! Coming to rest: what was told to stop does so as soon as it gets a few microseconds of a core.

use std::fs;
use std::sync::Arc;

use gleaner_hooks::ProcessStat;
use gleaner_protocol::{Span, Time, boottime};

use super::SlotTable;
use super::group::Group;
use crate::limits::{FREEZE_WAIT_PAUSE_US, FREEZE_WAIT_URGE_US};
use crate::run::scheduling_class::let_stop;

impl SlotTable {
    /// Returns when what is frozen has come to rest, or after `limit`. It does not run from the
    /// moment on in which it was frozen; but whoever looks at it may see it about to.
    pub(crate) fn wait_frozen(&self, limit: Span) {
        let begun = boottime();
        let (urge_at, end) = (begun + Span::from_micros(FREEZE_WAIT_URGE_US), begun + limit);
        let mut groups: Vec<Arc<Group>> = {
            let inner = self.lock();
            inner.frozen_runners().map(|runner| Arc::clone(&runner.group)).collect()
        };
        // To come to rest takes a few microseconds of a core, which this thread may be keeping from
        // it: it looks at one at a time, and rests in between.
        let mut urged = false;
        while let Some(group) = groups.last() {
            if group.is_at_rest(end) {
                groups.pop();
                continue;
            }
            if boottime() >= end {
                return;
            }
            std::thread::sleep(Span::from_micros(FREEZE_WAIT_PAUSE_US).into());
            if !urged && boottime() >= urge_at {
                // What waits for a disk takes no core: nobody waits for that.
                groups.retain(|group| !waits_for_disk(group, end));
                // What it has started may have to wait behind all others. Where no freezer names it,
                // it was put before them when it was looked for.
                let leaves = groups.iter().filter_map(|group| group.freezer());
                let members = leaves.flat_map(|leaf| leaf.members());
                members.take_while(|_| boottime() < end).for_each(let_stop);
                urged = true;
            }
        }
    }
}

/// Whether something in it waits for a disk, and nothing for a core: what has come to rest already, or
/// waits for something else, as a command's runner does for it, has no use for one either. Only where
/// something holds all of it; false where that cannot be seen until then.
pub(super) fn waits_for_disk(group: &Group, until: Time) -> bool {
    let members = group.freezer().map(|leaf| leaf.members()).unwrap_or_default();
    let states = members.into_iter().flat_map(states);
    has_no_use_for_a_core(states.map(|state| if boottime() < until { state } else { RUNS }))
}

/// Of a thread that has a core or waits for one.
const RUNS: char = 'R';

/// Of the threads of a process. One that ends in this moment has none.
fn states(pid: i32) -> impl Iterator<Item = char> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        Some(ProcessStat::parse(&stat)?.state)
    })
}

/// By the states of its threads.
fn has_no_use_for_a_core(states: impl Iterator<Item = char>) -> bool {
    let mut waits = false;
    for state in states {
        match state {
            // What was told to stop and has not obeyed is one of these.
            RUNS => return false,
            'D' => waits = true,
            _ => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_disk_beside_what_has_come_to_rest_has_no_use_for_a_core() {
        for states in ["D", "SD", "DT", "DZ"] {
            assert!(has_no_use_for_a_core(states.chars()), "{states}");
        }
        for states in ["", "S", "T", "DR", "RD"] {
            assert!(!has_no_use_for_a_core(states.chars()), "{states}");
        }
    }
}
