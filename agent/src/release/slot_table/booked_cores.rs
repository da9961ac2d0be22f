//! What renders take of the host, for whoever gives way to them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::SlotTable;

impl SlotTable {
    /// Notes what renders have booked, and take by that. Whoever gives way to others asks for it here,
    /// and not the run folder: a file system may make its readers wait.
    pub(crate) fn note_booked_cores(&self, cores: u32, taken: u32) {
        self.booked_cores.store(cores, Ordering::Release);
        self.taken_cores.store(taken, Ordering::Release);
    }

    /// Cores that they took by that: also those that share a physical one with them.
    pub(crate) fn taken_cores(&self) -> u32 {
        self.taken_cores.load(Ordering::Acquire)
    }

    /// Notes which CPUs others are bound to.
    pub(crate) fn note_claims(&self, claims: BTreeSet<u32>) {
        self.lock().claims = claims;
    }

    /// CPUs that others were bound to when that was looked for last.
    pub(crate) fn claims(&self) -> BTreeSet<u32> {
        self.lock().claims.clone()
    }

    pub(super) fn is_beside_render(&self) -> bool {
        self.booked_cores() > 0
    }

    /// Cores that renders had booked when they were noted last.
    pub(crate) fn booked_cores(&self) -> u32 {
        self.booked_cores.load(Ordering::Acquire)
    }
}
