//! The key by which one agent knows another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::people::PrincipalId;

/// An agent's public key (Ed25519).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerKey([u8; 32]);

impl PeerKey {
    /// Of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The name of the principal that enrolled it.
    #[must_use]
    pub fn id(&self) -> PrincipalId {
        PrincipalId::of_key(&self.0)
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerKey({self})")
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}
