//! Facts packed into journal records and snapshot chunks, none of them too long for the store.

use gleaner_protocol::stored;
use gleaner_scheduling::Fact;

use crate::limits::RECORD_FACTS_MAX;

/// Encodes facts in order, as many together as may be.
#[must_use]
pub fn pack(facts: impl IntoIterator<Item = Fact>) -> Vec<Vec<u8>> {
    let (mut packer, mut records) = (Packer::default(), Vec::new());
    for fact in facts {
        records.extend(packer.add(fact));
    }
    records.extend(packer.finish());
    records
}

/// Packs facts as they come.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    open: Vec<Fact>,
}

impl Packer {
    /// Adds one; the record that is full by it.
    pub(crate) fn add(&mut self, fact: Fact) -> Option<Vec<u8>> {
        // A job can carry megabytes of items: it ends its record.
        let is_large = matches!(fact, Fact::JobAccepted { .. });
        self.open.push(fact);
        if is_large || self.open.len() == RECORD_FACTS_MAX { self.finish() } else { None }
    }

    /// The record of what is left.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        let record = (!self.open.is_empty()).then(|| stored::encode(&self.open));
        self.open.clear();
        record
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gleaner_protocol::job::{JobSpec, Workunits};
    use gleaner_protocol::limits::{ARGUMENT_BYTES_MAX, HTTP_BODY_BYTES_MAX};
    use gleaner_protocol::{Digest, JobId, WorkunitId};

    use super::*;
    use crate::limits::RECORD_BYTES_MAX;

    fn decided(index: u32) -> Fact {
        let workunit = WorkunitId { job: JobId::new(1), index };
        Fact::Decided { workunit, digest: Digest::of(b"output") }
    }

    fn unpack(records: &[Vec<u8>]) -> Vec<Fact> {
        let decode = |record: &Vec<u8>| stored::decode::<Vec<Fact>>(record).expect("our own");
        records.iter().flat_map(decode).collect()
    }

    #[test]
    fn facts_come_back_in_order() {
        let facts: Vec<_> = (0..10_000).map(decided).collect();
        let records = pack(facts.iter().cloned());
        assert_eq!(records.len(), 10_000_usize.div_ceil(RECORD_FACTS_MAX));
        assert_eq!(unpack(&records), facts);
        assert!(pack([]).is_empty());
    }

    #[test]
    fn the_longest_jobs_together_fit_the_store() {
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        let spec: JobSpec = serde_json::from_str(json).expect("a job");
        let items = HTTP_BODY_BYTES_MAX as usize / ARGUMENT_BYTES_MAX;
        let workunits = Workunits::Items(vec!["x".repeat(ARGUMENT_BYTES_MAX); items].into());
        let spec = Arc::new(JobSpec { workunits, ..spec });
        let accepted = |job| Fact::JobAccepted {
            job: JobId::new(job),
            spec: Arc::clone(&spec),
            accepted_us: 0,
        };
        let facts: Vec<_> = (1..5).map(accepted).collect();
        let records = pack(facts.iter().cloned());
        assert!(records.iter().all(|record| record.len() <= RECORD_BYTES_MAX));
        assert_eq!(unpack(&records), facts);
    }
}
