//! Layers of frames that this host drew, in memory until the host that joins them has fetched them.
//!
//! # Invariants
//! - They take no more than [`LAYERS_KEPT_BYTES_MAX`]. The oldest make room for new ones, but none for which
//!   its frame may still come.
//! - Each is fetched once, and goes after a while where nobody comes for it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gleaner_protocol::{Digest, KeptLayer, Span, Time};

use crate::limits::{LAYER_KEPT_MS, LAYERS_KEPT_BYTES_MAX, LAYERS_KEPT_MAX, LAYERS_MS_MIN};

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Layers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    layers: VecDeque<Layer>,
    bytes: u64,
}

#[derive(Debug)]
struct Layer {
    digest: Digest,
    bytes: Bytes,
    until: Time,
}

impl Layers {
    /// Keeps one; false where there is no room for it.
    pub(super) fn keep(&self, now: Time, layer: KeptLayer, bytes: Bytes) -> bool {
        if layer.bytes > LAYERS_KEPT_BYTES_MAX {
            return false;
        }
        let mut kept = self.kept();
        kept.expire(now);
        let until = now + Span::from_millis(LAYER_KEPT_MS);
        let wanted = Span::from_millis(LAYER_KEPT_MS - LAYERS_MS_MIN);
        while kept.bytes + layer.bytes > LAYERS_KEPT_BYTES_MAX
            || kept.layers.len() >= LAYERS_KEPT_MAX
        {
            if kept.layers.front().is_some_and(|oldest| oldest.until > now + wanted) {
                return false;
            }
            kept.remove(0);
        }
        kept.bytes += bytes.len() as u64;
        kept.layers.push_back(Layer { digest: layer.digest, bytes, until });
        true
    }

    /// The bytes of one that is here.
    pub(super) fn find(&self, digest: &Digest) -> Option<Bytes> {
        let kept = self.kept();
        kept.place(digest).map(|at| kept.layers[at].bytes.clone())
    }

    /// One was fetched, or nobody wants it; whether there is another one like it.
    pub(super) fn end(&self, digest: &Digest) -> bool {
        let mut kept = self.kept();
        if let Some(at) = kept.place(digest) {
            kept.remove(at);
        }
        kept.place(digest).is_some()
    }

    /// Drops those for which nobody came.
    pub(super) fn expire(&self, now: Time) {
        self.kept().expire(now);
    }

    /// Drops all of them.
    pub(super) fn end_all(&self) {
        *self.kept() = Kept::default();
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn place(&self, digest: &Digest) -> Option<usize> {
        self.layers.iter().position(|layer| layer.digest == *digest)
    }

    fn remove(&mut self, at: usize) {
        if let Some(gone) = self.layers.remove(at) {
            self.bytes -= gone.bytes.len() as u64;
        }
    }

    fn expire(&mut self, now: Time) {
        while self.layers.front().is_some_and(|layer| layer.until <= now) {
            self.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(layers: &Layers, ms: u64, bytes: &[u8]) -> Digest {
        let layer = KeptLayer { digest: Digest::of(bytes), bytes: bytes.len() as u64 };
        let at = Time::ZERO + Span::from_millis(ms);
        assert!(layers.keep(at, layer, Bytes::copy_from_slice(bytes)));
        layer.digest
    }

    #[test]
    fn each_layer_is_there_until_it_was_fetched_or_is_old() {
        let layers = Layers::default();
        let [one, other] = [0, 1].map(|ms| keep(&layers, ms, b"empty"));
        assert_eq!((one, layers.end(&one)), (other, true), "two bricks of which nothing is seen");
        assert_eq!(layers.find(&one).as_deref(), Some(&b"empty"[..]));
        assert!(!layers.end(&one) && layers.find(&one).is_none() && !layers.end(&one));
        let old = keep(&layers, 10, b"old");
        layers.expire(Time::ZERO + Span::from_millis(LAYER_KEPT_MS + 9));
        assert!(layers.find(&old).is_some());
        let young = keep(&layers, LAYER_KEPT_MS + 10, b"young");
        assert!(layers.find(&old).is_none());
        layers.end_all();
        assert!(layers.find(&young).is_none());
    }

    #[test]
    fn the_oldest_make_room_and_what_is_too_large_is_not_kept() {
        let layers = Layers::default();
        let half = LAYERS_KEPT_BYTES_MAX as usize / 2;
        let kept = [(1, 0), (2, 1), (3, LAYERS_MS_MIN)]
            .map(|(byte, ms)| keep(&layers, ms, &vec![byte; half]));
        assert_eq!(kept.map(|digest| layers.find(&digest).is_some()), [false, true, true]);
        assert_eq!(layers.kept().bytes, LAYERS_KEPT_BYTES_MAX);
        // That of a frame that may still be joined stays.
        let (now, digest) = (Time::ZERO + Span::from_millis(LAYERS_MS_MIN), Digest::of(b"new"));
        assert!(!layers.keep(now, KeptLayer { digest, bytes: 3 }, Bytes::from_static(b"new")));
        let (digest, bytes) = (Digest::of(b""), LAYERS_KEPT_BYTES_MAX + 1);
        assert!(!layers.keep(Time::ZERO, KeptLayer { digest, bytes }, Bytes::new()));
        layers.end_all();
        let many: Vec<_> = (0..)
            .take(LAYERS_KEPT_MAX + 1)
            .map(|at: u64| {
                keep(&layers, at * LAYERS_MS_MIN * 2 / LAYERS_KEPT_MAX as u64, &at.to_le_bytes())
            })
            .collect();
        assert!(layers.find(&many[0]).is_none() && layers.find(&many[1]).is_some());
    }
}
