//! What one turn of the driver decided: facts, and what may be said once they are durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::Digest;
use gleaner_protocol::api::ProgressEvent;
use gleaner_protocol::control::BrokerMessage;
use gleaner_scheduling::Fact;

use super::records::pack;
use super::{LinkId, Outbox};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::store::{Batch, Committer};

/// Tells somebody something; or, when the store has failed, drops it, which whoever waits
/// notices.
type Word = Box<dyn FnOnce() + Send>;

/// See the module's page.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) facts: Vec<Fact>,
    pub(super) small_blobs: Vec<(Digest, Vec<u8>)>,
    letters: BTreeMap<LinkId, (Outbox, Vec<BrokerMessage>)>,
    words: Vec<Word>,
    pub(super) events: Vec<ProgressEvent>,
}

impl Turn {
    /// Sends a message over a link, once this turn is durable.
    pub(super) fn write(&mut self, link: LinkId, outbox: &Outbox, message: BrokerMessage) {
        self.letters.entry(link).or_insert_with(|| (outbox.clone(), Vec::new())).1.push(message);
    }

    /// Answers a caller, once this turn is durable.
    pub(super) fn say(&mut self, word: impl FnOnce() + Send + 'static) {
        self.words.push(Box::new(word));
    }

    /// Hands the turn to the committer; returns how many bytes it adds to the journal.
    pub(super) async fn commit(
        self,
        committer: &Committer,
        metrics: &Arc<Metrics>,
        events: &Events,
    ) -> u64 {
        let Self { facts, small_blobs, letters, words, events: told } = self;
        let records = pack(facts);
        let bytes = records.iter().map(Vec::len).sum::<usize>() as u64;
        if records.is_empty() && letters.is_empty() && words.is_empty() && told.is_empty() {
            return 0;
        }
        let (metrics, events) = (Arc::clone(metrics), events.clone());
        let after = Box::new(move |committed: Result<u64, &crate::store::StoreError>| {
            if committed.is_err() {
                // Dropping the words answers whoever waits with an error; agents keep their
                // reports.
                return;
            }
            metrics.turn_committed(bytes);
            for (outbox, messages) in letters.into_values() {
                if !outbox.post(messages) {
                    metrics.letter_dropped();
                }
            }
            words.into_iter().for_each(|word| word());
            told.into_iter().for_each(|event| events.tell(event));
        });
        committer.submit(Batch { records, small_blobs, after }).await;
        bytes
    }
}
