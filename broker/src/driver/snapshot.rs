//! Shortens the journal when it has grown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_scheduling::Core;

use super::records::pack;
use crate::store::SnapshotDone;

/// Counts what was written since the last snapshot.
#[derive(Debug)]
pub(super) struct Snapshots {
    after_bytes: u64,
    written: u64,
    under_way: Arc<AtomicBool>,
}

impl Snapshots {
    /// `written` is what a restart would have to replay after the snapshot already: a broker that
    /// is restarted often must not grow its journal for ever.
    pub(super) fn new(after_bytes: u64, written: u64) -> Self {
        Self { after_bytes, written, under_way: Arc::default() }
    }

    /// Adds to the count; returns a snapshot's chunks when one is due. It stands for everything
    /// that was handed to the committer so far.
    pub(super) fn grown_by(&mut self, bytes: u64, core: &Core) -> Option<Vec<Vec<u8>>> {
        self.written += bytes;
        if self.written < self.after_bytes || self.under_way.load(Ordering::Acquire) {
            return None;
        }
        self.written = 0;
        self.under_way.store(true, Ordering::Release);
        Some(pack(core.facts()))
    }

    pub(super) fn done(&self) -> SnapshotDone {
        let under_way = Arc::clone(&self.under_way);
        Box::new(move |result| {
            match result {
                Ok(sequence) => tracing::info!(sequence, "journal shortened to a snapshot"),
                Err(error) => tracing::warn!("no snapshot: {error}"),
            }
            under_way.store(false, Ordering::Release);
        })
    }
}
