//! Fetching a chunk from several hosts at once.
//!
//! # Invariants
//! - A piece is checked as it comes, whoever sent it; who sends a wrong one is asked for nothing more.
//! - It ends when all pieces are there, when no source is left, when the sources take too long, or when
//!   whoever waits has enough; all its sockets are closed then.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gleaner_protocol::control::{ChunkSource, SourceFailed, SourceFault};
use gleaner_protocol::{Digest, Pieces, Span, boottime};
use tokio::sync::{Notify, mpsc};
use tokio::time::{interval, timeout};
use tracing::{debug, warn};

use super::Peers;
use super::plan::Plan;
use super::source::{End, Source};
use super::wire::{Request, Wish};
use crate::limits::{
    CHUNK_LOOK_MS, CHUNK_PIECES_ASKED_MAX, CHUNK_PULL_BYTES_PER_MS, CHUNK_PULL_MS_MIN,
    CHUNK_SOURCES_MAX,
};
use crate::link::blobs::Part;
use crate::metrics::ChunkWay;

/// Why a chunk is not fetched any further.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It comes too slowly.
    Slow,
    /// This host's disk failed.
    Disk(std::io::Error),
}

/// What a source says.
enum Said {
    /// The hashes of all pieces.
    List(Pieces),
    /// A piece, which is right, and came for the first time.
    Piece(usize, Vec<u8>),
}

/// What all sources share.
#[derive(Default)]
struct Shared {
    work: Mutex<Option<Work>>,
    changed: Notify,
}

struct Work {
    pieces: Arc<Pieces>,
    plan: Plan,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, or for a moment.
    async fn until<T>(&self, mut ready: impl FnMut(&mut Work) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(ready) = self.work().as_mut().and_then(&mut ready) {
                return ready;
            }
            // Who was not late may be late now.
            let _ = timeout(Duration::from_millis(CHUNK_LOOK_MS), changed).await;
        }
    }
}

impl Peers {
    /// Fetches the chunk of this length into a file, as far as the sources give it; nothing where none gives even the list
    /// of its pieces. `goes_on` is told how many bytes are there, and says whether to go on; `tell` hears of
    /// each source that failed.
    ///
    /// # Errors
    /// Why it was stopped.
    pub(crate) async fn pull(
        &self,
        chunk: (Digest, u64),
        sources: &[ChunkSource],
        path: &Path,
        goes_on: &mut (dyn FnMut(u64) -> bool + Send),
        tell: &(dyn Fn(SourceFailed) + Send + Sync),
    ) -> Result<Option<Part>, Stopped> {
        let (digest, shared) = (chunk.0, Shared::default());
        let (say, mut heard) = mpsc::channel(CHUNK_SOURCES_MAX);
        let sources = &sources[..sources.len().min(CHUNK_SOURCES_MAX)];
        let of_each = sources.iter().enumerate();
        let mut working: FuturesUnordered<_> = of_each
            .map(|(at, source)| {
                let (shared, say) = (&shared, say.clone());
                async move { (at, self.read_from(at, source, chunk, shared, say).await) }
            })
            .collect();
        drop(say);
        let mut part: Option<Part> = None;
        let begun = boottime();
        let mut limit = Span::from_millis(CHUNK_PULL_MS_MIN);
        let mut look = interval(Duration::from_millis(CHUNK_LOOK_MS));
        loop {
            tokio::select! {
                biased;
                Some(said) = heard.recv() => match said {
                    Said::List(pieces) if part.is_none() => {
                        limit = limit + Span::from_millis(pieces.bytes() / CHUNK_PULL_BYTES_PER_MS);
                        let pieces = Arc::new(pieces);
                        let opened = Part::open(path, Arc::clone(&pieces)).await;
                        let opened = opened.map_err(Stopped::Disk)?;
                        let plan = Plan::new(opened.missing(), sources.len());
                        *shared.work() = Some(Work { pieces, plan });
                        part = Some(opened);
                    }
                    Said::List(_) => {}
                    Said::Piece(index, piece) => {
                        let part = part.as_mut().expect("nobody is asked for one before it is there");
                        part.write(index, &piece).await.map_err(Stopped::Disk)?;
                    }
                },
                Some((at, end)) = working.next() => {
                    if let Some(work) = shared.work().as_mut() {
                        work.plan.gone(at);
                    }
                    self.note_end(digest, &sources[at], end, tell);
                }
                _ = look.tick() => {}
            }
            shared.changed.notify_waiters();
            let there = part.as_ref().map_or(0, Part::bytes_there);
            if part.as_ref().is_some_and(|part| part.first_missing().is_none()) {
                break;
            }
            if working.is_empty() && heard.is_empty() {
                break;
            }
            if boottime().since(begun) > limit {
                debug!("the sources of chunk {digest} take too long for all of it");
                break;
            }
            if !goes_on(there) {
                if let Some(part) = &mut part {
                    part.flush().await.map_err(Stopped::Disk)?;
                }
                return Err(Stopped::Slow);
            }
        }
        Ok(part)
    }

    /// Reads what it can from one source.
    async fn read_from(
        &self,
        at: usize,
        source: &ChunkSource,
        chunk: (Digest, u64),
        shared: &Shared,
        say: mpsc::Sender<Said>,
    ) -> End {
        match self.read_all_from(at, source, chunk, shared, say).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn read_all_from(
        &self,
        at: usize,
        from: &ChunkSource,
        chunk: (Digest, u64),
        shared: &Shared,
        say: mpsc::Sender<Said>,
    ) -> Result<Infallible, End> {
        let ended = |_| End::Gone("nobody wants it any more".into());
        let (mut source, pieces) = Source::open(self, from, chunk).await?;
        say.send(Said::List(pieces)).await.map_err(ended)?;
        let pieces = shared.until(|work| Some(Arc::clone(&work.pieces))).await;
        let mut asked = VecDeque::new();
        loop {
            let mut next = Vec::new();
            if let Some(work) = shared.work().as_mut() {
                while asked.len() + next.len() < CHUNK_PIECES_ASKED_MAX
                    && let Some(piece) = work.plan.next(at, boottime())
                {
                    next.push(piece);
                }
            }
            if next.is_empty() && asked.is_empty() {
                next.push(shared.until(|work| work.plan.next(at, boottime())).await);
            }
            for piece in next {
                let number = u32::try_from(piece).unwrap_or(u32::MAX);
                source.ask(Request { digest: chunk.0, wish: Wish::Piece(number) }).await?;
                asked.push_back(piece);
            }
            let Some(piece) = asked.pop_front() else { continue };
            let bytes = source.piece(&self.pace).await?;
            self.carried(ChunkWay::FromAgents, bytes.len());
            if !pieces.is_right(piece, &bytes) {
                let reason = format!("piece {piece} is another");
                return Err(End::Fault(SourceFault::WrongPiece, reason));
            }
            let is_first = match shared.work().as_mut() {
                Some(work) => work.plan.came(at, piece, boottime()),
                None => false,
            };
            if is_first {
                say.send(Said::Piece(piece, bytes)).await.map_err(ended)?;
            }
        }
    }

    fn note_end(
        &self,
        digest: Digest,
        source: &ChunkSource,
        end: End,
        tell: &(dyn Fn(SourceFailed) + Send + Sync),
    ) {
        let host = &source.host;
        match end {
            End::Gone(reason) => debug!("{host} gives no more of chunk {digest}: {reason}"),
            End::Fault(fault, reason) => {
                let at = source.address.map_or_else(String::new, |at| format!(" at {at}"));
                let what = fault.as_str();
                warn!("{host}{at} {what} of chunk {digest}, others are asked: {reason}");
                self.metrics.source_failed(fault);
                tell(SourceFailed { digest, source: host.clone(), fault });
            }
        }
    }
}
