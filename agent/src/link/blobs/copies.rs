//! Copies of chunks: a cache of its own, of which the broker is told.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::control::{ChunkCopy, FetchChunk, SourceFailed, Within};
use gleaner_protocol::{ChunkFile, Digest, Span, boottime};
use tokio::sync::mpsc::UnboundedSender;

use super::cache::Cache;
use super::pieces::Way;
use super::{BlobError, Blobs, CachedBlob};
use crate::link::peers::Peers;

/// A copy came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChunkNews {
    /// It is there now.
    Gained {
        /// Which.
        digest: Digest,
        /// Its length.
        bytes: u64,
    },
    /// It is not there, or does not come.
    Lost {
        /// Which.
        digest: Digest,
    },
    /// A host that was to give one failed.
    SourceFailed(SourceFailed),
}

impl Blobs {
    /// With a cache for copies of chunks, where it may have some bytes, which `peers` may have. `tell` hears
    /// of each that comes or goes.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(crate) fn keeping(
        self,
        folder: PathBuf,
        bytes_max: u64,
        peers: Arc<Peers>,
        tell: UnboundedSender<ChunkNews>,
    ) -> io::Result<Self> {
        // What an earlier agent has left goes where nothing is kept any more.
        let cache = Cache::open_to_go_on(folder, bytes_max)?.telling(tell);
        let chunks = (bytes_max > 0).then(|| Arc::new(cache));
        let carried = peers.all_carried();
        Ok(Self { chunks, peers: Some(peers), carried, ..self })
    }

    /// A chunk that a replica reads: a copy that stays on this host where there is room for it.
    pub(crate) async fn fetch_chunk(&self, chunk: &ChunkFile) -> Result<CachedBlob, BlobError> {
        match self.chunks.as_ref().filter(|cache| chunk.bytes <= cache.bytes_max()) {
            Some(cache) => self.fetch_into(cache, chunk.digest, Way::AtOnce, &mut |_| true).await,
            None => self.fetch(chunk.digest).await,
        }
    }

    /// A copy that the broker wants to be here, within its time.
    pub(crate) async fn fetch_copy(&self, order: &FetchChunk) -> Result<(), String> {
        let FetchChunk { digest, bytes, ref within, ref sources } = *order;
        let cache = self.chunks.as_ref().ok_or("this host keeps no copies")?;
        let way = Way::Ahead { sources, bytes };
        // Where a render comes, the main loop hears of it only in a moment.
        let cuts = || self.peers.as_ref().map(|peers| peers.cuts());
        let before = cuts();
        if bytes > cache.bytes_max() {
            return Err(format!("its {bytes} bytes are more than are kept here"));
        }
        let Some(Within { ms, first_permille }) = *within else {
            let fetched = self.fetch_into(cache, digest, way, &mut |_| cuts() == before).await;
            return fetched.map(drop).map_err(|error| error.to_string());
        };
        // As large a part of it as of the time: what misses that would not come in time.
        let begun = boottime();
        let part = |of: u64| of.saturating_mul(u64::from(first_permille)) / 1000;
        let (first_bytes, first_time) = (part(bytes), Span::from_millis(part(ms)));
        let mut goes_on = |there: u64| {
            cuts() == before && (there >= first_bytes || boottime().since(begun) <= first_time)
        };
        let fetched = self.fetch_into(cache, digest, way, &mut goes_on);
        match tokio::time::timeout(Duration::from_millis(ms), fetched).await {
            Ok(fetched) => fetched.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err(format!("it does not come within {ms} ms")),
        }
    }

    /// All copies, in order.
    pub(crate) fn chunks(&self) -> Vec<ChunkCopy> {
        self.chunks.as_ref().map(|cache| cache.list()).unwrap_or_default()
    }

    /// A copy that is there, for another host to read. It stays as long as the result lives.
    pub(crate) fn copy(&self, digest: Digest) -> Option<CachedBlob> {
        Cache::pin(self.chunks.as_ref()?, digest)
    }

    /// Other agents.
    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.as_ref()
    }

    /// Drops a copy, unless it is used now.
    pub(crate) fn drop_copy(&self, digest: Digest) {
        if let Some(cache) = &self.chunks {
            cache.drop_unused(digest);
        }
    }

    /// Tells that a copy does not come.
    pub(crate) fn tell_lost(&self, digest: Digest) {
        if let Some(cache) = &self.chunks {
            cache.tell(ChunkNews::Lost { digest });
        }
    }
}
