//! Copies of chunks: what the broker is told of them, and fetching those that it asks for.
//!
//! # Invariants
//! - After each welcome the broker is told the hash of all copies, and from then on of each that comes or
//!   goes.
//! - What is fetched for the broker's sake stops where a render comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::Digest;
use gleaner_protocol::control::{
    AgentMessage, ChunkCopy, Copies as Told, FetchChunk, copies_digest,
};
use gleaner_protocol::limits::COPIES_TOLD_MAX;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::link::blobs::{Blobs, ChunkNews};

/// What is on its way, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Whether the broker has heard of all of them on this link.
    is_greeted: bool,
    fetching: BTreeMap<Digest, AbortHandle>,
    gained: BTreeMap<Digest, u64>,
    lost: BTreeSet<Digest>,
}

impl Copies {
    /// A copy came or went.
    pub(super) fn note(&mut self, news: ChunkNews) {
        match news {
            ChunkNews::Gained { digest, bytes } => {
                self.fetching.remove(&digest);
                self.lost.remove(&digest);
                self.gained.insert(digest, bytes);
            }
            ChunkNews::Lost { digest } => {
                self.fetching.remove(&digest);
                self.gained.remove(&digest);
                self.lost.insert(digest);
            }
        }
    }

    /// The broker has welcomed this host.
    pub(super) fn greeted(&mut self, blobs: &Blobs) -> Vec<AgentMessage> {
        self.is_greeted = true;
        self.gained.clear();
        self.lost.clear();
        let held = blobs.chunks();
        let digest = copies_digest(held.iter().map(|of| &of.digest));
        vec![AgentMessage::Copies(Told::Have(digest))]
    }

    /// All copies, as the broker asked for.
    pub(super) fn listed(&mut self, blobs: &Blobs) -> Vec<AgentMessage> {
        self.gained.clear();
        self.lost.clear();
        let held = blobs.chunks();
        let mut parts: Vec<Vec<ChunkCopy>> =
            held.chunks(COPIES_TOLD_MAX).map(<[ChunkCopy]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let told = |(at, copies)| AgentMessage::Copies(Told::All { is_first: at == 0, copies });
        parts.into_iter().enumerate().map(told).collect()
    }

    /// The link is gone.
    pub(super) fn link_down(&mut self) {
        self.is_greeted = false;
        self.stop_fetching();
    }

    /// Nothing is fetched any more.
    pub(super) fn stop_fetching(&mut self) {
        for (digest, fetching) in std::mem::take(&mut self.fetching) {
            fetching.abort();
            self.lost.insert(digest);
        }
    }

    /// Fetches a copy.
    pub(super) fn fetch(&mut self, blobs: &Arc<Blobs>, order: &FetchChunk) {
        let (digest, blobs, order) = (order.digest, Arc::clone(blobs), order.clone());
        let task = tokio::spawn(async move {
            if let Err(reason) = blobs.fetch_copy(&order).await {
                debug!("no copy of {digest} comes: {reason}");
                blobs.tell_lost(digest);
            }
        });
        if let Some(before) = self.fetching.insert(digest, task.abort_handle()) {
            before.abort();
        }
    }

    /// Drops copies that nobody wants.
    pub(super) fn drop_all(&mut self, blobs: &Blobs, useless: &[Digest]) {
        useless.iter().for_each(|digest| blobs.drop_copy(*digest));
    }

    /// What came and went since.
    pub(super) fn take_news(&mut self) -> Option<AgentMessage> {
        if !self.is_greeted || (self.gained.is_empty() && self.lost.is_empty()) {
            return None;
        }
        let gained = std::mem::take(&mut self.gained).into_iter();
        let gained = gained.map(|(digest, bytes)| ChunkCopy { digest, bytes }).collect();
        let lost = std::mem::take(&mut self.lost).into_iter().collect();
        Some(AgentMessage::Copies(Told::Changed { gained, lost }))
    }
}
