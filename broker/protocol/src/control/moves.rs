//! Copies of chunks that move from host to host: who fetches what, from whom, and who may.
//!
//! # Invariants
//! - An agent is known to another by its key alone, which both have from the broker.
//! - Where an agent is reached is what the broker sees, with the port that the agent says. Whichever of two can
//!   be reached is called by the other one; who reads calls where both can be.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{Digest, HostName, PeerKey};

/// How other agents know one that keeps copies of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPeer {
    /// By which key: the one that it enrolled, where it has one.
    pub key: PeerKey,
    /// The port where others call it for its copies; none where nobody can.
    pub port: Option<u16>,
    /// From where its link comes. The broker fills it in, and believes nothing that is said here.
    pub ip: Option<IpAddr>,
}

impl ChunkPeer {
    /// Where others reach it.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip?, self.port?))
    }
}

/// A copy of a chunk that a host is to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchChunk {
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// How long it may take; as long as it takes where not given.
    pub within: Option<Within>,
    /// Hosts that have it, the best first. What none of them gives comes from the broker.
    pub sources: Vec<ChunkSource>,
}

/// How long fetching a chunk may take. As large a part of it as is to come first has to be there after
/// as large a part of the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// All of it, in milliseconds.
    pub ms: u64,
    /// The part that comes first, in thousandths.
    pub first_permille: u16,
}

/// A host that has a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkSource {
    /// Its name, for the log.
    pub host: HostName,
    /// Where it is called; none where it calls whoever reads.
    pub address: Option<SocketAddr>,
    /// By which it shows that it is the one.
    pub key: PeerKey,
}

/// Who may read a copy, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeChunk {
    /// Its content.
    pub digest: Digest,
    /// Who shows that it has this key.
    pub to: PeerKey,
    /// Where to call whoever reads, which cannot call here; none where it calls.
    pub at: Option<SocketAddr>,
    /// For so many milliseconds from now on.
    pub ms: u64,
}

/// A host that was to give a copy, and failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFailed {
    /// Of what.
    pub digest: Digest,
    /// Which host.
    pub source: HostName,
    /// What it did.
    pub fault: SourceFault,
}

/// What a host did that was to give a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceFault {
    /// It sent something else.
    WrongPiece,
    /// It stood still.
    Stalled,
    /// It could not be reached, or is another one.
    Unreachable,
    /// It did not call. Whoever of the two cannot reach the other: it says nothing to others.
    DidNotCall,
}

impl SourceFault {
    /// The words for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WrongPiece => "sent a wrong piece",
            Self::Stalled => "stood still",
            Self::Unreachable => "could not be reached",
            Self::DidNotCall => "did not call",
        }
    }
}
