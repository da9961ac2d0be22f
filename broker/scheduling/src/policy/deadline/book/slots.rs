//! The leases of a workunit, as the book sees them.

use gleaner_protocol::{LeaseToken, Share};
use smallvec::SmallVec;

use super::{Run, Task};
use crate::farm::{Farm, HostIx, Pending, WorkunitIx};

/// A lease of a workunit that takes a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) host: HostIx,
    pub(crate) token: LeaseToken,
    pub(crate) share: Share,
}

impl Slot {
    pub(crate) fn is(&self, run: Run) -> bool {
        (self.host, self.token, self.share) == (run.host, run.token, run.share)
    }
}

/// The leases of a workunit that take a slot, in the order in which they were given.
pub(crate) fn slots_of(farm: &Farm, workunit: WorkunitIx) -> SmallVec<[Slot; 2]> {
    let slot = |of: &Pending| {
        let mut leases = farm.host(of.host).leases.iter();
        let lease = leases.find(|lease| lease.token == of.token)?;
        Some(Slot { host: of.host, token: of.token, share: lease.share })
    };
    farm.workunit(workunit).pending.iter().filter_map(slot).collect()
}

impl Task {
    /// Whether one of its replicas has this slot.
    pub(crate) fn has(&self, slot: &Slot) -> bool {
        self.run.into_iter().chain(self.insurance).any(|run| slot.is(run))
    }
}
