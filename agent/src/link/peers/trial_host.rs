//! A host with copies of chunks, for tests of how these travel.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use gleaner_identity::{Credentials, KeyPair, Trust, client_config};
use gleaner_protocol::control::{ChunkSource, ServeChunk, SourceFailed, SourceFault};
use gleaner_protocol::{AgentSecret, Digest, HostName};
use reqwest::Client;
use tokio::sync::mpsc;

use super::{Door, Giver, Peers};
use crate::link::blobs::Blobs;
use crate::metrics::Metrics;

/// See the module's page.
pub(super) struct Host {
    pub(super) folder: tempfile::TempDir,
    pub(super) peers: Arc<Peers>,
    pub(super) giver: Arc<Giver>,
    /// Where it answers.
    pub(super) address: SocketAddr,
}

/// An agent that has nothing.
pub(super) fn peers() -> Arc<Peers> {
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

impl Host {
    /// One that has these copies, and answers those who call.
    pub(super) async fn with(copies: &[&[u8]]) -> Self {
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
        let giver = Arc::new(Giver::new(Arc::clone(&peers), move |digest| blobs.copy(digest)));
        let door = Door::new(listener, Arc::clone(&giver));
        tokio::spawn(door.expect("a good key").run());
        Self { folder, peers, giver, address }
    }

    /// As the broker names it where it is called.
    pub(super) fn source(&self) -> ChunkSource {
        ChunkSource { address: Some(self.address), ..self.caller() }
    }

    /// As the broker names it where it calls.
    pub(super) fn caller(&self) -> ChunkSource {
        let host = HostName::new("source").expect("a plain name");
        ChunkSource { host, address: None, key: self.peers.key() }
    }

    /// Lets somebody read a copy.
    pub(super) fn lets(&self, reader: &Peers, digest: Digest) {
        let order = ServeChunk { digest, to: reader.key(), at: None, ms: 60_000 };
        self.giver.take_order(&order);
    }
}

/// What a reader gets of a chunk, and what it blames its source for.
pub(super) async fn read(
    reader: &Peers,
    source: ChunkSource,
    chunk: (Digest, u64),
) -> (Option<Vec<u8>>, Vec<SourceFault>) {
    let failed = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.part");
    let tell = |of: SourceFailed| failed.lock().expect("whole").push(of.fault);
    let pulled = reader.pull(chunk, &[source], &path, &mut |_| true, &tell).await;
    let read = match pulled.expect("a good disk") {
        Some(mut part) if part.first_missing().is_none() => {
            part.flush().await.expect("a good disk");
            Some(std::fs::read(&path).expect("there"))
        }
        _ => None,
    };
    (read, failed.into_inner().expect("whole"))
}
