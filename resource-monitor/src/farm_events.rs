//! A farm that says by MQTT that something has changed, so that it is polled at once.
//!
//! Flamenco's Manager publishes each change of a Worker under `PREFIX/workers` and of a task under
//! `PREFIX/jobs/JOB` (`internal/manager/eventbus/topics.go` of Flamenco 3). No word of such a message
//! is believed, or even read: that it came is the news, and the poll that follows says what is so.
//!
//! # Invariants
//! - A message decides nothing. It has the farm polled sooner than it would have been.
//! - Polls in turn go on whatever becomes of this: who is deaf here learns of everything by them.
//! - Messages are not kept: however many come, one poll waits at most.

mod address;
mod board;
mod session;
mod trust;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use gleaner_identity::{Trust, client_config};
use gleaner_protocol::boottime;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::limits::{EVENTS_PAUSE_MAX, EVENTS_PAUSE_MIN, EVENTS_PING_INTERVAL, EVENTS_TIMEOUT};
use session::{Login, SessionError};

pub(crate) use address::EventsAddress;
pub use address::EventsAddressError;
pub(crate) use board::EventBoard;
pub use trust::TrustError;

/// The link to an MQTT broker that a farm publishes to.
pub(crate) struct FarmEvents {
    address: EventsAddress,
    password: Option<String>,
    /// Of whom certificates are accepted, where the address asks for TLS.
    tls: Option<Arc<ClientConfig>>,
    /// What no other client of that broker is called.
    client_id: String,
}

/// Why nothing is heard.
#[derive(Debug, Error)]
enum LinkError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("no connection within {} s", EVENTS_TIMEOUT.as_millis() / 1_000)]
    TooSlow,
    #[error("{0} can have no certificate")]
    Name(String),
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl FarmEvents {
    /// To log in by the password in a file, and to trust the certificates of another instead of the
    /// system's; `seed` is no other client's.
    ///
    /// # Errors
    /// A file that cannot be read or makes no sense.
    pub(crate) fn new(
        address: EventsAddress,
        password_file: Option<&Path>,
        ca_file: Option<&Path>,
        seed: u64,
    ) -> Result<Self, TrustError> {
        let password = password_file.map(trust::read_password).transpose()?;
        let tls = address.is_secure().then(|| client_config(Trust::of(ca_file))).transpose()?;
        let tls = tls.map(Arc::new);
        // Not longer than what every broker has to take.
        Ok(Self { address, password, tls, client_id: format!("gleaner{seed:016x}") })
    }

    /// Listens for ever, with growing pauses between connections that do not last.
    pub(crate) async fn run(self, board: &EventBoard) {
        board.begin(self.address.to_string());
        let mut pause = EVENTS_PAUSE_MIN;
        loop {
            let begun = boottime();
            let Err(error) = self.listen(board).await;
            board.lost(error.to_string());
            if boottime().since(begun) > EVENTS_PAUSE_MAX {
                pause = EVENTS_PAUSE_MIN;
            }
            tokio::time::sleep(pause.into()).await;
            pause = pause.times(2).min(EVENTS_PAUSE_MAX);
        }
    }

    /// One connection, until it ends.
    async fn listen(&self, board: &EventBoard) -> Result<Infallible, LinkError> {
        let login = Login {
            client_id: &self.client_id,
            user: self.address.user(),
            password: self.password.as_deref(),
            ping_every: EVENTS_PING_INTERVAL,
        };
        let topics = self.address.topics();
        let connecting = TcpStream::connect((self.address.host(), self.address.port()));
        let stream = timeout(EVENTS_TIMEOUT.into(), connecting)
            .await
            .map_err(|_| LinkError::TooSlow)?
            .map_err(LinkError::Connect)?;
        let Some(tls) = &self.tls else {
            return Ok(session::run(stream, &login, &topics, board).await?);
        };
        let host = self.address.host();
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| LinkError::Name(host.to_owned()))?;
        let shaking = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        let stream = timeout(EVENTS_TIMEOUT.into(), shaking)
            .await
            .map_err(|_| LinkError::TooSlow)?
            .map_err(LinkError::Tls)?;
        Ok(session::run(stream, &login, &topics, board).await?)
    }
}
