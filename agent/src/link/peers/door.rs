//! Lets other agents read copies of chunks that this host has: those that the broker named, for a while.
//!
//! # Invariants
//! - While the broker has named nobody, and while a render has silenced the host, whoever calls is hung up
//!   on before a byte is exchanged.
//! - Whose key may read nothing is refused in the handshake; what may not be read is not looked for.
//! - A copy is checked against its digest before any of it is sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gleaner_identity::{peer_key_of, peer_server};
use gleaner_protocol::{Digest, PeerKey, Pieces, boottime, codec};
use rustix::fs::{Advice, fadvise};
use tokio::io::{AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use super::Peers;
use super::sockets::Noted;
use super::wire::{PROTOCOL, Request, Status, Wish, head};
use crate::limits::{
    ACCEPT_REST_MS, CHUNK_HANDSHAKE_MS_MAX, CHUNK_READER_MS_MAX, CHUNK_READERS_MAX,
    CHUNK_REFUSED_MS, CHUNK_SLICE_BYTES,
};
use crate::link::blobs::CachedBlob;
use crate::metrics::ChunkWay;

/// Finds a copy, which stays as long as the result lives.
type Find = Box<dyn Fn(Digest) -> Option<CachedBlob> + Send + Sync>;

/// See the module's page.
pub(crate) struct Door {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    room: Arc<Room>,
}

/// What all connections share.
struct Room {
    peers: Arc<Peers>,
    find: Find,
    /// Copies that somebody reads.
    read: Mutex<BTreeMap<Digest, Weak<Copy>>>,
    /// Those who have shown who they are.
    known: Semaphore,
}

/// A copy that somebody reads.
struct Copy {
    blob: CachedBlob,
    file: File,
    pieces: Pieces,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The page cache is the renders'.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

impl Door {
    /// Takes an address.
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) async fn bind(at: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(at).await
    }

    pub(crate) fn new(
        listener: TcpListener,
        peers: Arc<Peers>,
        find: impl Fn(Digest) -> Option<CachedBlob> + Send + Sync + 'static,
    ) -> Result<Self, rustls::Error> {
        let grants = Arc::clone(&peers.grants);
        let admits = move |key: &PeerKey| grants.knows(boottime(), key);
        let config = peer_server(&peers.key, admits, PROTOCOL)?;
        let (read, known) = (Mutex::default(), Semaphore::new(CHUNK_READERS_MAX));
        let room = Room { peers, find: Box::new(find), read, known };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { listener, acceptor, room: Arc::new(room) })
    }

    /// Serves until it is dropped.
    pub(crate) async fn run(self) {
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
                    debug!("a caller who wants a copy cannot be heard: {error}");
                    sleep(Duration::from_millis(ACCEPT_REST_MS)).await;
                    continue;
                }
            };
            if !self.room.peers.grants.are_any(boottime()) {
                debug!("{caller} calls, and nobody may read any copy here");
                continue;
            }
            let Ok(place) = Arc::clone(&unknown).try_acquire_owned() else { continue };
            let (acceptor, room) = (self.acceptor.clone(), Arc::clone(&self.room));
            callers.spawn(async move {
                let Ok(noted) = room.peers.sockets.note(&stream) else { return };
                let limit = Duration::from_millis(CHUNK_HANDSHAKE_MS_MAX);
                let refused = match timeout(limit, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        drop(place);
                        return room.receive(stream, caller, noted).await;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it does not say in time who it is".into(),
                };
                debug!("{caller} may read no copies: {refused}");
                // Whoever tries on and on does not keep this host busy.
                sleep(Duration::from_millis(CHUNK_REFUSED_MS)).await;
            });
        }
    }
}

impl Room {
    /// Serves one whose key may read something, where there is a place.
    async fn receive(&self, stream: TlsStream<TcpStream>, caller: SocketAddr, _noted: Noted) {
        let Ok(_place) = self.known.try_acquire() else { return };
        if let Err(error) = self.serve(stream).await {
            debug!("{caller} reads no more: {error}");
        }
    }

    /// Answers one reader until it leaves.
    async fn serve(&self, stream: TlsStream<TcpStream>) -> io::Result<()> {
        let shown = stream.get_ref().1.peer_certificates().and_then(|of| peer_key_of(of.first()?));
        let reader = shown.ok_or(io::ErrorKind::PermissionDenied)?;
        let (mut from, mut to) = split(stream);
        let limit = Duration::from_millis(CHUNK_READER_MS_MAX);
        let mut copy: Option<Arc<Copy>> = None;
        loop {
            let request = timeout(limit, Request::read(&mut from)).await;
            let Some(Request { digest, wish }) = request?? else { return Ok(()) };
            if !self.peers.grants.allow(boottime(), &reader, &digest) {
                debug!("{reader} may not read chunk {digest}");
                let refused = async {
                    to.write_all(&head(Status::NotAllowed, 0)).await?;
                    to.flush().await
                };
                timeout(limit, refused).await??;
                if !self.peers.grants.knows(boottime(), &reader) {
                    // It may read nothing any more.
                    return Ok(());
                }
                continue;
            }
            if wish == Wish::Layer {
                self.give_layer(&mut to, &reader, digest).await?;
                continue;
            }
            let same = copy.take().filter(|copy| copy.blob.digest() == digest);
            copy = match same {
                Some(copy) => Some(copy),
                None => self.copy(digest).await?,
            };
            let bytes = match (&copy, wish) {
                (None, _) | (_, Wish::Layer) => None,
                (Some(copy), Wish::List) => Some(codec::encode(&copy.pieces)),
                (Some(copy), Wish::Piece(index)) => read(copy, index as usize).await?,
            };
            let status = if bytes.is_some() { Status::Here } else { Status::NotHere };
            let bytes = bytes.unwrap_or_default();
            timeout(limit, to.write_all(&head(status, bytes.len()))).await??;
            for slice in bytes.chunks(CHUNK_SLICE_BYTES) {
                self.peers.pace.take(slice.len()).await;
                timeout(limit, to.write_all(slice)).await??;
                self.peers.carried(ChunkWay::ToAgents, slice.len());
            }
            timeout(limit, to.flush()).await??;
        }
    }

    /// Gives a layer of a frame to whoever joins it, once.
    async fn give_layer(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        reader: &PeerKey,
        digest: Digest,
    ) -> io::Result<()> {
        let layer = self.peers.layers.find(&digest);
        let status = if layer.is_some() { Status::Here } else { Status::NotHere };
        let bytes = layer.as_deref().map_or(&[][..], Vec::as_slice);
        let sent = async {
            to.write_all(&head(status, bytes.len())).await?;
            to.write_all(bytes).await?;
            to.flush().await
        };
        timeout(Duration::from_millis(CHUNK_READER_MS_MAX), sent).await??;
        self.peers.layer_carried(bytes.len());
        if layer.is_some() && !self.peers.layers.end(&digest) {
            self.peers.grants.end(reader, &digest);
        }
        Ok(())
    }

    /// A copy, checked; nothing where it is not here.
    async fn copy(&self, digest: Digest) -> io::Result<Option<Arc<Copy>>> {
        let read = |digest: &Digest| {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.get(digest).and_then(Weak::upgrade)
        };
        if let Some(copy) = read(&digest) {
            return Ok(Some(copy));
        }
        let Some(blob) = (self.find)(digest) else { return Ok(None) };
        let (peers, cuts) = (Arc::clone(&self.peers), self.peers.cuts());
        let checked = spawn_blocking(move || {
            let file = File::open(blob.path())?;
            let pieces = Pieces::of_reader(UntilCut { file: &file, peers: &peers, cuts })?;
            if pieces.digest() != Some(digest) {
                warn!("the copy of chunk {digest} on this host is damaged, and dropped");
                blob.distrust();
                return Ok(None);
            }
            Ok::<_, io::Error>(Some(Arc::new(Copy { blob, file, pieces })))
        });
        let copy = checked.await.map_err(io::Error::other)??;
        if let Some(copy) = &copy {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.retain(|_, copy| copy.strong_count() > 0);
            read.insert(digest, Arc::downgrade(copy));
        }
        Ok(copy)
    }
}

/// A file that is read no further where a render comes.
struct UntilCut<'a> {
    file: &'a File,
    peers: &'a Peers,
    cuts: u64,
}

impl Read for UntilCut<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.peers.cuts() == self.cuts {
            true => self.file.read(buffer),
            false => Err(io::Error::other("a render comes")),
        }
    }
}

/// A piece of a copy; nothing where it has no such piece.
async fn read(copy: &Arc<Copy>, index: usize) -> io::Result<Option<Vec<u8>>> {
    if index >= copy.pieces.count() {
        return Ok(None);
    }
    let copy = Arc::clone(copy);
    let read = spawn_blocking(move || {
        let (from, length) = copy.pieces.place(index);
        let mut bytes = vec![0; length];
        copy.file.read_exact_at(&mut bytes, from)?;
        Ok(Some(bytes))
    });
    read.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use gleaner_identity::{Credentials, KeyPair, Trust, client_config};
    use gleaner_protocol::control::{ChunkSource, ServeChunk, SourceFailed};
    use gleaner_protocol::{AgentSecret, HostName, KeptLayer, PIECE_BYTES};
    use reqwest::Client;
    use tokio::sync::mpsc;

    use super::*;
    use crate::link::blobs::Blobs;
    use crate::metrics::Metrics;

    fn peers() -> Arc<Peers> {
        let key = KeyPair::generate().expect("made");
        Arc::new(Peers::new(key, u64::MAX, Arc::new(Metrics::default())).open(true))
    }

    /// Copies in a folder of a host whose broker nobody reaches.
    fn blobs(folder: &Path, peers: &Arc<Peers>) -> Arc<Blobs> {
        let tls = client_config(Trust::Nobody).expect("it needs no file");
        let client = Client::builder().tls_backend_preconfigured(tls).build().expect("a client");
        let (none, secret) = (Credentials::of_token(None), AgentSecret::new([7; 16]));
        let blobs = Blobs::new(client, "http://127.0.0.1:1", none, secret, folder.join("cache"), 1);
        // Nobody hears of what comes and goes.
        let (tell, _) = mpsc::unbounded_channel();
        let blobs =
            blobs.expect("made").keeping(folder.join("chunks"), 1 << 30, Arc::clone(peers), tell);
        Arc::new(blobs.expect("made"))
    }

    struct Host {
        folder: tempfile::TempDir,
        peers: Arc<Peers>,
        source: ChunkSource,
    }

    /// A host that lets others read these copies.
    async fn host(copies: &[&[u8]]) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let chunks = folder.path().join("chunks");
        std::fs::create_dir(&chunks).expect("made");
        for copy in copies {
            let name = Digest::of(copy).to_string();
            std::fs::write(chunks.join(name), copy).expect("written");
        }
        let peers = peers();
        let listener = Door::bind((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let blobs = blobs(folder.path(), &peers);
        let door = Door::new(listener, Arc::clone(&peers), move |digest| blobs.copy(digest));
        tokio::spawn(door.expect("a good key").run());
        let name = HostName::new("source").expect("a plain name");
        let source = ChunkSource { host: name, address, key: peers.key() };
        Host { folder, peers, source }
    }

    /// What a reader gets of a chunk, and how often it blames the host.
    async fn read(reader: &Peers, host: &Host, digest: Digest) -> (Option<Vec<u8>>, usize) {
        let there = std::fs::metadata(host.folder.path().join("chunks").join(digest.to_string()));
        read_of(reader, host, (digest, there.map_or(0, |of| of.len()))).await
    }

    /// The same of one that is said to be so long.
    async fn read_of(
        reader: &Peers,
        host: &Host,
        chunk: (Digest, u64),
    ) -> (Option<Vec<u8>>, usize) {
        let failed = Mutex::new(Vec::new());
        let path = host.folder.path().join("x.part");
        let sources = [host.source.clone()];
        let tell = |of: SourceFailed| failed.lock().expect("whole").push(of);
        let pulled = reader.pull(chunk, &sources, &path, &mut |_| true, &tell).await;
        let read = match pulled.expect("a good disk") {
            Some(mut part) if part.first_missing().is_none() => {
                part.flush().await.expect("a good disk");
                Some(std::fs::read(&path).expect("there"))
            }
            _ => None,
        };
        let _ = std::fs::remove_file(&path);
        (read, failed.into_inner().expect("whole").len())
    }

    #[tokio::test]
    async fn whom_the_broker_names_reads_what_it_names_and_nobody_reads_anything_else() {
        let (one, two) = (vec![1; 3 * PIECE_BYTES + 5], vec![2; 100]);
        let [first, second] = [&one, &two].map(|of| Digest::of(of));
        let host = host(&[&one, &two]).await;
        let (reader, stranger) = (peers(), peers());
        assert_eq!(read(&reader, &host, first).await, (None, 0), "nobody is named");
        let grant = |digest, to: &Peers| {
            let order = ServeChunk { digest, to: to.key(), ms: 60_000 };
            host.peers.grants().add(boottime(), &order);
        };
        grant(first, &reader);
        assert_eq!(read(&reader, &host, first).await, (Some(one.clone()), 0));
        let longer = (first, one.len() as u64 + 1);
        assert_eq!(read_of(&reader, &host, longer).await, (None, 1), "a list of another length");
        assert_eq!(read(&reader, &host, second).await, (None, 0), "it is not named");
        assert_eq!(read(&stranger, &host, first).await, (None, 0), "another key is");
        grant(second, &stranger);
        assert_eq!(read(&stranger, &host, first).await, (None, 0), "for something else");
        assert_eq!(read(&stranger, &host, second).await, (Some(two), 0));
        let gone = Digest::of(b"gone");
        grant(gone, &reader);
        assert_eq!(read(&reader, &host, gone).await, (None, 0), "it is not there");
        // A render comes.
        host.peers.silence();
        assert_eq!(read(&reader, &host, first).await, (None, 0), "nobody is named any more");
        grant(first, &reader);
        assert_eq!(read(&reader, &host, first).await, (Some(one), 0));
    }

    #[tokio::test]
    async fn a_damaged_copy_is_given_to_nobody_and_another_host_is_not_taken_for_it() {
        let copy = vec![3; 2 * PIECE_BYTES];
        let digest = Digest::of(&copy);
        let mut host = host(&[&copy]).await;
        let path = host.folder.path().join("chunks").join(digest.to_string());
        let mut damaged = copy.clone();
        damaged[PIECE_BYTES] ^= 1;
        std::fs::write(&path, damaged).expect("written");
        let reader = peers();
        let order = ServeChunk { digest, to: reader.key(), ms: 60_000 };
        host.peers.grants().add(boottime(), &order);
        assert_eq!(read(&reader, &host, digest).await, (None, 0));
        assert!(!path.exists(), "it is dropped");
        host.source.key = reader.key();
        assert_eq!(read(&reader, &host, digest).await, (None, 1), "it has another key");
    }

    #[tokio::test]
    async fn a_render_cuts_a_reader_in_the_middle() {
        let copy: Vec<u8> = (0..40 * PIECE_BYTES).map(|at| (at / 7) as u8).collect();
        let digest = Digest::of(&copy);
        let host = host(&[&copy]).await;
        let reader = peers();
        let order = ServeChunk { digest, to: reader.key(), ms: 60_000 };
        host.peers.grants().add(boottime(), &order);
        let path = host.folder.path().join("x.part");
        let mut goes_on = |there: u64| {
            if there > 0 {
                host.peers.silence();
            }
            true
        };
        let sources = [host.source.clone()];
        let pulled =
            reader.pull((digest, copy.len() as u64), &sources, &path, &mut goes_on, &|_| {}).await;
        let part = pulled.expect("a good disk").expect("something came");
        assert!(part.bytes_there() < copy.len() as u64, "the rest does not");
    }

    /// A layer that a host keeps.
    async fn layer_of(host: &Host, bytes: Vec<u8>) -> (KeptLayer, ChunkSource) {
        let kept = host.peers.keep_layers(std::iter::once(bytes)).await.expect("there is room");
        (kept[0], host.source.clone())
    }

    fn grant(host: &Host, digest: Digest, to: &Peers) {
        let order = ServeChunk { digest, to: to.key(), ms: 60_000 };
        host.peers.grants().add(boottime(), &order);
    }

    #[tokio::test]
    async fn layers_come_once_to_whom_the_broker_names_in_the_order_of_their_bricks() {
        let [one, two] = [host(&[]).await, host(&[]).await];
        let (reader, stranger) = (peers(), peers());
        // Two bricks of which nothing is seen have the same layer.
        let contents = [vec![1; 300_000], vec![2; 5], vec![3; 7], vec![2; 5]];
        let mut wanted = Vec::new();
        for (host, content) in [&one, &two, &one, &two].into_iter().zip(&contents) {
            wanted.push(layer_of(host, content.clone()).await);
            grant(host, Digest::of(content), &reader);
        }
        let own = [vec![4; 10], Vec::new()];
        let kept = reader.keep_layers(own.clone().into_iter()).await.expect("there is room");
        assert_eq!((kept.len(), kept[1].bytes), (2, 0));
        wanted.push((kept[0], ChunkSource { key: reader.key(), ..one.source.clone() }));
        assert!(stranger.fetch_layers(&wanted[..1]).await.is_err(), "it is not named");
        let fetched = reader.fetch_layers(&wanted).await.expect("they are there");
        assert!(fetched[..4].iter().map(|of| of.as_slice()).eq(&contents), "in their order");
        assert_eq!(*fetched[4], own[0]);
        // Whoever is named once more finds them gone, on a connection that is there already.
        wanted.iter().zip([&one, &two]).for_each(|((of, _), at)| grant(at, of.digest, &reader));
        for at in 0..wanted.len() {
            let gone = reader.fetch_layers(&wanted[at..=at]).await.expect_err("fetched before");
            assert!(gone.contains("layers do not come from source"), "{gone}");
        }
    }

    #[tokio::test]
    async fn a_render_drops_layers_and_what_is_not_as_it_was_named_is_none() {
        let host = host(&[]).await;
        let reader = peers();
        let layer = layer_of(&host, vec![1; 100]).await;
        grant(&host, layer.0.digest, &reader);
        host.peers.silence();
        grant(&host, layer.0.digest, &reader);
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
        assert!(Arc::new(closed).keep_layers(std::iter::once(vec![1])).await.is_none());
    }
}
