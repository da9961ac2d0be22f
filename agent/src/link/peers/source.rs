//! A connection to a host that has a copy, whoever of the two has called.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gleaner_identity::{KeyPair, peer_client};
use gleaner_protocol::control::{ChunkSource, SourceFault};
use gleaner_protocol::{Digest, KeptLayer, PIECE_BYTES, PeerKey, Pieces, codec};
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsConnector, TlsStream};

use super::Peers;
use super::pace::Pace;
use super::sockets::Noted;
use super::wire::{PROTOCOL, Request, Status, Wish, read_head};
use crate::limits::{
    CHUNK_CONNECT_MS_MAX, CHUNK_CONNECT_PAUSE_MS, CHUNK_CONNECT_TRIES_MAX, CHUNK_LIST_BYTES_MAX,
    CHUNK_PIECE_MS_MAX, CHUNK_SILENCE_MS_MAX,
};

/// Why nothing more comes from a source.
#[derive(Debug)]
pub(super) enum End {
    /// It is at fault.
    Fault(SourceFault, String),
    /// It has gone, as it may: a render came there, or the chunk was dropped.
    Gone(String),
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Source {
    stream: TlsStream<TcpStream>,
    _noted: Noted,
}

impl Source {
    /// Over a connection on which the other end knows who is here.
    pub(super) fn new(stream: TlsStream<TcpStream>, noted: Noted) -> Self {
        Self { stream, _noted: noted }
    }

    /// Has a connection to a host for a chunk, and the hashes of its pieces from it.
    pub(super) async fn open(
        peers: &Peers,
        of: &ChunkSource,
        chunk: (Digest, u64),
    ) -> Result<(Self, Pieces), End> {
        let mut pause = Duration::from_millis(CHUNK_CONNECT_PAUSE_MS);
        let mut tries = 1;
        loop {
            let opened = async {
                let mut source = match of.address {
                    Some(_) => Self::call(peers, of).await?,
                    None => Self::be_called(peers, of.key).await?,
                };
                let pieces = source.list(chunk, &peers.pace).await?;
                Ok((source, pieces))
            };
            match opened.await {
                // It may hear of us from the broker only in a moment. Where nobody answers, or somebody else
                // does, another try is no use.
                Err(End::Gone(_)) if tries < CHUNK_CONNECT_TRIES_MAX && of.address.is_some() => {
                    sleep(pause).await;
                }
                opened => return opened,
            }
            tries += 1;
            pause *= 3;
        }
    }

    /// Waits until a host calls that cannot be called.
    async fn be_called(peers: &Peers, key: PeerKey) -> Result<Self, End> {
        let limit = Duration::from_millis(CHUNK_CONNECT_MS_MAX);
        match timeout(limit, peers.awaited.wait_for(key)).await {
            Ok(Ok(source)) => Ok(source),
            Ok(Err(_)) => Err(End::Gone("nobody is awaited here any more".into())),
            Err(_) => Err(End::Fault(SourceFault::DidNotCall, "nor is it heard of".into())),
        }
    }

    /// Calls a host in one try.
    pub(super) async fn call(peers: &Peers, at: &ChunkSource) -> Result<Self, End> {
        let address = at.address.ok_or_else(|| unreachable("nobody can call it".into()))?;
        let limit = Duration::from_millis(CHUNK_CONNECT_MS_MAX);
        let called = timeout(limit, peers.sockets.call(address)).await;
        let called = called.map_err(|_| unreachable("it does not answer".into()))?;
        let (stream, noted) = called.map_err(|error| unreachable(error.to_string()))?;
        match timeout(limit, secure(&peers.key, at.key, PROTOCOL, stream)).await {
            Err(_) => Err(unreachable("it does not answer".into())),
            Ok(Ok(stream)) => Ok(Self::new(stream, noted)),
            // Another than the one that the broker named.
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(unreachable(error.to_string()))
            }
            Ok(Err(error)) => Err(End::Gone(error.to_string())),
        }
    }

    /// The hashes of a chunk's pieces, which are those of its digest and of its length.
    async fn list(&mut self, (digest, length): (Digest, u64), pace: &Pace) -> Result<Pieces, End> {
        self.ask(Request { digest, wish: Wish::List }).await?;
        let bytes = self.answer(CHUNK_LIST_BYTES_MAX, pace).await?;
        let wrong = |reason: String| End::Fault(SourceFault::WrongPiece, reason);
        let pieces: Pieces = codec::decode(&bytes)
            .map_err(|error| wrong(format!("its list of the pieces: {error}")))?;
        // The digest says how many there are, and not how long the last one is.
        match pieces.digest() == Some(digest) && pieces.bytes() == length {
            true => Ok(pieces),
            false => Err(wrong("its list of the pieces is of another content".into())),
        }
    }

    /// Asks for something.
    pub(super) async fn ask(&mut self, request: Request) -> Result<(), End> {
        let limit = Duration::from_millis(CHUNK_SILENCE_MS_MAX);
        match timeout(limit, request.write(&mut self.stream)).await {
            Ok(written) => written.map_err(|error| End::Gone(error.to_string())),
            Err(_) => Err(stalled("it does not take a request")),
        }
    }

    /// A piece that was asked for.
    pub(super) async fn piece(&mut self, pace: &Pace) -> Result<Vec<u8>, End> {
        self.answer(PIECE_BYTES, pace).await
    }

    /// A layer of a frame, as fast as it comes: a picture waits for it.
    pub(super) async fn layer(&mut self, layer: &KeptLayer) -> Result<(Status, Vec<u8>), End> {
        self.ask(Request { digest: layer.digest, wish: Wish::Layer }).await?;
        self.read_any_answer(usize::try_from(layer.bytes).unwrap_or(usize::MAX), None).await
    }

    async fn answer(&mut self, bytes_max: usize, pace: &Pace) -> Result<Vec<u8>, End> {
        let limit = Duration::from_millis(CHUNK_PIECE_MS_MAX);
        let read = timeout(limit, self.read_answer(bytes_max, pace)).await;
        read.map_err(|_| stalled("it takes too long for one piece"))?
    }

    async fn read_answer(&mut self, bytes_max: usize, pace: &Pace) -> Result<Vec<u8>, End> {
        match self.read_any_answer(bytes_max, Some(pace)).await? {
            (Status::Here, bytes) => Ok(bytes),
            (Status::NotAllowed, _) => Err(End::Gone("it may not give this".into())),
            (Status::NotHere, _) => Err(End::Gone("it does not have this any more".into())),
        }
    }

    async fn read_any_answer(
        &mut self,
        bytes_max: usize,
        pace: Option<&Pace>,
    ) -> Result<(Status, Vec<u8>), End> {
        let silence = Duration::from_millis(CHUNK_SILENCE_MS_MAX);
        let broken = |error: io::Error| match error.kind() {
            // Its bytes are not what the protocol says. What TLS refuses is of this kind too: it may not know
            // our own key yet.
            io::ErrorKind::InvalidData if !is_of_tls(&error) => {
                End::Fault(SourceFault::WrongPiece, error.to_string())
            }
            _ => End::Gone(error.to_string()),
        };
        let head = timeout(silence, read_head(&mut self.stream, bytes_max)).await;
        let (status, length) = head.map_err(|_| stalled("it is silent"))?.map_err(broken)?;
        let mut bytes = vec![0; length];
        let mut there = 0;
        while there < length {
            let read = timeout(silence, self.stream.read(&mut bytes[there..])).await;
            let read = read.map_err(|_| stalled("it is silent"))?.map_err(broken)?;
            if read == 0 {
                return Err(End::Gone("it broke off".into()));
            }
            there += read;
            if let Some(pace) = pace {
                pace.take(read).await;
            }
        }
        Ok((status, bytes))
    }
}

/// TLS over a connection to whoever has this key.
pub(super) async fn secure(
    own: &KeyPair,
    other: PeerKey,
    protocol: &[u8],
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let config = peer_client(own, other, protocol).map_err(io::Error::other)?;
    let name = ServerName::from(stream.peer_addr()?.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(stream.into())
}

fn unreachable(why: String) -> End {
    End::Fault(SourceFault::Unreachable, why)
}

fn stalled(what: &str) -> End {
    End::Fault(SourceFault::Stalled, what.into())
}

fn is_of_tls(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
}
