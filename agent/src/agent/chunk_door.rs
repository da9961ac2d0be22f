//! How this host and others read each other's copies of chunks: set up at the agent's start.

use std::sync::Arc;

use gleaner_identity::KeyPair;
use gleaner_protocol::control::ChunkPeer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::RunError;
use crate::config::{Config, ConfigError};
use crate::link::blobs::Blobs;
use crate::link::peers::{Door, Giver, Peers};
use crate::metrics::Metrics;

/// Other agents, and where they reach this one.
pub(super) struct ChunkDoor {
    pub(super) peers: Arc<Peers>,
    listener: Option<TcpListener>,
}

impl ChunkDoor {
    /// Takes the address that the owner names, if any. The key is the enrolled one, or one of this life.
    pub(super) async fn open(
        config: &Config,
        keeps_copies: bool,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RunError> {
        let key = config.key()?.map_or_else(KeyPair::generate, Ok).map_err(ConfigError::Key)?;
        let listener = match config.chunks.listen {
            None => None,
            Some(address) if !keeps_copies => {
                warn!(
                    "nobody will read copies at {address}: this host keeps none (`disk_mib` in [chunks])"
                );
                None
            }
            Some(address) => {
                let bound = Door::bind(address).await;
                let listener = bound.map_err(|source| RunError::ChunkDoor { address, source })?;
                if let Ok(address) = listener.local_addr() {
                    info!("other agents may read copies of chunks at {address} as the broker says");
                }
                Some(listener)
            }
        };
        let peers = Peers::new(key, config.chunks.mib_per_s << 20, metrics);
        Ok(Self { peers: Arc::new(peers.open(listener.is_some())), listener })
    }

    /// How others know this agent.
    pub(super) fn peer(&self) -> ChunkPeer {
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let port = address.map(|address| address.port());
        ChunkPeer { key: self.peers.key(), port, ip: None }
    }

    /// What gives others what is kept; and what lets them call, where the owner wants it.
    pub(super) fn serve(
        self,
        blobs: &Arc<Blobs>,
    ) -> Result<(Arc<Giver>, Option<JoinHandle<()>>), RunError> {
        let blobs = Arc::clone(blobs);
        let giver = Arc::new(Giver::new(self.peers, move |digest| blobs.copy(digest)));
        let Some(listener) = self.listener else { return Ok((giver, None)) };
        let door = Door::new(listener, Arc::clone(&giver)).map_err(RunError::ChunkKey)?;
        Ok((giver, Some(tokio::spawn(door.run()))))
    }
}
