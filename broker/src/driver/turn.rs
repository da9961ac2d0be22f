//! What one turn of the driver decided: facts, and what may be said once they are durable.

use std::sync::Arc;

use gleaner_protocol::boottime;

use super::Outbox;
use super::decided::{Decided, Letters};
use super::records::pack;
use crate::events::Events;
use crate::history::RunHistory;
use crate::kernel_times::KernelTimes;
use crate::metrics::Metrics;
use crate::store::{Batch, Committer};
use crate::usage::Usage;

/// Tells somebody something; or, when the store has failed, drops it, which whoever waits
/// notices.
type Word = Box<dyn FnOnce() + Send>;

/// See the module's page.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) decided: Decided<Outbox>,
    words: Vec<Word>,
}

impl Turn {
    /// Answers a caller, once this turn is durable.
    pub(super) fn say(&mut self, word: impl FnOnce() + Send + 'static) {
        self.words.push(Box::new(word));
    }

    /// Gives the turn's orders, unless the store has failed, and hands the turn to the committer.
    pub(super) async fn commit(
        self,
        committer: &Committer,
        metrics: &Arc<Metrics>,
        events: &Events,
        (measured, history, usage): (&KernelTimes, &RunHistory, &Usage),
    ) {
        let Self { decided, words } = self;
        let Decided {
            facts,
            small_blobs,
            orders,
            verdicts,
            events: told,
            waits,
            kernel_times,
            runs,
            usage: ended,
            // Those are told already.
            frames: _,
        } = decided;
        // What is done for a store that keeps nothing is done in vain.
        if committer.works() {
            post(orders, metrics);
        }
        let records = pack(facts);
        let bytes = records.iter().map(Vec::len).sum::<usize>() as u64;
        // What was cut off promises nothing, and what counts is no less true if it is not kept.
        history.add(runs);
        let is_told = !(verdicts.is_empty() && words.is_empty() && told.is_empty());
        if records.is_empty() && ended.is_empty() && !is_told {
            return;
        }
        let is_awaited = !words.is_empty();
        let (metrics, events) = (Arc::clone(metrics), events.clone());
        let (measured, usage) = (measured.clone(), usage.clone());
        let after = Box::new(move |committed: Result<u64, &crate::store::StoreError>| {
            if committed.is_err() {
                // Dropping the words answers whoever waits with an error; agents keep their
                // reports.
                return;
            }
            // Who is told by what follows that something has ended finds it in the accounts.
            usage.add(ended);
            post(verdicts, &metrics);
            words.into_iter().for_each(|word| word());
            metrics.turn_committed(boottime(), bytes, &waits);
            measured.add(kernel_times);
            told.into_iter().for_each(|event| events.tell(event));
        });
        committer.submit(Batch { records, small_blobs, after, is_awaited }).await;
    }
}

fn post(letters: Letters<Outbox>, metrics: &Metrics) {
    for (outbox, messages) in letters.into_values() {
        if !outbox.post(messages) {
            metrics.letter_dropped();
        }
    }
}
