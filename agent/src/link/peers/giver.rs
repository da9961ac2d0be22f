//! Gives copies of chunks, and layers of frames, to other agents over connections that stand: those that
//! called the [`Door`](super::Door), and those that are called here because they cannot call.
//!
//! # Invariants
//! - What may not be read is not looked for, whoever has called whom.
//! - A copy is checked against its digest before any of it is sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gleaner_protocol::control::ServeChunk;
use gleaner_protocol::{Digest, PeerKey, Pieces, boottime, codec};
use rustix::fs::{Advice, fadvise};
use tokio::io::{AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsStream;
use tracing::{debug, warn};

use super::Peers;
use super::sockets::Noted;
use super::source::secure;
use super::wire::{PUSH, Request, Status, Wish, head};
use crate::limits::{
    CHUNK_CONNECT_MS_MAX, CHUNK_CONNECT_PAUSE_MS, CHUNK_READER_MS_MAX, CHUNK_READERS_MAX,
    CHUNK_SLICE_BYTES,
};
use crate::link::blobs::CachedBlob;
use crate::metrics::ChunkWay;

/// Finds a copy, which stays as long as the result lives.
type Find = Box<dyn Fn(Digest) -> Option<CachedBlob> + Send + Sync>;

/// See the module's page.
pub(crate) struct Giver {
    pub(super) peers: Arc<Peers>,
    find: Find,
    /// Copies that somebody reads.
    read: Mutex<BTreeMap<Digest, Weak<Copy>>>,
    /// Those who have shown who they are.
    known: Semaphore,
    /// Those who are called, and have not asked for anything yet.
    calls: Semaphore,
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

impl Giver {
    pub(crate) fn new(
        peers: Arc<Peers>,
        find: impl Fn(Digest) -> Option<CachedBlob> + Send + Sync + 'static,
    ) -> Self {
        let places = || Semaphore::new(CHUNK_READERS_MAX);
        let (known, calls) = (places(), places());
        Self { peers, find: Box::new(find), read: Mutex::default(), known, calls }
    }

    /// The broker lets somebody read a copy. Where they cannot call here, they are called.
    pub(crate) fn take_order(self: &Arc<Self>, order: &ServeChunk) {
        if self.peers.is_cut() {
            return;
        }
        self.peers.grants.add(boottime(), order);
        let Some(at) = order.at else { return };
        let (giver, to, cuts) = (Arc::clone(self), order.to, self.peers.cuts());
        tokio::spawn(async move {
            if let Err(error) = giver.push(to, at, cuts).await {
                debug!("{to} at {at} reads no more: {error}");
            }
        });
    }

    /// Calls whoever is to read, and serves them until they leave, or a render comes.
    async fn push(&self, to: PeerKey, at: SocketAddr, cuts: u64) -> io::Result<()> {
        let Ok(call) = self.calls.try_acquire() else { return Ok(()) };
        let limit = Duration::from_millis(CHUNK_CONNECT_MS_MAX);
        // They await us no longer than that, and may hear of us from the broker only in a moment.
        let called = timeout(limit, async {
            let mut pause = Duration::from_millis(CHUNK_CONNECT_PAUSE_MS);
            loop {
                let error = match self.call(to, at, cuts).await {
                    Ok(called) => return Ok(called),
                    Err(error) => error,
                };
                if self.peers.cuts() != cuts {
                    return Err(error);
                }
                debug!("{to} at {at} does not await this host: {error}");
                sleep(pause).await;
                pause *= 3;
            }
        });
        let (stream, _noted, first) = called.await??;
        drop(call);
        let Ok(_place) = self.known.try_acquire() else { return Ok(()) };
        self.serve(stream, &to, Some(first)).await
    }

    /// Calls whoever is to read in one try; what they ask for first, which shows that they awaited it.
    async fn call(
        &self,
        to: PeerKey,
        at: SocketAddr,
        cuts: u64,
    ) -> io::Result<(TlsStream<TcpStream>, Noted, Request)> {
        if self.peers.cuts() != cuts {
            return Err(render_comes());
        }
        // From now on a render cuts it.
        let (stream, noted) = self.peers.sockets.call(at).await?;
        let mut stream = secure(&self.peers.key, to, PUSH, stream).await?;
        let first = Request::read(&mut stream).await?;
        Ok((stream, noted, first.ok_or(io::ErrorKind::UnexpectedEof)?))
    }

    /// Serves somebody who has called, where there is a place.
    pub(super) async fn receive(
        &self,
        stream: TlsStream<TcpStream>,
        reader: &PeerKey,
    ) -> io::Result<()> {
        let Ok(_place) = self.known.try_acquire() else { return Ok(()) };
        self.serve(stream, reader, None).await
    }

    /// Answers one reader until it leaves; `first` is what it has asked for already.
    async fn serve(
        &self,
        stream: TlsStream<TcpStream>,
        reader: &PeerKey,
        first: Option<Request>,
    ) -> io::Result<()> {
        let (mut from, mut to) = split(stream);
        let limit = Duration::from_millis(CHUNK_READER_MS_MAX);
        let (mut copy, mut first) = (None::<Arc<Copy>>, first);
        loop {
            let request = match first.take() {
                Some(request) => Some(request),
                None => timeout(limit, Request::read(&mut from)).await??,
            };
            let Some(Request { digest, wish }) = request else { return Ok(()) };
            if !self.peers.grants.allow(boottime(), reader, &digest) {
                debug!("{reader} may not read chunk {digest}");
                let refused = async {
                    to.write_all(&head(Status::NotAllowed, 0)).await?;
                    to.flush().await
                };
                timeout(limit, refused).await??;
                if !self.peers.grants.knows(boottime(), reader) {
                    // It may read nothing any more.
                    return Ok(());
                }
                continue;
            }
            if wish == Wish::Layer {
                self.give_layer(&mut to, reader, digest).await?;
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
        let bytes = layer.as_deref().unwrap_or_default();
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
            false => Err(render_comes()),
        }
    }
}

fn render_comes() -> io::Error {
    io::Error::other("a render comes")
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

    use gleaner_protocol::PIECE_BYTES;
    use gleaner_protocol::control::ChunkSource;
    use gleaner_protocol::control::SourceFault::DidNotCall;

    use super::super::Door;
    use super::super::source::{End, Source};
    use super::super::trial_host::{Host, peers, read};
    use super::*;

    /// A chunk of many pieces.
    fn content() -> Vec<u8> {
        (0..40 * PIECE_BYTES).map(|at| (at / 7) as u8).collect()
    }

    /// What the broker says to a holder of a chunk that `reader` awaits.
    fn order(digest: Digest, reader: &Host) -> ServeChunk {
        ServeChunk { digest, to: reader.peers.key(), at: Some(reader.address), ms: 60_000 }
    }

    #[tokio::test]
    async fn a_host_that_nobody_can_call_calls_with_the_chunks_that_the_broker_names() {
        let (one, two) = (content(), vec![2; 100]);
        let [first, second] = [&one, &two].map(|of| (Digest::of(of), of.len() as u64));
        let (holder, reader) = (Host::with(&[&one, &two]).await, Host::with(&[]).await);
        // It calls before it is awaited, and again.
        let listener = Door::bind((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a port");
        let at = Some(listener.local_addr().expect("bound"));
        holder.giver.take_order(&ServeChunk { at, ..order(first.0, &reader) });
        drop(listener.accept().await.expect("it calls"));
        let door = Door::new(listener, Arc::clone(&reader.giver)).expect("a good key");
        tokio::spawn(door.run());
        let pulled = read(&reader.peers, holder.caller(), first).await;
        assert!(pulled == (Some(one), vec![]), "blamed: {:?}", pulled.1);
        // Who may read one chunk may not read another, whoever has called.
        let order = ServeChunk { digest: Digest::of(b"gone"), ..order(second.0, &reader) };
        holder.giver.take_order(&order);
        assert_eq!(read(&reader.peers, holder.caller(), second).await, (None, vec![]));
        // Two chunks at once, over a connection each.
        for (digest, _) in [first, second] {
            holder.giver.take_order(&ServeChunk { digest, ..order });
        }
        let pulled = tokio::join!(
            read(&reader.peers, holder.caller(), second),
            read(&reader.peers, holder.caller(), first),
        );
        assert_eq!(pulled.0, (Some(two), vec![]));
        assert!(pulled.1.0.is_some() && pulled.1.1.is_empty());
    }

    #[tokio::test]
    async fn who_is_not_awaited_is_let_in_by_nobody_and_who_does_not_call_is_told() {
        let copy = vec![1; 100];
        let chunk = (Digest::of(&copy), copy.len() as u64);
        let (holder, reader) = (Host::with(&[&copy]).await, Host::with(&[]).await);
        let calls = async |to: PeerKey| {
            let called = holder.giver.call(to, reader.address, holder.peers.cuts()).await;
            called.map(drop).map_err(|error| error.kind())
        };
        // TLS refuses a key so.
        let refused = Err(io::ErrorKind::InvalidData);
        let key = reader.peers.key();
        let called = calls(key).await;
        assert!(called.is_err() && called != refused, "{called:?}: nobody is awaited");
        // It may read there, which is something else.
        reader.lets(&holder.peers, chunk.0);
        let called = calls(key).await;
        assert!(called.is_err() && called != refused, "{called:?}: known, and hung up on");
        reader.peers.silence();
        let stranger = ChunkSource { key: peers().key(), ..holder.caller() };
        let tries = async {
            while !reader.peers.awaited.are_any() {
                tokio::task::yield_now().await;
            }
            assert_eq!(calls(key).await, refused, "another is awaited");
            assert_eq!(calls(stranger.key).await, refused, "another answers");
        };
        let (got, ()) = tokio::join!(read(&reader.peers, stranger.clone(), chunk), tries);
        assert_eq!(got, (None, vec![DidNotCall]), "the stranger does not call");
        // As long as somebody awaits it, it is let in.
        for asks in [true, false] {
            let handed = reader.peers.awaited.wait_for(holder.peers.key());
            let asked = async {
                let mut source = handed.await.expect("it calls");
                let request = Request { digest: chunk.0, wish: Wish::List };
                assert!(!asks || source.ask(request).await.is_ok());
            };
            let (called, ()) = tokio::join!(calls(key), asked);
            assert_eq!(called.is_ok(), asks);
        }
        drop(reader.peers.awaited.wait_for(holder.peers.key()));
        let called = calls(key).await;
        assert!(called.is_err() && called != refused, "{called:?}: nobody is awaited any more");
    }

    #[tokio::test]
    async fn a_render_on_either_host_cuts_the_one_that_called() {
        let copy = content();
        let chunk = (Digest::of(&copy), copy.len() as u64);
        for renders in 0..2 {
            let (holder, reader) = (Host::with(&[&copy]).await, Host::with(&[]).await);
            let path = reader.folder.path().join("x.part");
            let silence = || [&holder, &reader][renders].peers.silence();
            let mut goes_on = |there: u64| {
                if there > 0 {
                    silence();
                }
                true
            };
            holder.lets(&reader.peers, chunk.0);
            let pushed = holder.giver.push(reader.peers.key(), reader.address, holder.peers.cuts());
            let sources = [holder.caller()];
            let pulled = reader.peers.pull(chunk, &sources, &path, &mut goes_on, &|_| {});
            let (pushed, pulled) = tokio::join!(pushed, pulled);
            assert!(pushed.is_err(), "it is cut");
            let part = pulled.expect("a good disk").expect("something came");
            assert!(part.bytes_there() < chunk.1, "the rest does not come");
        }
    }

    #[tokio::test]
    async fn a_render_ends_calls_and_waits_for_them_before_anything_came() {
        let copy = content();
        let chunk = (Digest::of(&copy), copy.len() as u64);
        let (holder, reader) = (Host::with(&[&copy]).await, Host::with(&[]).await);
        // It would be let in.
        let cuts = holder.peers.cuts();
        let awaited = reader.peers.awaited.wait_for(holder.peers.key());
        holder.peers.silence();
        let pushed = holder.giver.push(reader.peers.key(), reader.address, cuts).await;
        assert!(pushed.is_err_and(|error| error.to_string() == "a render comes"));
        drop(awaited);
        // Whoever waits for a call hears at once that none is taken.
        let path = reader.folder.path().join("x.part");
        let mut goes_on = |_| {
            if reader.peers.awaited.are_any() {
                reader.peers.silence();
            }
            true
        };
        let blames = |of| panic!("{of:?}");
        let sources = [holder.caller()];
        let pulled = reader.peers.pull(chunk, &sources, &path, &mut goes_on, &blames).await;
        assert!(pulled.expect("a good disk").is_none());
        // Before the main loop knows of a hook nothing begins anew.
        holder.peers.note_cut();
        holder.giver.take_order(&order(chunk.0, &reader));
        assert!(!holder.peers.grants.are_any(boottime()), "a render comes");
        assert!(holder.peers.take_cut());
        holder.giver.take_order(&order(chunk.0, &reader));
        assert!(holder.peers.grants.are_any(boottime()));
    }

    #[tokio::test]
    async fn who_is_only_awaited_asks_for_nothing() {
        let copy = vec![1; 100];
        let (caller, host) = (peers(), Host::with(&[&copy]).await);
        let _handed = host.peers.awaited.wait_for(caller.key());
        let mut source = Source::call(&caller, &host.source()).await.expect("it is let in");
        let request = Request { digest: Digest::of(&copy), wish: Wish::List };
        let _ = source.ask(request).await;
        let answer = source.piece(&caller.pace).await.expect_err("it is hung up on");
        // What may not be read would be answered.
        assert!(matches!(&answer, End::Gone(why) if !why.contains("may not")), "{answer:?}");
        assert_eq!(host.giver.known.available_permits(), CHUNK_READERS_MAX, "and takes no place");
    }
}
