//! What one move takes, from sources of given rates and manners on this machine: for `gleaner bench moves`
//! and for tests.

mod moving;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gleaner_identity::{KeyPair, peer_server};
use gleaner_protocol::control::{ChunkSource, SourceFailed, SourceFault};
use gleaner_protocol::{Digest, HostName, PeerKey, Pieces, Span, boottime, codec};
use tokio::io::{AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::pace::Pace;
use super::sockets::Sockets;
use super::source::secure;
use super::wire::{PROTOCOL, PUSH, Request, Status, Wish, head};
use super::{Door, Giver, Peers};
use crate::limits::{CHUNK_READERS_MAX, CHUNK_SLICE_BYTES};
use crate::metrics::Metrics;
pub use moving::Moving;

/// How often a source that calls looks whether it is awaited.
const LOOK: Duration = Duration::from_millis(1);

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
    /// Whether it calls whoever reads, as a host does that nobody can call.
    pub calls: bool,
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
    let mut tasks = JoinSet::new();
    let reader = Reader::open(u64::MAX, &mut tasks).await?;
    let content = Arc::new(Measured::of(content)?);
    let mut serving = Vec::new();
    for source in sources {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        serving.push(Serving::start(key, *source, &content, &reader, &mut tasks).await?);
    }
    let named = serving.iter().enumerate().map(|(at, of)| of.named(at)).collect::<Vec<_>>();
    let failed = Mutex::new(Vec::new());
    let tell = |of: SourceFailed| {
        let at = named.iter().position(|source| source.host == of.source);
        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.extend(at.map(|at| (at, of.fault)));
    };
    let begun = boottime();
    let pulled = reader
        .peers
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

/// Who fetches.
struct Reader {
    peers: Arc<Peers>,
    /// Where sources call it that nobody can call.
    address: SocketAddr,
}

impl Reader {
    async fn open(bytes_per_s: u64, tasks: &mut JoinSet<()>) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let peers = Arc::new(Peers::new(key, bytes_per_s, Arc::new(Metrics::default())));
        let listener = Door::bind((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let address = listener.local_addr()?;
        let door = Door::new(listener, Arc::new(Giver::new(Arc::clone(&peers), |_| None)));
        tasks.spawn(door.map_err(io::Error::other)?.run());
        Ok(Self { peers, address })
    }
}

/// A source that is up.
struct Serving {
    key: PeerKey,
    /// Where it is called.
    address: Option<SocketAddr>,
    sent: Arc<AtomicU64>,
}

impl Serving {
    async fn start(
        key: KeyPair,
        source: MeasuredSource,
        content: &Arc<Measured>,
        reader: &Reader,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let (own, sent) = (key.peer_key(), Arc::new(AtomicU64::new(0)));
        let given = Given {
            content: Arc::clone(content),
            manner: source.manner,
            pace: Pace::new(source.bytes_per_s),
            asked: AtomicU32::new(0),
            sent: Arc::clone(&sent),
        };
        if source.calls {
            let (reader, at) = (Arc::clone(&reader.peers), reader.address);
            tasks.spawn(async move {
                while !reader.awaited.knows(&own) {
                    sleep(LOOK).await;
                }
                // A reader that hangs up has what it wants.
                let _ = given.to_called(&key, reader.key(), at).await;
            });
            return Ok(Self { key: own, address: None, sent });
        }
        let reader = reader.peers.key();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = Some(listener.local_addr()?);
        let config = peer_server(&key, move |shown| *shown == reader, &[PROTOCOL]);
        let acceptor = TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?));
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = given.to_caller(&acceptor, stream).await;
            }
        });
        Ok(Self { key: own, address, sent })
    }

    fn named(&self, at: usize) -> ChunkSource {
        let host = HostName::new(format!("source{at}")).expect("a plain name");
        ChunkSource { host, address: self.address, key: self.key }
    }
}

/// What a source gives, and how.
struct Given {
    content: Arc<Measured>,
    manner: Manner,
    pace: Pace,
    /// Pieces that it was asked for.
    asked: AtomicU32,
    sent: Arc<AtomicU64>,
}

impl Given {
    async fn to_caller(&self, acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        self.give(acceptor.accept(stream).await?.into()).await
    }

    async fn to_called(&self, own: &KeyPair, reader: PeerKey, at: SocketAddr) -> io::Result<()> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        self.give(secure(own, reader, PUSH, stream).await?).await
    }

    /// Answers one reader.
    async fn give(&self, stream: TlsStream<TcpStream>) -> io::Result<()> {
        let (mut from, mut to) = split(stream);
        while let Some(request) = Request::read(&mut from).await? {
            let bytes = match request.wish {
                Wish::List => codec::encode(&self.content.pieces),
                Wish::Layer => Vec::new(),
                Wish::Piece(index) => {
                    let (at, length) = self.content.pieces.place(index as usize);
                    let mut piece = self.content.bytes[at as usize..][..length].to_vec();
                    let before = self.asked.fetch_add(1, Ordering::Relaxed);
                    match self.manner {
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
                self.pace.take(slice.len()).await;
                to.write_all(slice).await?;
                self.sent.fetch_add(slice.len() as u64, Ordering::Relaxed);
            }
            to.flush().await?;
        }
        Ok(())
    }
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
        moved_by(pieces, false, sources).await
    }

    async fn moved_by(pieces: usize, calls: bool, sources: &[(u64, Manner)]) -> MoveFigure {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.part");
        let content = content(pieces);
        let of = |(bytes_per_s, manner): &(u64, Manner)| MeasuredSource {
            bytes_per_s: *bytes_per_s,
            manner: *manner,
            calls,
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
        for calls in [false, true] {
            let figure = moved_by(40, calls, &sources).await;
            assert!(figure.is_whole);
            assert_eq!(figure.failed, [(1, SourceFault::WrongPiece)]);
            let figure = moved_by(40, calls, &sources[1..]).await;
            assert_eq!(figure.failed, [(0, SourceFault::WrongPiece)]);
            assert!(!figure.is_whole);
        }
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
