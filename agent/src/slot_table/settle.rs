//! Coming to rest: what was told to stop does so as soon as it gets a few microseconds of a core.

use std::fs;
use std::sync::Arc;

use gleaner_hooks::ProcessStat;
use gleaner_isolation::Leaf;
use gleaner_protocol::{Span, boottime};

use super::SlotTable;
use super::group::Group;
use crate::limits::{SETTLE_PAUSE_US, SETTLE_URGE_US};
use crate::scheduling_class::let_stop;

impl SlotTable {
    /// Returns when what is frozen has come to rest, or after `limit`. It does not run from the
    /// moment on in which it was frozen; but whoever looks at it may see it about to.
    pub(crate) fn settle(&self, limit: Span) {
        let begun = boottime();
        let (urge_at, end) = (begun + Span::from_micros(SETTLE_URGE_US), begun + limit);
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
            std::thread::sleep(Span::from_micros(SETTLE_PAUSE_US).into());
            if !urged && boottime() >= urge_at {
                // What waits for a disk takes no core: nobody waits for that.
                let waits =
                    |group: &Arc<Group>| group.freezer().is_some_and(|leaf| waits_for_disk(leaf));
                groups.retain(|group| boottime() >= end || !waits(group));
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

/// Whether all that is in it waits for a disk, each of its threads.
pub(super) fn waits_for_disk(leaf: &Leaf) -> bool {
    let threads =
        |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waits = |pid: i32| {
        threads(pid).all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // One that has ended in this moment waits for nothing.
            ProcessStat::parse(&stat).is_none_or(|stat| stat.state == 'D')
        })
    };
    let members = leaf.members();
    !members.is_empty() && members.into_iter().all(waits)
}
