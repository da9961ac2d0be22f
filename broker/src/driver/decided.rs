//! What one turn of the driver decided, as plain data: what has to be durable, what may be said
//! once it is, and what may be said at once.

use std::collections::BTreeMap;

use gleaner_history::Run;
use gleaner_protocol::api::ProgressEvent;
use gleaner_protocol::control::BrokerMessage;
use gleaner_protocol::{Digest, KernelTime};
use gleaner_scheduling::Fact;

use super::LinkId;
use super::dispatcher::FrameNews;
use crate::metrics::Waits;
use crate::usage::UsageRecord;

/// Messages of each link, in order, and where they go.
pub type Letters<M> = BTreeMap<LinkId, (M, Vec<BrokerMessage>)>;

/// Facts and blobs to write, the messages and events that wait for them, and the orders that do
/// not. `M` is where a link's messages go.
///
/// # Invariants
/// - Nothing of `verdicts` and `events` is said before `facts` and `small_blobs` are durable.
/// - `orders` promise nothing: agents take none of them for the word that something is on disk.
///   Leases are not in the journal anyway, and one of a job that was lost with its broker is nothing
///   of the job that gets its id.
#[derive(Debug)]
pub struct Decided<M> {
    /// To be written, in order.
    pub facts: Vec<Fact>,
    /// Outputs that the facts refer to, by their digests.
    pub small_blobs: Vec<(Digest, Vec<u8>)>,
    /// What each link is to do, in order.
    pub orders: Letters<M>,
    /// What each link's reports came to, in order.
    pub verdicts: Letters<M>,
    /// News for whoever listens, in order.
    pub events: Vec<ProgressEvent>,
    /// Since when those wait who are told once it is durable, for counting.
    pub waits: Waits,
    /// How long kernels took whose outputs count, for those who plan with it.
    pub kernel_times: Vec<KernelTime>,
    /// What replicas took that ended or were cut off, to predict others from.
    pub runs: Vec<Run>,
    /// Replicas that ended and workunits that were decided, for the accounts, in order.
    pub usage: Vec<UsageRecord>,
    /// How frames come on, in order: nothing of that is written down, and it is told at once.
    pub frames: Vec<FrameNews>,
}

impl<M> Default for Decided<M> {
    fn default() -> Self {
        Self {
            facts: Vec::new(),
            small_blobs: Vec::new(),
            orders: Letters::new(),
            verdicts: Letters::new(),
            events: Vec::new(),
            waits: Waits::default(),
            kernel_times: Vec::new(),
            runs: Vec::new(),
            usage: Vec::new(),
            frames: Vec::new(),
        }
    }
}

impl<M: Clone> Decided<M> {
    /// Sends a message over a link: once this turn is durable where it promises that, else at once.
    pub(super) fn write(&mut self, link: LinkId, mailbox: &M, message: BrokerMessage) {
        let letters = match message {
            BrokerMessage::Verdict { .. } => &mut self.verdicts,
            _ => &mut self.orders,
        };
        letters.entry(link).or_insert_with(|| (mailbox.clone(), Vec::new())).1.push(message);
    }

    /// Sends a message over a link at once: it promises nothing.
    pub(super) fn order(&mut self, link: LinkId, mailbox: &M, message: BrokerMessage) {
        self.orders.entry(link).or_insert_with(|| (mailbox.clone(), Vec::new())).1.push(message);
    }
}
