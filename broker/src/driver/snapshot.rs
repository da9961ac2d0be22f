//! Shortens the journal when it has grown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_scheduling::Core;

use super::records::pack;
use crate::store::SnapshotDone;

/// Counts what was written since the last snapshot.
///
/// A snapshot takes time in proportion to its length, which grows with all that is known: the next
/// one is not due before the journal has grown by as much.
#[derive(Debug)]
pub(super) struct Snapshots {
    after_bytes: u64,
    last_bytes: u64,
    written: u64,
    under_way: Arc<AtomicBool>,
}

impl Snapshots {
    /// `written` is what a restart would have to replay after the snapshot already: a broker that
    /// is restarted often must not grow its journal for ever.
    pub(super) fn new(after_bytes: u64, written: u64) -> Self {
        Self { after_bytes, last_bytes: 0, written, under_way: Arc::default() }
    }

    /// Adds to the count; returns a snapshot's chunks when one is due. It stands for everything
    /// that was handed to the committer so far.
    pub(super) fn grown_by(&mut self, bytes: u64, core: &Core) -> Option<Vec<Vec<u8>>> {
        self.written += bytes;
        let is_due = self.written >= self.after_bytes.max(self.last_bytes);
        if !is_due || self.under_way.load(Ordering::Acquire) {
            return None;
        }
        self.written = 0;
        self.under_way.store(true, Ordering::Release);
        let chunks = pack(core.facts());
        self.last_bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Some(chunks)
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

#[cfg(test)]
mod tests {
    use gleaner_protocol::Time;
    use gleaner_scheduling::{CoreConfig, Input, PolicyName, RequestId};

    use super::*;

    #[test]
    fn the_next_one_waits_until_the_journal_has_grown_by_as_much_as_the_last_one_took() {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        for _ in 0..100 {
            let spec = serde_json::from_str(json).expect("a job");
            let input = Input::Submit { request: RequestId::new(1), spec };
            core.handle(Time::ZERO, input, &mut Vec::new());
        }
        let mut snapshots = Snapshots::new(10, 0);
        assert!(snapshots.grown_by(9, &core).is_none());
        let chunks = snapshots.grown_by(1, &core).expect("it is due");
        let bytes: usize = chunks.iter().map(Vec::len).sum();
        assert!(bytes > 1_000, "{bytes}");
        let done = snapshots.done();
        assert!(snapshots.grown_by(10 * bytes as u64, &core).is_none(), "one is under way");
        done(Ok(1));
        assert!(snapshots.grown_by(0, &core).is_some());
        snapshots.done()(Ok(2));
        assert!(snapshots.grown_by(bytes as u64 - 1, &core).is_none());
        assert!(snapshots.grown_by(1, &core).is_some());
    }
}
