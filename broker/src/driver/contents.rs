//! Which contents an agent may have: those of its leases.

use gleaner_protocol::{Digest, HostName};
use gleaner_scheduling::Core;
use thiserror::Error;

use crate::datasets::ChunkTable;

/// What an agent wants to do with contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentUse {
    /// To read a blob.
    ReadBlob(Digest),
    /// To read what a replica saved.
    ReadState(Digest),
    /// To bring an output, or what a replica saved.
    Bring,
}

/// Why an agent may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ContentRefusal {
    /// It has no link, or another one.
    #[error("the control link of this agent does not stand: contents come and go while it does")]
    NoLink,
    /// It has no lease that needs this.
    #[error("no lease of this host needs this")]
    NoLease,
}

/// Whether a host may do this.
pub(super) fn check(
    core: &Core,
    chunks: &ChunkTable,
    host: &HostName,
    what: ContentUse,
) -> Result<(), ContentRefusal> {
    let farm = core.farm();
    let host = farm.host_named(host).ok_or(ContentRefusal::NoLink)?;
    let is_needed = host.all_leases().any(|lease| {
        let unit = farm.workunit(lease.workunit);
        match what {
            ContentUse::Bring => true,
            ContentUse::ReadState(state) => {
                unit.saved.iter().any(|saved| saved.token == lease.token && saved.state == state)
            }
            ContentUse::ReadBlob(blob) => {
                let chunk = farm.chunk_of(unit.id).and_then(|chunk| chunks.chunk(chunk));
                let task = farm.job(unit.id.job).map(|job| &job.spec.task);
                chunk.is_some_and(|chunk| chunk.digest == blob)
                    || task.is_some_and(|task| task.contents().any(|(_, of)| of == blob))
            }
        }
    });
    if is_needed { Ok(()) } else { Err(ContentRefusal::NoLease) }
}
