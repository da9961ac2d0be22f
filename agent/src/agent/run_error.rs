//! Why an agent could not start, or has ended.

use std::net::SocketAddr;
use std::path::PathBuf;

use gleaner_hooks::RunDirError;
use thiserror::Error;

use super::work_dir::WorkDirError;
use crate::config::ConfigError;
use crate::host::open_files::TooFewFiles;
use crate::host::worker_watch::WorkerWatchError;
use crate::release::releaser::SocketError;
use gleaner_identity::TrustError;

/// Why an agent could not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Where others were to read copies of chunks.
    #[error(
        "cannot listen on {address} for other agents ({source}): choose another address or port \
         (`listen` in [chunks], --chunk-listen), or leave it out"
    )]
    ChunkDoor {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The key that is shown to them.
    #[error("TLS with other agents cannot be set up: {0}")]
    ChunkKey(rustls::Error),
    /// Its folder shared with the hooks.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Its own folder, or another agent.
    #[error(transparent)]
    WorkDir(#[from] WorkDirError),
    /// A folder of it is not on this machine.
    #[error(
        "{what}: {} is on a network file system, and a render would wait for its server: name a \
         folder on a local disk of this host", path.display()
    )]
    Network {
        /// The key of the configuration.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Whom it trusts.
    #[error(transparent)]
    Tls(#[from] TrustError),
    /// Its HTTP client.
    #[error("cannot make an HTTP client: {0}")]
    HttpClient(String),
    /// The thread that answers hooks ended. It should not.
    #[error(
        "the thread that answers hooks has ended, so the agent stopped all its work: start it again, and report what the log says of it"
    )]
    ReleaseThread,
    /// The thread that looks after the owner's wishes.
    #[error("cannot start to look after the owner's wishes: {0}")]
    Observer(std::io::Error),
    /// What clears up after it.
    #[error("cannot start the process that clears up after an agent that is killed: {0}")]
    Cleaner(std::io::Error),
    /// What starts its runners.
    #[error("cannot start the process that starts runners: {0}")]
    Spawner(std::io::Error),
    /// Its limit of open files.
    #[error(transparent)]
    OpenFiles(#[from] TooFewFiles),
    /// A thread of these ended by itself.
    #[error("a thread that looks after the owner's wishes has ended, so the agent has too")]
    ObserverThread,
    /// Watching for renders that no hook announces.
    #[error(transparent)]
    WorkerWatch(#[from] WorkerWatchError),
    /// That ended by itself.
    #[error("the thread that watches the farm's workers has ended, so the agent has too")]
    WorkerThread,
    /// Its timer.
    #[error("cannot make a timer: {0}")]
    Timer(std::io::Error),
}
