//! Layers of frames that stay on the hosts that drew them, until the host that joins them fetches them.

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::control::ChunkSource;

/// A layer that the host which drew it keeps for whoever joins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLayer {
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// What the broker says of a layer that a host keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerAnswer {
    /// Whoever joins the frame comes for it.
    Keep,
    /// It cannot be fetched there: its bytes are to be brought.
    Bring,
    /// Nobody waits for the frame any more.
    Over,
}

/// Where a layer of a frame is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerPlace {
    /// So many bytes of what follows, in order.
    Here(u32),
    /// On the host that drew it.
    There(KeptLayer, ChunkSource),
}
