//! Shortens the journal: from the last snapshot and the records after it to a snapshot of both.
//!
//! The driver and its core have no part in it. What is on disk is read twice. The first time it goes
//! into a core of its own that keeps no outputs, which then knows what is still open and what hosts
//! have earned. The second time everything that never changes any more is copied: jobs that were
//! accepted, outputs and failures of their workunits. What that core knows follows.
//!
//! # Invariants
//! - The snapshot restores what the records before it restore: the same code reads both.
//! - Memory is that of the open workunits, the jobs and the hosts, and of one record: not of the
//!   outputs, and not of the items of jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_protocol::JobId;
use gleaner_protocol::job::Workunits;
use gleaner_protocol::stored;
use gleaner_scheduling::{Core, CoreConfig, Fact};

use super::records::Packer;
use super::recover::RecordError;
use crate::store::{Past, Replayed, SnapshotWriter, StoreError};

/// Writes a snapshot of all that the journal held.
///
/// # Errors
/// Those of the disk, what means nothing, and [`StoreError::Closed`] where `closing` says so.
pub fn compact(
    past: &Past,
    writer: &mut dyn SnapshotWriter,
    closing: &AtomicBool,
    config: &CoreConfig,
) -> Result<(), StoreError> {
    let mut core = Core::new(config).without_outputs();
    each_record(past, closing, |facts| {
        facts.into_iter().try_for_each(|fact| Ok(core.restore(without_items(fact))?))
    })?;
    let (mut packer, mut failed) = (Packer::default(), None);
    let mut write = |record: Option<Vec<u8>>| -> Result<(), StoreError> {
        record.map_or(Ok(()), |record| writer.write(&record))
    };
    each_record(past, closing, |facts| {
        for fact in facts {
            let is_kept = settled_of(&fact).is_some_and(|job| core.farm().job(job).is_some());
            if is_kept && failed.is_none() {
                failed = write(packer.add(fact)).err();
            }
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)?;
    for fact in core.standing_facts() {
        write(packer.add(fact))?;
    }
    write(packer.finish())
}

fn each_record(
    past: &Past,
    closing: &AtomicBool,
    mut take: impl FnMut(Vec<Fact>) -> Result<(), RecordError>,
) -> Result<(), StoreError> {
    let mut is_closing = false;
    past.replay(|replayed| {
        is_closing |= closing.load(Ordering::Acquire);
        if is_closing {
            return Ok(());
        }
        let (Replayed::Chunk(record) | Replayed::Record { record, .. }) = replayed;
        take(stored::decode(record)?)
    })?;
    if is_closing { Err(StoreError::Closed) } else { Ok(()) }
}

/// The job of a fact that never changes any more.
fn settled_of(fact: &Fact) -> Option<JobId> {
    match fact {
        Fact::JobAccepted { job, .. } => Some(*job),
        Fact::Decided { workunit, .. } | Fact::GivenUp { workunit, .. } => Some(workunit.job),
        _ => None,
    }
}

/// A job as one that counts its workunits: which items they have changes nothing.
fn without_items(fact: Fact) -> Fact {
    match fact {
        Fact::JobAccepted { job, mut spec, accepted_us } => {
            let counted = Arc::make_mut(&mut spec);
            counted.workunits = Workunits::Count(counted.workunits.len());
            Fact::JobAccepted { job, spec, accepted_us }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
