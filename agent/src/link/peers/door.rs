//! Where other agents call: those that the broker lets read copies of chunks of this host, for a while, and
//! those that are awaited with a chunk for this host.
//!
//! # Invariants
//! - While the broker has named nobody, and while a render has silenced the host, whoever calls is hung up
//!   on before a byte is exchanged.
//! - Whose key may read nothing, and is not awaited, is refused in the handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gleaner_identity::{peer_key_of, peer_server};
use gleaner_protocol::{PeerKey, boottime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::giver::Giver;
use super::sockets::Noted;
use super::source::Source;
use super::wire::{PROTOCOL, PUSH};
use crate::limits::{ACCEPT_REST_MS, CHUNK_HANDSHAKE_MS_MAX, CHUNK_READERS_MAX, CHUNK_REFUSED_MS};

/// See the module's page.
pub(crate) struct Door {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    giver: Arc<Giver>,
}

impl Door {
    /// Takes an address.
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) async fn bind(at: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(at).await
    }

    pub(crate) fn new(listener: TcpListener, giver: Arc<Giver>) -> Result<Self, rustls::Error> {
        let peers = Arc::clone(&giver.peers);
        let admits =
            move |key: &PeerKey| peers.grants.knows(boottime(), key) || peers.awaited.knows(key);
        let config = peer_server(&giver.peers.key, admits, &[PROTOCOL, PUSH])?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), giver })
    }

    /// Answers until it is dropped.
    pub(crate) async fn run(self) {
        let peers = &self.giver.peers;
        let mut callers = JoinSet::new();
        let unknown = Arc::new(Semaphore::new(CHUNK_READERS_MAX));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = callers.join_next() => continue,
            };
            let (stream, caller) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!("another agent that calls cannot be heard: {error}");
                    sleep(Duration::from_millis(ACCEPT_REST_MS)).await;
                    continue;
                }
            };
            if !peers.grants.are_any(boottime()) && !peers.awaited.are_any() {
                debug!("{caller} calls, nobody may read any copy here, and nobody is awaited");
                continue;
            }
            let Ok(place) = Arc::clone(&unknown).try_acquire_owned() else { continue };
            let (acceptor, giver) = (self.acceptor.clone(), Arc::clone(&self.giver));
            callers.spawn(async move {
                let Ok(noted) = giver.peers.sockets.note(&stream) else { return };
                let limit = Duration::from_millis(CHUNK_HANDSHAKE_MS_MAX);
                let refused = match timeout(limit, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        drop(place);
                        return receive(&giver, stream, caller, noted).await;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it does not say in time who it is".into(),
                };
                debug!("{caller} is not let in: {refused}");
                // Whoever tries on and on does not keep this host busy.
                sleep(Duration::from_millis(CHUNK_REFUSED_MS)).await;
            });
        }
    }
}

/// Serves one whose key may read something, or hands it to whoever awaits it: as it says.
async fn receive(giver: &Giver, stream: TlsStream<TcpStream>, caller: SocketAddr, noted: Noted) {
    let shown = stream.get_ref().1.peer_certificates().and_then(|of| peer_key_of(of.first()?));
    let Some(key) = shown else { return };
    if stream.get_ref().1.alpn_protocol() == Some(PUSH) {
        if !giver.peers.awaited.hand(&key, Source::new(stream.into(), noted)) {
            debug!("{caller} is not awaited any more");
        }
        return;
    }
    // Who is only awaited asks for nothing.
    if !giver.peers.grants.knows(boottime(), &key) {
        return;
    }
    if let Err(error) = giver.receive(stream.into(), &key).await {
        debug!("{caller} reads no more: {error}");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gleaner_identity::KeyPair;
    use gleaner_protocol::control::ChunkSource;
    use gleaner_protocol::control::SourceFault::{Unreachable, WrongPiece};
    use gleaner_protocol::{Digest, KeptLayer, PIECE_BYTES};

    use super::super::Peers;
    use super::super::trial_host::{Host, peers, read};
    use super::*;

    #[tokio::test]
    async fn whom_the_broker_names_reads_what_it_names_and_nobody_reads_anything_else() {
        let (one, two) = (vec![1; 3 * PIECE_BYTES + 5], vec![2; 100]);
        let [first, second] = [&one, &two].map(|of| (Digest::of(of), of.len() as u64));
        let host = Host::with(&[&one, &two]).await;
        let (reader, stranger) = (peers(), peers());
        let reads = async |reader: &Peers, chunk| read(reader, host.source(), chunk).await;
        assert_eq!(reads(&reader, first).await, (None, vec![]), "nobody is named");
        host.lets(&reader, first.0);
        assert_eq!(reads(&reader, first).await, (Some(one.clone()), vec![]));
        let longer = (first.0, first.1 + 1);
        assert_eq!(reads(&reader, longer).await, (None, vec![WrongPiece]), "of another length");
        assert_eq!(reads(&reader, second).await, (None, vec![]), "it is not named");
        assert_eq!(reads(&stranger, first).await, (None, vec![]), "another key is");
        host.lets(&stranger, second.0);
        assert_eq!(reads(&stranger, first).await, (None, vec![]), "for something else");
        assert_eq!(reads(&stranger, second).await, (Some(two), vec![]));
        let gone = Digest::of(b"gone");
        host.lets(&reader, gone);
        assert_eq!(reads(&reader, (gone, 4)).await, (None, vec![]), "it is not there");
        // A render comes.
        host.peers.silence();
        assert_eq!(reads(&reader, first).await, (None, vec![]), "nobody is named any more");
        host.lets(&reader, first.0);
        assert_eq!(reads(&reader, first).await, (Some(one), vec![]));
    }

    #[tokio::test]
    async fn a_damaged_copy_is_given_to_nobody_and_another_host_is_not_taken_for_it() {
        let copy = vec![3; 2 * PIECE_BYTES];
        let chunk = (Digest::of(&copy), copy.len() as u64);
        let host = Host::with(&[&copy]).await;
        let path = host.folder.path().join("chunks").join(chunk.0.to_string());
        let mut damaged = copy.clone();
        damaged[PIECE_BYTES] ^= 1;
        std::fs::write(&path, damaged).expect("written");
        let reader = peers();
        host.lets(&reader, chunk.0);
        assert_eq!(read(&reader, host.source(), chunk).await, (None, vec![]));
        assert!(!path.exists(), "it is dropped");
        let other = ChunkSource { key: reader.key(), ..host.source() };
        assert_eq!(read(&reader, other, chunk).await, (None, vec![Unreachable]), "another key");
    }

    #[tokio::test]
    async fn a_render_cuts_a_reader_in_the_middle() {
        let copy: Vec<u8> = (0..40 * PIECE_BYTES).map(|at| (at / 7) as u8).collect();
        let digest = Digest::of(&copy);
        let host = Host::with(&[&copy]).await;
        let reader = peers();
        host.lets(&reader, digest);
        let path = host.folder.path().join("x.part");
        let mut goes_on = |there: u64| {
            if there > 0 {
                host.peers.silence();
            }
            true
        };
        let sources = [host.source()];
        let pulled =
            reader.pull((digest, copy.len() as u64), &sources, &path, &mut goes_on, &|_| {}).await;
        let part = pulled.expect("a good disk").expect("something came");
        assert!(part.bytes_there() < copy.len() as u64, "the rest does not");
    }

    /// A layer that a host keeps.
    async fn layer_of(host: &Host, bytes: Vec<u8>) -> (KeptLayer, ChunkSource) {
        let kept = host.peers.keep_layers(vec![bytes.into()]).await.expect("there is room");
        (kept[0], host.source())
    }

    #[tokio::test]
    async fn layers_come_once_to_whom_the_broker_names_in_the_order_of_their_bricks() {
        let [one, two] = [Host::with(&[]).await, Host::with(&[]).await];
        let (reader, stranger) = (peers(), peers());
        // Two bricks of which nothing is seen have the same layer.
        let contents = [vec![1; 300_000], vec![2; 5], vec![3; 7], vec![2; 5]];
        let mut wanted = Vec::new();
        for (host, content) in [&one, &two, &one, &two].into_iter().zip(&contents) {
            wanted.push(layer_of(host, content.clone()).await);
            host.lets(&reader, Digest::of(content));
        }
        let own = [Bytes::from(vec![4; 10]), Bytes::new()];
        let kept = reader.keep_layers(own.to_vec()).await.expect("there is room");
        assert_eq!((kept.len(), kept[1].bytes), (2, 0));
        wanted.push((kept[0], ChunkSource { key: reader.key(), ..one.source() }));
        assert!(stranger.fetch_layers(&wanted[..1]).await.is_err(), "it is not named");
        let fetched = reader.fetch_layers(&wanted).await.expect("they are there");
        assert!(fetched[..4].iter().eq(&contents), "in their order");
        assert_eq!(fetched[4], own[0]);
        // Whoever is named once more finds them gone, on a connection that is there already.
        wanted.iter().zip([&one, &two]).for_each(|((of, _), at)| at.lets(&reader, of.digest));
        for at in 0..wanted.len() {
            let gone = reader.fetch_layers(&wanted[at..=at]).await.expect_err("fetched before");
            assert!(gone.contains("layers do not come from source"), "{gone}");
        }
    }

    #[tokio::test]
    async fn a_render_drops_layers_and_what_is_not_as_it_was_named_is_none() {
        let host = Host::with(&[]).await;
        let reader = peers();
        let layer = layer_of(&host, vec![1; 100]).await;
        host.lets(&reader, layer.0.digest);
        host.peers.silence();
        host.lets(&reader, layer.0.digest);
        let gone = reader.fetch_layers(std::slice::from_ref(&layer)).await.expect_err("dropped");
        assert!(gone.contains("it is not there any more"), "{gone}");
        // It is longer than the broker says.
        let (kept, source) = layer_of(&host, vec![1; 100]).await;
        let short = (KeptLayer { bytes: 99, ..kept }, source.clone());
        assert!(reader.fetch_layers(&[short]).await.is_err());
        // Another agent listens there now.
        let source = ChunkSource { key: peers().key(), ..source };
        assert!(reader.fetch_layers(&[(kept, source)]).await.is_err());
        // One that nobody can read from keeps none.
        let closed = Peers::new(KeyPair::generate().expect("made"), 1, Arc::default()).open(false);
        assert!(Arc::new(closed).keep_layers(vec![Bytes::from_static(b"x")]).await.is_none());
    }
}
