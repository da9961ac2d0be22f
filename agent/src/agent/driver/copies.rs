//! Copies of chunks: what the broker is told of them, and fetching those that it asks for.
//!
//! # Invariants
//! - After each welcome the broker is told the hash of all copies, and from then on of each that comes or
//!   goes.
//! - What is fetched for the broker's sake stops where a render comes, and so does what others read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::Digest;
use gleaner_protocol::control::{
    AgentMessage, ChunkCopy, Copies as Told, FetchChunk, Fragment, ServeChunk, SourceFailed,
    copies_digest,
};
use gleaner_protocol::limits::COPIES_TOLD_MAX;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::limits::FAILED_SOURCES_MAX;
use crate::link::blobs::{Blobs, ChunkNews};
use crate::link::peers::Giver;

/// What is on its way, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Whether the broker has heard of all of them on this link.
    is_greeted: bool,
    fetching: BTreeMap<Digest, AbortHandle>,
    gained: BTreeMap<Digest, u64>,
    lost: BTreeSet<Digest>,
    /// Hosts that were to give copies and failed.
    failed: Vec<SourceFailed>,
}

impl Copies {
    /// A copy came or went.
    pub(super) fn note(&mut self, news: ChunkNews) {
        match news {
            // Beyond this many the rest is in the log.
            ChunkNews::SourceFailed(failed) if self.failed.len() < FAILED_SOURCES_MAX => {
                self.failed.push(failed);
            }
            ChunkNews::SourceFailed(_) => {}
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
        self.failed.clear();
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

    /// A hook has called: a render's preflight has cut what travels between agents, and what comes from the
    /// broker stops too.
    pub(super) fn hear_hook(&mut self, blobs: &Blobs) {
        if blobs.peers().is_some_and(|peers| peers.take_cut()) {
            self.silence(blobs);
        }
    }

    /// The host gives nothing now.
    pub(super) fn silence(&mut self, blobs: &Blobs) {
        if let Some(peers) = blobs.peers() {
            peers.silence();
        }
        self.stop_fetching();
    }

    /// Nothing is fetched any more.
    fn stop_fetching(&mut self) {
        for (digest, fetching) in std::mem::take(&mut self.fetching) {
            fetching.abort();
            self.lost.insert(digest);
        }
    }

    /// Fetches a copy, unless this host has something else to do.
    pub(super) fn fetch(&mut self, blobs: &Arc<Blobs>, fragment: Fragment, order: &FetchChunk) {
        if fragment.cores == 0 || blobs.peers().is_some_and(|peers| peers.is_cut()) {
            self.lost.insert(order.digest);
            return;
        }
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

    /// Another host may read a copy, unless this one has something else to do.
    pub(super) fn serve(giver: &Arc<Giver>, fragment: Fragment, order: &ServeChunk) {
        if fragment.cores > 0 {
            giver.take_order(order);
        }
    }

    /// What came and went since.
    pub(super) fn take_news(&mut self) -> Vec<AgentMessage> {
        if !self.is_greeted {
            return Vec::new();
        }
        // First those that failed: what they were asked for is still known to be on its way then.
        let failed = std::mem::take(&mut self.failed).into_iter().map(AgentMessage::SourceFailed);
        let mut news: Vec<_> = failed.collect();
        if !(self.gained.is_empty() && self.lost.is_empty()) {
            let gained = std::mem::take(&mut self.gained).into_iter();
            let gained = gained.map(|(digest, bytes)| ChunkCopy { digest, bytes }).collect();
            let lost = std::mem::take(&mut self.lost).into_iter().collect();
            news.push(AgentMessage::Copies(Told::Changed { gained, lost }));
        }
        news
    }
}
