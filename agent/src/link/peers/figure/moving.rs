//! A host that fetches chunk after chunk from another one on this machine, for `gleaner bench
//! move-interference`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gleaner_identity::KeyPair;
use tokio::fs::remove_file;
use tokio::task::JoinSet;

use super::{Manner, Measured, MeasuredSource, Reader, Serving};
use crate::config::ChunkSettings;
use crate::link::peers::Peers;

/// Length of each chunk: as that of datasets where nobody says otherwise.
const CHUNK_BYTES: usize = 16 << 20;

/// See the module's page. It ends when this is dropped.
pub struct Moving {
    peers: Arc<Peers>,
    _tasks: JoinSet<()>,
}

impl Moving {
    /// Begins, at the rate of an owner who says nothing of it; chunks lie in `folder` one after the other.
    ///
    /// # Errors
    /// This machine has no key or no port left for it.
    pub async fn start(folder: &Path) -> io::Result<Self> {
        let mut tasks = JoinSet::new();
        let bytes_per_s = ChunkSettings::default().mib_per_s << 20;
        let reader = Reader::open(bytes_per_s, &mut tasks).await?;
        let content = (0..CHUNK_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8);
        let content = Arc::new(Measured::of(content.collect())?);
        let source = MeasuredSource { bytes_per_s: u64::MAX, manner: Manner::Right, calls: false };
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let serving = Serving::start(key, source, &content, &reader, &mut tasks).await?;
        let (peers, path) = (reader.peers, folder.join("chunk"));
        let fetches = Arc::clone(&peers);
        tasks.spawn(async move {
            let (named, chunk) = ([serving.named(0)], (content.digest, CHUNK_BYTES as u64));
            let cuts = fetches.cuts();
            let mut goes_on = |_| fetches.cuts() == cuts;
            // A render ends it, and so does a disk that is full.
            while fetches.pull(chunk, &named, &path, &mut goes_on, &|_| {}).await.is_ok() {
                let _ = remove_file(&path).await;
            }
        });
        Ok(Self { peers, _tasks: tasks })
    }

    /// Bytes that have come.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.peers.all_carried().load(Ordering::Relaxed)
    }

    /// A render's preflight hook calls.
    pub fn cut(&self) {
        self.peers.note_cut();
        self.peers.hang_up();
    }
}
