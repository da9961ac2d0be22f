//! Copies of chunks piece by piece: from other hosts that have them, and what none of these gives from the
//! broker. Each piece is checked as it comes, and what is there is not fetched again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gleaner_protocol::control::ChunkSource;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{Digest, PIECE_BYTES, Pieces, codec};
use reqwest::Response;
use reqwest::header::RANGE;

use super::cache::Cache;
use super::copies::ChunkNews;
use super::part::Part;
use super::{BlobError, Blobs, CachedBlob, Try, again, check_status, within_stall};
use crate::limits::CHUNK_LIST_BYTES_MAX;
use crate::link::peers::Stopped;
use crate::metrics::ChunkWay;

/// How a copy of a chunk is fetched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    /// From the broker, as fast as it comes: a task waits for it.
    AtOnce,
    /// From these hosts and then from the broker, at the owner's pace: some task will read it.
    Ahead {
        /// The hosts, the best first.
        sources: &'a [ChunkSource],
        /// How long it is.
        bytes: u64,
    },
}

impl Way<'_> {
    /// The same from the broker alone.
    pub(super) fn without_hosts(self) -> Self {
        match self {
            Self::AtOnce => Self::AtOnce,
            Self::Ahead { bytes, .. } => Self::Ahead { sources: &[], bytes },
        }
    }
}

impl Blobs {
    /// Fetches a content into a cache, from where an earlier try has left it.
    pub(super) async fn fetch_pieces(
        &self,
        cache: &Arc<Cache>,
        digest: Digest,
        way: Way<'_>,
        goes_on: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<CachedBlob, Try> {
        let path = cache.unfinished(digest);
        let disk = |source| Try::Never(BlobError::Disk { digest, path: path.clone(), source });
        let too_slow = || {
            let reason = "it comes too slowly".to_owned();
            Try::Never(BlobError::Transfer { digest, reason })
        };
        let pulled = match (&self.peers, way) {
            (Some(peers), Way::Ahead { sources, bytes }) if !sources.is_empty() => {
                let tell = |failed| cache.tell(ChunkNews::SourceFailed(failed));
                peers.pull((digest, bytes), sources, &path, goes_on, &tell).await
            }
            _ => Ok(None),
        };
        let mut part = match pulled {
            Ok(Some(part)) => part,
            Ok(None) => {
                let pieces = Arc::new(self.pieces_of(digest).await?);
                Part::open(&path, pieces).await.map_err(disk)?
            }
            Err(Stopped::Slow) => return Err(too_slow()),
            Err(Stopped::Disk(source)) => return Err(disk(source)),
        };
        // What nobody else gave.
        let mut stream: Option<Stream> = None;
        while let Some(index) = part.first_missing() {
            let mut from = match stream.take().filter(|stream| stream.next == index) {
                Some(stream) => stream,
                None => self.stream_from(digest, &part, index).await?,
            };
            let (_, length) = part.pieces().place(index);
            self.fill(&mut from, length, way).await?;
            if from.piece.len() < length {
                return Err(Try::Again(format!("it broke off in piece {index}")));
            }
            let rest = from.piece.split_off(length);
            if !part.pieces().is_right(index, &from.piece) {
                return Err(Try::Again(format!("piece {index} of it is wrong")));
            }
            part.write(index, &from.piece).await.map_err(disk)?;
            (from.piece, from.next) = (rest, index + 1);
            stream = Some(from);
            if !goes_on(part.bytes_there()) {
                part.flush().await.map_err(disk)?;
                return Err(too_slow());
            }
        }
        drop(stream);
        part.flush().await.map_err(disk)?;
        let (cache, bytes) = (Arc::clone(cache), part.pieces().bytes());
        drop(part);
        tokio::task::spawn_blocking(move || Cache::enter(&cache, digest, bytes))
            .await
            .map_err(|error| Try::Again(error.to_string()))?
            .map_err(disk)?
            .ok_or_else(|| Try::Again("what came has another content".into()))
    }

    /// Has the broker send a content from a piece on, as far as all is missing.
    async fn stream_from(&self, digest: Digest, part: &Part, index: usize) -> Result<Stream, Try> {
        let pieces = part.pieces();
        let all = pieces.count();
        let end = (index..all).find(|next| part.is_there(*next)).unwrap_or(all);
        let (from, _) = pieces.place(index);
        let request = self.client.get(self.address(digest));
        let request = match (from, end < all) {
            (0, false) => request,
            (_, false) => request.header(RANGE, format!("bytes={from}-")),
            (_, true) => request.header(RANGE, format!("bytes={from}-{}", pieces.place(end).0 - 1)),
        };
        let request = self.authorised(request).await?;
        let response = within_stall(request.send()).await?.map_err(again)?;
        let response = check_status(digest, response)?;
        Ok(Stream { response, piece: Vec::with_capacity(PIECE_BYTES), next: index })
    }

    /// Waits until a piece of this length has come, or all that comes.
    async fn fill(&self, stream: &mut Stream, length: usize, way: Way<'_>) -> Result<(), Try> {
        while stream.piece.len() < length {
            let part = within_stall(stream.response.chunk()).await?.map_err(again)?;
            let Some(bytes) = part else { return Ok(()) };
            stream.piece.extend_from_slice(&bytes);
            match &self.peers {
                Some(peers) => {
                    peers.carried(ChunkWay::FromBroker, bytes.len());
                    if let Way::Ahead { .. } = way {
                        peers.pace().take(bytes.len()).await;
                    }
                }
                None => {
                    self.carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// The hashes of a content's pieces, which are those of its digest.
    async fn pieces_of(&self, digest: Digest) -> Result<Pieces, Try> {
        let request = self.client.get(format!("{}/pieces", self.address(digest)));
        let request = self.authorised(request).await?;
        let response = within_stall(request.send()).await?.map_err(again)?;
        let mut response = check_status(digest, response)?;
        let mut bytes = Vec::new();
        while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
            bytes.extend_from_slice(&part);
            if bytes.len() > CHUNK_LIST_BYTES_MAX {
                return Err(Try::Again("the list of its pieces is too long".into()));
            }
        }
        let pieces: Pieces = codec::decode(&bytes)
            .map_err(|error| Try::Again(format!("the list of its pieces: {error}")))?;
        match pieces.digest() == Some(digest) && pieces.bytes() <= BLOB_BYTES_MAX {
            true => Ok(pieces),
            false => Err(Try::Again("the list of its pieces is of another content".into())),
        }
    }
}

/// What the broker sends of a content.
struct Stream {
    response: Response,
    /// What has come of the next piece, and of those after it.
    piece: Vec<u8>,
    next: usize,
}
