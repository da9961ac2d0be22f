//! What one turn of the driver decided, as plain data: what has to be durable, and what may be
//! said once it is.

use std::collections::BTreeMap;

use gleaner_protocol::Digest;
use gleaner_protocol::api::ProgressEvent;
use gleaner_protocol::control::{BrokerMessage, Verdict};
use gleaner_scheduling::Fact;

use super::LinkId;

/// Facts and blobs to write, and the messages and events that wait for them. `M` is where a link's
/// messages go.
///
/// # Invariants
/// - Nothing of `letters` and `events` is said before `facts` and `small_blobs` are durable.
#[derive(Debug)]
pub struct Decided<M> {
    /// To be written, in order.
    pub facts: Vec<Fact>,
    /// Outputs that the facts refer to, by their digests.
    pub small_blobs: Vec<(Digest, Vec<u8>)>,
    /// Messages of each link, in order.
    pub letters: BTreeMap<LinkId, (M, Vec<BrokerMessage>)>,
    /// News for whoever listens, in order.
    pub events: Vec<ProgressEvent>,
    /// What reports changed, for counting.
    pub verdicts: Vec<Verdict>,
    /// Openings that agents refused, for counting.
    pub openings_refused: u64,
}

impl<M> Default for Decided<M> {
    fn default() -> Self {
        Self {
            facts: Vec::new(),
            small_blobs: Vec::new(),
            letters: BTreeMap::new(),
            events: Vec::new(),
            verdicts: Vec::new(),
            openings_refused: 0,
        }
    }
}

impl<M: Clone> Decided<M> {
    /// Sends a message over a link, once this turn is durable.
    pub(super) fn write(&mut self, link: LinkId, mailbox: &M, message: BrokerMessage) {
        self.letters.entry(link).or_insert_with(|| (mailbox.clone(), Vec::new())).1.push(message);
    }
}
