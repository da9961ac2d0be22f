//! Layers of frames: what they are in bytes on their way, and where they are that stay on the hosts that drew
//! them until the hosts that join them fetch them.
//!
//! A layer is drawn in strips, of which each is a layer by itself and is joined with the same strip of all
//! others. Several of them follow each other in one body, the length of each in four bytes before it, little
//! end first.

use std::ops::Range;

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

/// Puts one more behind those that a body has.
///
/// # Panics
/// It has 4 GiB or more.
pub fn push_layer(body: &mut Vec<u8>, layer: &[u8]) {
    let length = u32::try_from(layer.len()).expect("no part of a frame is as long");
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(layer);
}

/// Where each of the layers in a body is; nothing where one is cut off, or there are more than `most`.
#[must_use]
pub fn layers_of(body: &[u8], most: usize) -> Option<Vec<Range<usize>>> {
    let (mut layers, mut at) = (Vec::new(), 0);
    while at < body.len() {
        if layers.len() == most {
            return None;
        }
        let length = u32::from_le_bytes(*body[at..].first_chunk()?);
        let first = at + 4;
        at = first.checked_add(usize::try_from(length).ok()?).filter(|end| *end <= body.len())?;
        layers.push(first..at);
    }
    Some(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_come_out_of_a_body_as_they_were_put_in() {
        let mut body = Vec::new();
        for layer in [&b"one"[..], b"", b"three"] {
            push_layer(&mut body, layer);
        }
        let found = layers_of(&body, 3).expect("all are there");
        let found: Vec<_> = found.into_iter().map(|at| &body[at]).collect();
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
        assert_eq!(layers_of(&[], 0), Some(Vec::new()));
        assert_eq!(layers_of(&body, 2), None, "there are three");
        for end in [1, 3, 4, 6, 8, 12, body.len() - 1] {
            assert_eq!(layers_of(&body[..end], 3), None, "cut at {end}");
        }
        assert_eq!(layers_of(&[0xff; 9], 3), None);
    }
}
