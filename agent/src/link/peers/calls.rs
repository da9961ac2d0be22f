//! Fetching the layers of a frame from the hosts that drew them, to join them here.
//!
//! # Invariants
//! - What comes is what the broker named, by its length and its digest; else all of it fails, and the frame is
//!   drawn again.
//! - A connection that nothing is fetched over is closed in a moment: frames follow each other sooner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use gleaner_protocol::control::ChunkSource;
use gleaner_protocol::{Digest, KeptLayer, PeerKey, Span, Time, boottime};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Peers;
use super::source::{End, Source};
use super::wire::Status;
use crate::limits::{
    LAYER_BYTES_PER_MS, LAYER_CALL_IDLE_MS, LAYER_KEPT_MS, LAYER_PAUSE_MS, LAYER_PAUSE_MS_MAX,
    LAYERS_MS_MIN,
};

/// Connections to hosts over which layers came, for the next frame's.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<PeerKey, Idle>>);

#[derive(Debug)]
struct Idle {
    source: Source,
    since: Time,
}

impl Calls {
    fn take(&self, key: &PeerKey) -> Option<Source> {
        self.idle().remove(key).map(|idle| idle.source)
    }

    fn put(&self, key: PeerKey, source: Source) {
        self.idle().insert(key, Idle { source, since: boottime() });
    }

    /// Closes those over which nothing has come for long.
    fn expire(&self, now: Time) {
        let is_young = |since| now.since(since) < Span::from_millis(LAYER_CALL_IDLE_MS);
        self.idle().retain(|_, idle| is_young(idle.since));
    }

    pub(super) fn end_all(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<PeerKey, Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers {
    /// Keeps layers that were drawn here for whoever joins them, where others can read from this host. None
    /// where they cannot, or there is no room for all of them.
    pub(crate) async fn keep_layers(
        self: &Arc<Self>,
        layers: Vec<Bytes>,
    ) -> Option<Vec<KeptLayer>> {
        if !self.is_open {
            return None;
        }
        let named = digests_of(&layers).await?.into_iter().zip(&layers);
        let named: Vec<_> =
            named.map(|(digest, bytes)| KeptLayer { digest, bytes: bytes.len() as u64 }).collect();
        for (at, (layer, bytes)) in named.iter().zip(layers).enumerate() {
            // Nobody comes for nothing.
            if layer.bytes > 0 && !self.layers.keep(boottime(), *layer, bytes) {
                self.drop_layers(&named[..at]);
                return None;
            }
        }
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            sleep(Duration::from_millis(LAYER_KEPT_MS)).await;
            peers.layers.expire(boottime());
        });
        Some(named)
    }

    /// Nobody wants layers that were kept.
    pub(crate) fn drop_layers(&self, layers: &[KeptLayer]) {
        for layer in layers {
            self.layers.end(&layer.digest);
        }
    }

    /// Fetches layers, each from where it is, in their order.
    ///
    /// # Errors
    /// Which one does not come, and why not.
    pub(crate) async fn fetch_layers(
        self: &Arc<Self>,
        wanted: &[(KeptLayer, ChunkSource)],
    ) -> Result<Vec<Bytes>, String> {
        let mut by_source: BTreeMap<PeerKey, (&ChunkSource, Vec<usize>)> = BTreeMap::new();
        for (at, (_, source)) in wanted.iter().enumerate() {
            by_source.entry(source.key).or_insert((source, Vec::new())).1.push(at);
        }
        let all: u64 = wanted.iter().map(|(layer, _)| layer.bytes).sum();
        let limit = Duration::from_millis(LAYERS_MS_MIN + all / LAYER_BYTES_PER_MS);
        let fetching = by_source.into_values().map(|(source, places)| async move {
            let layers: Vec<KeptLayer> = places.iter().map(|at| wanted[*at].0).collect();
            let host = &source.host;
            let fetched = timeout(limit, self.fetch_from(source, &layers)).await;
            let fetched = fetched.unwrap_or_else(|_| Err("they take too long".into()));
            let fetched = fetched.map_err(|why| format!("layers do not come from {host}: {why}"));
            Ok::<_, String>(places.into_iter().zip(fetched?))
        });
        let fetched = try_join_all(fetching).await;
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            sleep(Duration::from_millis(LAYER_CALL_IDLE_MS)).await;
            peers.calls.expire(boottime());
        });
        let mut fetched: Vec<_> = fetched?.into_iter().flatten().collect();
        fetched.sort_by_key(|(at, _)| *at);
        Ok(fetched.into_iter().map(|(_, bytes)| bytes).collect())
    }

    async fn fetch_from(
        &self,
        from: &ChunkSource,
        layers: &[KeptLayer],
    ) -> Result<Vec<Bytes>, String> {
        let mut fetched = Vec::new();
        if from.key == self.key() {
            for layer in layers {
                let bytes = self.layers.find(&layer.digest);
                self.layers.end(&layer.digest);
                fetched.push(bytes.ok_or("it is not here any more")?);
            }
            return Ok(fetched);
        }
        let (cuts, mut pause) = (self.cuts(), Duration::from_millis(LAYER_PAUSE_MS));
        let mut call = self.calls.take(&from.key);
        for layer in layers {
            loop {
                if self.cuts() != cuts {
                    return Err("a render has come here".into());
                }
                match self.ask(call.take(), from, layer).await {
                    Ok((source, Status::Here, bytes)) => {
                        let bytes = Bytes::from(bytes);
                        let digest = digests_of(std::slice::from_ref(&bytes)).await;
                        if digest.as_deref() != Some(&[layer.digest]) {
                            return Err("it sent another one".into());
                        }
                        self.layer_carried(bytes.len());
                        fetched.push(bytes);
                        call = Some(source);
                        break;
                    }
                    // It hears of us from the broker in a moment.
                    Ok((source, Status::NotAllowed, _)) => call = Some(source),
                    Ok((_, Status::NotHere, _)) => return Err("it is not there any more".into()),
                    Err(End::Gone(_)) => {}
                    Err(End::Fault(_, why)) => return Err(why),
                }
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(LAYER_PAUSE_MS_MAX));
            }
        }
        if let Some(source) = call.filter(|_| self.cuts() == cuts) {
            self.calls.put(from.key, source);
        }
        Ok(fetched)
    }

    async fn ask(
        &self,
        call: Option<Source>,
        from: &ChunkSource,
        layer: &KeptLayer,
    ) -> Result<(Source, Status, Vec<u8>), End> {
        let mut source = match call {
            Some(source) => source,
            None => Source::call(self, from).await?,
        };
        let (status, bytes) = source.layer(layer).await?;
        Ok((source, status, bytes))
    }
}

async fn digests_of(layers: &[Bytes]) -> Option<Vec<Digest>> {
    let layers = layers.to_vec();
    spawn_blocking(move || layers.iter().map(|bytes| Digest::of(bytes)).collect()).await.ok()
}
