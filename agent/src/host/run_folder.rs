//! What hooks have written down, and what renders have booked by that.

use std::collections::BTreeSet;

use gleaner_hooks::{RunDir, RunDirError};
use gleaner_protocol::BookingId;
use gleaner_protocol::farm::Booked;

use crate::harvest::RunFolderState;
use crate::release::releaser::{booked_cores, booked_mib};

/// What a farm books of which nothing was heard.
pub(crate) const NOTHING_BOOKED: Booked =
    Booked { cores: Some(0), memory_mib: None, gpus: Some(0) };

/// What all renders have booked.
pub(crate) struct Together {
    /// Cores of this host, at most all of them.
    pub(crate) cores: u32,
    /// Memory in MiB, as far as they say so.
    pub(crate) memory_mib: Option<u64>,
    /// Each by itself.
    pub(crate) all: Vec<Booked>,
    /// Which they are.
    pub(crate) running: BTreeSet<BookingId>,
}

/// What the run folder says, and what all renders together have booked: the more of that and of what the
/// farm itself says. `taken` says how many cores renders take that booked so many.
pub(crate) fn read_run_folder(
    run_dir: &RunDir,
    cores: u32,
    taken: impl Fn(u32) -> u32,
    farm: Booked,
) -> Result<(RunFolderState, Together), RunDirError> {
    loop {
        let epoch = run_dir.epoch()?;
        let bookings = run_dir.bookings()?;
        // A hook that came in between has raised the epoch first.
        if run_dir.epoch()? == epoch {
            let all: Vec<Booked> = bookings.iter().map(|one| one.resources).collect();
            let running = bookings.into_iter().map(|one| one.booking).collect();
            let here = booked_cores(all.iter().copied(), cores);
            let together = booked_cores([farm], cores).max(here);
            let booked = taken(together).min(cores);
            let memory_mib = booked_mib(&all);
            let run_folder =
                RunFolderState { epoch, booked, has_fence: false, ..RunFolderState::default() };
            return Ok((run_folder, Together { cores: together, memory_mib, all, running }));
        }
    }
}
