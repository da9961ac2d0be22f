//! Inputs and outputs: contents by their address, to and from the broker.
//!
//! # Invariants
//! - What is in the cache has the content that its name says; it is checked as it is fetched,
//!   and by the runner once more as it is used.
//! - The cache keeps to its size, except for what running replicas use. What was compiled of a
//!   module lies in it too.

mod cache;
mod copies;
mod frames;
mod part;
mod pieces;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gleaner_identity::Credentials;
use gleaner_protocol::limits::{BLOB_BYTES_MAX, SAVED_STATE_BYTES_MAX};
use gleaner_protocol::{AGENT_SECRET_HEADER, AgentSecret, Digest, Span};
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, Client, Response, StatusCode};
use thiserror::Error;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::peers::Peers;
use crate::limits::{TRANSFER_STALL_MS_MAX, TRANSFER_TRIES_MAX};
use cache::Cache;
pub(crate) use cache::CachedBlob;
pub(crate) use copies::ChunkNews;
pub(crate) use part::Part;
use pieces::Way;

/// The broker's blobs.
pub(crate) struct Blobs {
    client: Client,
    /// `{broker}/v1/blobs/`
    base: String,
    /// `{broker}/v1/states/`
    states: String,
    /// `{broker}/v1/frames/`
    frames: String,
    credentials: Credentials,
    /// Shows that it is the agent whose link stands.
    secret: AgentSecret,
    cache: Arc<Cache>,
    /// Copies of chunks, where this host keeps some.
    chunks: Option<Arc<Cache>>,
    /// Other agents.
    peers: Option<Arc<Peers>>,
    /// Bytes that went over the network, until somebody takes note of them.
    carried: Arc<AtomicU64>,
}

/// Why a content could not be brought from or to the broker.
#[derive(Debug, Error)]
pub(crate) enum BlobError {
    /// The broker has no such content, or does not want it: trying again is no use.
    #[error("the broker answers {status} for content {digest}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// Which content.
        digest: Digest,
    },
    /// It could not be transferred in several tries.
    #[error("content {digest} could not be transferred: {reason}")]
    Transfer {
        /// Which content.
        digest: Digest,
        /// What happened in the last try.
        reason: String,
    },
    /// This host's disk failed.
    #[error("cannot keep content {digest} in {path}: {source}", path = path.display())]
    Disk {
        /// Which content.
        digest: Digest,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Whether another try may help.
enum Try {
    Again(String),
    Never(BlobError),
}

impl Try {
    /// Of one that was the only one.
    fn of(self, digest: Digest) -> BlobError {
        match self {
            Self::Again(reason) => BlobError::Transfer { digest, reason },
            Self::Never(error) => error,
        }
    }
}

/// Counts tries and waits between them, longer each time.
struct Retry {
    digest: Digest,
    tries: u32,
    pause: Span,
}

impl Retry {
    fn new(digest: Digest) -> Self {
        Self { digest, tries: 0, pause: Span::from_millis(100) }
    }

    /// Returns when another try is due, or why there will be none.
    async fn after(&mut self, failed: Try) -> Result<(), BlobError> {
        let digest = self.digest;
        self.tries += 1;
        match failed {
            Try::Never(error) => return Err(error),
            Try::Again(reason) if self.tries == TRANSFER_TRIES_MAX => {
                return Err(BlobError::Transfer { digest, reason });
            }
            Try::Again(reason) => debug!("content {digest}: {reason}; trying again"),
        }
        sleep(self.pause.into()).await;
        self.pause = self.pause.times(3);
        Ok(())
    }
}

impl Blobs {
    /// `folder` is the cache's, for this agent alone.
    pub(crate) fn new(
        client: Client,
        broker: &str,
        credentials: Credentials,
        secret: AgentSecret,
        folder: PathBuf,
        cache_bytes: u64,
    ) -> std::io::Result<Self> {
        let broker = broker.trim_end_matches('/');
        let (base, states) = (format!("{broker}/v1/blobs/"), format!("{broker}/v1/states/"));
        let frames = format!("{broker}/v1/frames/");
        let cache = Arc::new(Cache::open(folder, cache_bytes)?);
        Ok(Self {
            client,
            base,
            states,
            frames,
            credentials,
            secret,
            cache,
            chunks: None,
            peers: None,
            carried: Arc::default(),
        })
    }

    /// Counts the bytes that go over the network; whoever takes note of them sets it back.
    pub(crate) fn carried(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.carried)
    }

    /// A content in the cache, fetched if need be. It stays there as long as the result lives.
    pub(crate) async fn fetch(&self, digest: Digest) -> Result<CachedBlob, BlobError> {
        self.fetch_into(&self.cache, digest, Way::AtOnce, &mut |_| true).await
    }

    /// The same in one of the caches, copies of chunks as `way` says. `goes_on` is told how many bytes have
    /// come, and says whether to go on.
    async fn fetch_into(
        &self,
        cache: &Arc<Cache>,
        digest: Digest,
        way: Way<'_>,
        goes_on: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<CachedBlob, BlobError> {
        if let Some(blob) = Cache::pin(cache, digest) {
            return Ok(blob);
        }
        // One fetch of a content at a time; whoever waited finds it there.
        let turn = cache.turn(digest);
        let _turn = turn.lock().await;
        if let Some(blob) = Cache::pin(cache, digest) {
            return Ok(blob);
        }
        let mut retry = Retry::new(digest);
        loop {
            let fetched = match cache.is_told() {
                true => {
                    // Those that failed once are not asked again.
                    let way = if retry.tries == 0 { way } else { way.without_hosts() };
                    self.fetch_pieces(cache, digest, way, goes_on).await
                }
                false => self.fetch_once(cache, digest, goes_on).await,
            };
            match fetched {
                Ok(blob) => return Ok(blob),
                Err(failed) => retry.after(failed).await?,
            }
        }
    }

    /// Brings a file to the broker.
    pub(crate) async fn store(&self, digest: Digest, path: &Path) -> Result<(), BlobError> {
        let mut retry = Retry::new(digest);
        loop {
            match self.store_once(digest, path).await {
                Ok(()) => return Ok(()),
                Err(failed) => retry.after(failed).await?,
            }
        }
    }

    /// Brings to the broker what a replica saved, in the place of what it saved before, in one try:
    /// another follows anyway.
    pub(crate) async fn save_state(
        &self,
        state: Digest,
        replaces: Option<Digest>,
        bytes: Vec<u8>,
    ) -> Result<(), BlobError> {
        let carried = bytes.len() as u64;
        let replaces = replaces.map_or_else(String::new, |old| format!("?replaces={old}"));
        let request = self.client.put(format!("{}{state}{replaces}", self.states)).body(bytes);
        let saved = async {
            let request = self.authorised(request).await?;
            let response = within_stall(request.send()).await?.map_err(again)?;
            self.carried.fetch_add(carried, Ordering::Relaxed);
            check_status(state, response).map(drop)
        };
        saved.await.map_err(|failed| failed.of(state))
    }

    /// What a replica saved, on whatever host, in one try: who waits for it could compute.
    pub(crate) async fn fetch_state(&self, state: Digest) -> Result<Vec<u8>, BlobError> {
        let request = self.client.get(format!("{}{state}", self.states));
        let fetched = async {
            let request = self.authorised(request).await?;
            let response = within_stall(request.send()).await?.map_err(again)?;
            let mut response = check_status(state, response)?;
            let mut bytes = Vec::new();
            while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
                self.carried.fetch_add(part.len() as u64, Ordering::Relaxed);
                bytes.extend_from_slice(&part);
                if bytes.len() as u64 > SAVED_STATE_BYTES_MAX {
                    return Err(Try::Again(format!(
                        "it is longer than {SAVED_STATE_BYTES_MAX} bytes"
                    )));
                }
            }
            match Digest::of(&bytes) == state {
                true => Ok(bytes),
                false => Err(Try::Again("what came has another content".into())),
            }
        };
        fetched.await.map_err(|failed| failed.of(state))
    }

    async fn fetch_once(
        &self,
        cache: &Arc<Cache>,
        digest: Digest,
        goes_on: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<CachedBlob, Try> {
        let request = self.authorised(self.client.get(self.address(digest))).await?;
        let response = within_stall(request.send()).await?.map_err(again)?;
        let mut response = check_status(digest, response)?;
        let path = cache.unfinished(digest);
        let disk = |source| Try::Never(BlobError::Disk { digest, path: path.clone(), source });
        let mut file = File::create(&path).await.map_err(disk)?;
        let mut bytes = 0;
        while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
            bytes += part.len() as u64;
            self.carried.fetch_add(part.len() as u64, Ordering::Relaxed);
            if bytes > BLOB_BYTES_MAX {
                return Err(Try::Never(BlobError::Transfer {
                    digest,
                    reason: format!("it is longer than {BLOB_BYTES_MAX} bytes"),
                }));
            }
            if !goes_on(bytes) {
                let reason = "it comes too slowly".to_owned();
                return Err(Try::Never(BlobError::Transfer { digest, reason }));
            }
            file.write_all(&part).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        drop(file);
        let cache = Arc::clone(cache);
        tokio::task::spawn_blocking(move || Cache::enter(&cache, digest, bytes))
            .await
            .map_err(|error| Try::Again(error.to_string()))?
            .map_err(disk)?
            .ok_or_else(|| Try::Again("what came has another content".into()))
    }

    async fn store_once(&self, digest: Digest, path: &Path) -> Result<(), Try> {
        let disk = |source| Try::Never(BlobError::Disk { digest, path: path.to_owned(), source });
        let file = File::open(path).await.map_err(disk)?;
        let bytes = file.metadata().await.map_err(disk)?.len();
        let request = self.client.put(self.address(digest)).header(CONTENT_LENGTH, bytes);
        let request = self.authorised(request.body(Body::from(file))).await?;
        // The whole transfer: time to begin, and a slow network's time for the bytes.
        let limit = Duration::from_millis(TRANSFER_STALL_MS_MAX + bytes / 100);
        let response = timeout(limit, request.send())
            .await
            .map_err(|_| Try::Again("it took too long".into()))?
            .map_err(again)?;
        self.carried.fetch_add(bytes, Ordering::Relaxed);
        check_status(digest, response).map(|_| ())
    }

    /// The content, if it is in the cache.
    pub(crate) fn cached(&self, digest: Digest) -> Option<CachedBlob> {
        Cache::pin(&self.cache, digest)
    }

    /// Takes a file of this host into the cache, away from `path`; none where it holds something
    /// else.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn adopt(
        &self,
        path: &Path,
        digest: Digest,
        bytes: u64,
    ) -> std::io::Result<Option<CachedBlob>> {
        std::fs::rename(path, self.cache.unfinished(digest))?;
        Cache::enter(&self.cache, digest, bytes)
    }

    /// A lock under a name, for what only one is to do at a time.
    pub(crate) fn turn(&self, name: Digest) -> Arc<tokio::sync::Mutex<()>> {
        self.cache.turn(name)
    }

    fn address(&self, digest: Digest) -> String {
        format!("{}{digest}", self.base)
    }

    async fn authorised(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::RequestBuilder, Try> {
        let request = request.header(AGENT_SECRET_HEADER, self.secret.to_text());
        let token = self.credentials.bearer().await;
        Ok(match token.map_err(|error| Try::Again(error.to_string()))? {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }
}

async fn within_stall<T>(step: impl Future<Output = T>) -> Result<T, Try> {
    timeout(Duration::from_millis(TRANSFER_STALL_MS_MAX), step)
        .await
        .map_err(|_| Try::Again("it stands still".into()))
}

fn again(error: reqwest::Error) -> Try {
    // The cause says more than the outer error, which only names the address.
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    Try::Again(cause.unwrap_or_else(|| error.to_string()))
}

/// Without a link the broker does not know this agent; the link may stand again soon.
fn is_passing(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED)
}

fn check_status(digest: Digest, response: Response) -> Result<Response, Try> {
    let status = response.status();
    if status.is_success() {
        Ok(response)
    } else if status.is_server_error() || is_passing(status) {
        Err(Try::Again(format!("the broker answers {status}")))
    } else {
        Err(Try::Never(BlobError::Refused { status, digest }))
    }
}
