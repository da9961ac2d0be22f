//! Other agents: copies of chunks travel between hosts, and the broker says who may read what.
//!
//! ```text
//!  broker ──ServeChunk──▶ source: this key may read this chunk, for a minute or so
//!         ──FetchChunk──▶ destination: these hosts have it, by these keys
//!  destination ── TLS 1.3, both show their keys ──▶ source: pieces, each checked as it comes
//! ```
//! Where nobody can call the source it calls the destination, which awaits that key then. Over the connection all
//! is as ever: the destination asks, and the source answers.
//!
//! Layers of frames travel in the same way, from the hosts that drew them to the one that joins them, which
//! calls.
//!
//! # Invariants
//! - A render's preflight cuts all sockets as soon as it is answered, and nothing is read or served until the broker names
//!   it anew.
//! - Copies keep to the owner's bytes a second, in both directions together. Layers, for which a picture
//!   waits, count in the owner's bytes a day alone.

mod awaited;
mod calls;
mod door;
mod figure;
mod giver;
mod grants;
mod layers;
mod pace;
mod plan;
mod pull;
mod sockets;
mod source;
#[cfg(test)]
mod trial_host;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gleaner_identity::KeyPair;
use gleaner_protocol::PeerKey;

use crate::metrics::{ChunkWay, Metrics};
use awaited::Awaited;
use calls::Calls;
pub(crate) use door::Door;
pub use figure::{Manner, MeasuredSource, MoveFigure, Moving, measure_cut, measure_move};
pub(crate) use giver::Giver;
use grants::Grants;
use layers::Layers;
pub(crate) use pace::Pace;
pub(crate) use pull::Stopped;
pub(crate) use sockets::Sockets;

/// What serving and fetching have in common.
#[derive(Debug)]
pub(crate) struct Peers {
    key: KeyPair,
    sockets: Arc<Sockets>,
    grants: Grants,
    awaited: Awaited,
    pace: Pace,
    metrics: Arc<Metrics>,
    /// Bytes that went over the network, as the owner's limit counts them.
    carried: Arc<AtomicU64>,
    /// Whether a preflight hook has cut all of it, and the main loop does not know yet.
    is_cut: AtomicBool,
    /// How often all was silenced.
    cuts: AtomicU64,
    /// Whether others can read from this host.
    is_open: bool,
    layers: Layers,
    calls: Calls,
}

impl Peers {
    /// Of an agent with this key, for so many bytes a second.
    pub(crate) fn new(key: KeyPair, bytes_per_s: u64, metrics: Arc<Metrics>) -> Self {
        Self {
            key,
            sockets: Arc::default(),
            grants: Grants::default(),
            awaited: Awaited::default(),
            pace: Pace::new(bytes_per_s),
            metrics,
            carried: Arc::default(),
            is_cut: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            is_open: false,
            layers: Layers::default(),
            calls: Calls::default(),
        }
    }

    /// The same where others can read from this host, or cannot.
    pub(crate) fn open(self, is_open: bool) -> Self {
        Self { is_open, ..self }
    }

    /// By which others know it.
    pub(crate) fn key(&self) -> PeerKey {
        self.key.peer_key()
    }

    /// What the owner gives.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Counts the bytes that go over the network; whoever takes note of them sets it back.
    pub(crate) fn all_carried(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.carried)
    }

    /// A preflight hook says that a render comes: nothing new begins, and [`Peers::hang_up`] is to follow.
    /// Never waits for anything.
    pub(crate) fn note_cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a preflight hook has cut all of it, and the main loop does not know yet.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Whether a preflight hook has said so since this was asked last.
    pub(crate) fn take_cut(&self) -> bool {
        self.is_cut.swap(false, Ordering::Relaxed)
    }

    /// The same where it is the agent that has something else to do; what it kept for others in memory goes
    /// too.
    pub(crate) fn silence(&self) {
        self.hang_up();
        self.layers.end_all();
        self.calls.end_all();
    }

    /// Cuts all sockets; nobody may read anything any more, and nobody is awaited.
    pub(crate) fn hang_up(&self) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        self.grants.end_all();
        self.awaited.end_all();
        self.sockets.silence();
    }

    /// Changes where all is cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// So many bytes of a layer have travelled.
    fn layer_carried(&self, bytes: usize) {
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many bytes of chunks have travelled.
    pub(crate) fn carried(&self, way: ChunkWay, bytes: usize) {
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        self.metrics.chunk_bytes(way, bytes);
    }
}
