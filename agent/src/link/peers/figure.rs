//! What one move takes, from sources of given rates and manners on this machine: for `gleaner bench moves`
//! and for tests.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_identity::{KeyPair, peer_server};
use gleaner_protocol::control::{ChunkSource, SourceFailed, SourceFault};
use gleaner_protocol::{Digest, HostName, PeerKey, Pieces, Span, boottime, codec};
use tokio::io::{AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::Peers;
use super::pace::Pace;
use super::sockets::Sockets;
use super::wire::{PROTOCOL, Request, Status, Wish, head};
use crate::limits::{CHUNK_READERS_MAX, CHUNK_SLICE_BYTES};
use crate::metrics::Metrics;

/// What a source does that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It gives what it is asked for.
    Right,
    /// It sends a wrong byte in the piece that it is asked for after so many.
    WrongAfter(u32),
    /// It is silent after so many pieces.
    SilentAfter(u32),
    /// It hangs up after so many.
    GoneAfter(u32),
}

/// A source that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredSource {
    /// What it sends a second.
    pub bytes_per_s: u64,
    /// What it does.
    pub manner: Manner,
}

/// What came of one move.
#[derive(Debug, Clone, PartialEq)]
pub struct MoveFigure {
    /// How long it took.
    pub seconds: f64,
    /// Whether all of it came from the sources.
    pub is_whole: bool,
    /// Bytes that each source sent.
    pub sent: Vec<u64>,
    /// Sources that failed, by their place, and what they did.
    pub failed: Vec<(usize, SourceFault)>,
}

/// Has a content fetched into a file from sources on this machine.
///
/// # Errors
/// This machine has no key, no port or no disk left for it.
pub async fn measure_move(
    content: Vec<u8>,
    sources: &[MeasuredSource],
    path: &Path,
) -> io::Result<MoveFigure> {
    let key = || KeyPair::generate().map_err(io::Error::other);
    let peers = Peers::new(key()?, u64::MAX, Arc::new(Metrics::default()));
    let content = Arc::new(Measured::of(content)?);
    let mut serving = Vec::new();
    for source in sources {
        serving.push(Serving::start(key()?, *source, &content, peers.key()).await?);
    }
    let named = serving.iter().enumerate().map(|(at, of)| of.named(at)).collect::<Vec<_>>();
    let failed = Mutex::new(Vec::new());
    let tell = |of: SourceFailed| {
        let at = named.iter().position(|source| source.host == of.source);
        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.extend(at.map(|at| (at, of.fault)));
    };
    let begun = boottime();
    let pulled = peers
        .pull((content.digest, content.bytes.len() as u64), &named, path, &mut |_| true, &tell)
        .await;
    let seconds = boottime().since(begun).as_secs_f64();
    let mut part = pulled.map_err(|stopped| io::Error::other(format!("{stopped:?}")))?;
    let is_whole = match &mut part {
        Some(part) => {
            part.flush().await?;
            part.first_missing().is_none()
        }
        None => false,
    };
    let sent = serving.iter().map(|of| of.sent.load(Ordering::Relaxed)).collect();
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(MoveFigure { seconds, is_whole, sent, failed })
}

/// How long it takes to silence as many sockets as a host has at most, each of which has as much on its way
/// as it can.
///
/// # Errors
/// This machine has no port left for it.
pub async fn measure_cut() -> io::Result<Span> {
    let sockets = Arc::new(Sockets::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (much, mut open) = (vec![7; 1 << 20], Vec::new());
    for _ in 0..CHUNK_READERS_MAX {
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        let (other, _) = listener.accept().await?;
        let noted = sockets.note(&stream)?;
        while stream.try_write(&much).is_ok() {}
        open.push((stream, other, noted));
    }
    let begun = boottime();
    sockets.silence();
    Ok(boottime().since(begun))
}

/// What is moved.
struct Measured {
    bytes: Vec<u8>,
    pieces: Pieces,
    digest: Digest,
}

impl Measured {
    fn of(bytes: Vec<u8>) -> io::Result<Self> {
        let pieces = Pieces::of_reader(&bytes[..])?;
        let digest = Digest::of(&bytes);
        Ok(Self { bytes, pieces, digest })
    }
}

/// A source that is up, until this is dropped.
struct Serving {
    key: PeerKey,
    port: u16,
    sent: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Serving {
    async fn start(
        key: KeyPair,
        source: MeasuredSource,
        content: &Arc<Measured>,
        reader: PeerKey,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let config = peer_server(&key, move |shown| *shown == reader, PROTOCOL);
        let acceptor = TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?));
        let sent = Arc::new(AtomicU64::new(0));
        let (content, counted) = (Arc::clone(content), Arc::clone(&sent));
        let task = tokio::spawn(async move {
            let (pace, asked) = (Pace::new(source.bytes_per_s), AtomicU32::new(0));
            while let Ok((stream, _)) = listener.accept().await {
                let of = (&acceptor, &*content, &pace, &asked, &*counted);
                // A reader that hangs up has what it wants.
                let _ = give(stream, source.manner, of).await;
            }
        });
        Ok(Self { key: key.peer_key(), port, sent, task })
    }

    fn named(&self, at: usize) -> ChunkSource {
        ChunkSource {
            host: HostName::new(format!("source{at}")).expect("a plain name"),
            address: (Ipv4Addr::LOCALHOST, self.port).into(),
            key: self.key,
        }
    }
}

/// Answers one reader.
async fn give(
    stream: TcpStream,
    manner: Manner,
    (acceptor, content, pace, asked, sent): (
        &TlsAcceptor,
        &Measured,
        &Pace,
        &AtomicU32,
        &AtomicU64,
    ),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut from, mut to) = split(acceptor.accept(stream).await?);
    while let Some(request) = Request::read(&mut from).await? {
        let bytes = match request.wish {
            Wish::List => codec::encode(&content.pieces),
            Wish::Layer => Vec::new(),
            Wish::Piece(index) => {
                let (at, length) = content.pieces.place(index as usize);
                let mut piece = content.bytes[at as usize..][..length].to_vec();
                let before = asked.fetch_add(1, Ordering::Relaxed);
                match manner {
                    Manner::WrongAfter(pieces) if before >= pieces => piece[length / 2] ^= 1,
                    Manner::GoneAfter(pieces) if before >= pieces => return Ok(()),
                    Manner::SilentAfter(pieces) if before >= pieces => {
                        std::future::pending::<()>().await;
                    }
                    _ => {}
                }
                piece
            }
        };
        to.write_all(&head(Status::Here, bytes.len())).await?;
        for slice in bytes.chunks(CHUNK_SLICE_BYTES) {
            pace.take(slice.len()).await;
            to.write_all(slice).await?;
            sent.fetch_add(slice.len() as u64, Ordering::Relaxed);
        }
        to.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::PIECE_BYTES;

    use super::*;

    const FAST: u64 = 200 << 20;

    fn content(pieces: usize) -> Vec<u8> {
        (0..pieces * PIECE_BYTES - 99)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect()
    }

    async fn moved(pieces: usize, sources: &[(u64, Manner)]) -> MoveFigure {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.part");
        let content = content(pieces);
        let of = |(bytes_per_s, manner): &(u64, Manner)| MeasuredSource {
            bytes_per_s: *bytes_per_s,
            manner: *manner,
        };
        let sources: Vec<MeasuredSource> = sources.iter().map(of).collect();
        let figure = measure_move(content.clone(), &sources, &path).await.expect("ports");
        if figure.is_whole {
            assert!(std::fs::read(&path).expect("there") == content, "it is another");
        }
        figure
    }

    #[tokio::test]
    async fn who_sends_a_wrong_byte_is_named_and_its_piece_comes_from_another() {
        let sources = [(FAST, Manner::Right), (FAST, Manner::WrongAfter(2))];
        let figure = moved(40, &sources).await;
        assert!(figure.is_whole);
        assert_eq!(figure.failed, [(1, SourceFault::WrongPiece)]);
        let figure = moved(40, &[(FAST, Manner::WrongAfter(2))]).await;
        assert_eq!((figure.is_whole, figure.failed), (false, vec![(0, SourceFault::WrongPiece)]));
    }

    #[tokio::test]
    async fn who_vanishes_is_not_missed_and_not_blamed() {
        let sources = [(FAST, Manner::Right), (FAST, Manner::GoneAfter(3))];
        let figure = moved(40, &sources).await;
        assert_eq!((figure.is_whole, figure.failed), (true, Vec::new()));
    }

    #[tokio::test]
    async fn nobody_waits_for_one_that_is_silent_near_the_end_or_slow() {
        let sources = [(FAST, Manner::Right), (FAST, Manner::SilentAfter(5))];
        let figure = moved(20, &sources).await;
        // It would be blamed if anybody had waited for it.
        assert_eq!((figure.is_whole, figure.failed), (true, Vec::new()));
        let figure = moved(20, &[(FAST, Manner::Right), (FAST / 1_000, Manner::Right)]).await;
        assert!(figure.is_whole && figure.sent[0] >= 18 * PIECE_BYTES as u64, "{figure:?}");
    }

    #[tokio::test]
    async fn the_only_source_that_is_silent_at_99_percent_is_given_up_and_named() {
        let figure = moved(20, &[(FAST, Manner::SilentAfter(19))]).await;
        assert_eq!((figure.is_whole, figure.failed), (false, vec![(0, SourceFault::Stalled)]));
    }
}
