//! Taking an address, where that is allowed.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::access::Access;
use crate::guard::{Guard, Known, Sessions};
use crate::limits::{CONNECTIONS_MAX, HTTP_HEAD_TIME_MAX, SHUTDOWN_GRACE, TLS_HANDSHAKE_TIME_MAX};
use crate::tls::{self, TlsFiles};

/// Where to listen, and how whoever speaks must prove themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificate and key, for TLS.
    pub tls: Option<TlsFiles>,
    /// Whether people can be told apart by their keys.
    pub knows_keys: bool,
    /// Whether they have to show them on loopback, too.
    pub requires_keys: bool,
}

/// Bounds of a listener that tests and unusual places set otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Connections at once.
    pub connections_max: usize,
    /// How long a request's head may take, and a connection may be idle.
    pub head_time_max: Duration,
    /// How long a TLS handshake may take.
    pub handshake_time_max: Duration,
    /// How long open requests may go on after the end was announced.
    pub grace: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            head_time_max: HTTP_HEAD_TIME_MAX,
            handshake_time_max: TLS_HANDSHAKE_TIME_MAX,
            grace: SHUTDOWN_GRACE,
        }
    }
}

impl ListenConfig {
    /// From what is configured.
    ///
    /// # Errors
    /// Only one of certificate and key.
    pub fn new(
        listen: SocketAddr,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
    ) -> Result<Self, ServeError> {
        let tls = match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (None, None) => None,
            _ => return Err(ServeError::HalfTls),
        };
        Ok(Self { listen, tls, knows_keys: false, requires_keys: false })
    }

    /// Whether other machines can reach the address.
    #[must_use]
    pub fn is_beyond_loopback(&self) -> bool {
        !self.listen.ip().to_canonical().is_loopback()
    }
}

/// Why there is no listening.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address can be reached from other machines, and nothing keeps them out.
    #[error("{listen} can be reached from other machines, and {missing}, or listen on 127.0.0.1")]
    Exposed {
        /// The address.
        listen: SocketAddr,
        /// What is missing.
        missing: &'static str,
    },
    /// Keys are asked for, and nobody has any.
    #[error("require_keys is set, and nobody can have a key here: set broker_key_file as well")]
    NoKeys,
    /// TLS needs both of its files.
    #[error("tls_cert and tls_key go together: set both or neither")]
    HalfTls,
    /// Somebody else has the port.
    #[error("{listen} is in use by another program: stop it or choose another port")]
    InUse {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be had.
    #[error("cannot listen on {listen}")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A PEM file cannot be used.
    #[error("cannot use {what} file {path}: {why}")]
    Pem {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Certificate and key are readable, but TLS does not take them.
    #[error("certificate {certificate} with key {key} cannot be used", certificate = files.certificate.display(), key = files.key.display())]
    Tls {
        /// The files.
        files: TlsFiles,
        /// Why not.
        source: rustls::Error,
    },
}

/// An address that is taken, and the rules for who may speak there.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) guard: Guard,
    pub(crate) limits: ServeLimits,
    pub(crate) on_refusal: OnRefusal,
    address: SocketAddr,
}

/// Told of each request that was turned away at the door.
#[derive(Clone)]
pub(crate) struct OnRefusal(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for OnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRefusal")
    }
}

/// Reads certificate and key, and takes the address.
///
/// # Errors
/// See [`ServeError`].
pub async fn bind(config: &ListenConfig) -> Result<Listener, ServeError> {
    let listen = config.listen;
    let loopback = !config.is_beyond_loopback();
    if !loopback {
        let missing = match (&config.tls, config.knows_keys) {
            (None, _) => Some("TLS is missing: set tls_cert and tls_key"),
            (_, false) => Some("nobody can have a key here: set broker_key_file"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(ServeError::Exposed { listen, missing });
        }
    }
    if config.requires_keys && !config.knows_keys {
        return Err(ServeError::NoKeys);
    }
    let tls = config.tls.as_ref().map(tls::load).transpose()?;
    let guard = Guard::new(config.requires_keys || !loopback, loopback);
    let bind_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { listen },
        _ => ServeError::Bind { listen, source },
    };
    let socket = TcpListener::bind(listen).await.map_err(bind_error)?;
    let address = socket.local_addr().map_err(bind_error)?;
    let on_refusal = OnRefusal(Arc::new(|| {}));
    Ok(Listener { socket, tls, guard, limits: ServeLimits::default(), on_refusal, address })
}

impl Listener {
    /// The address, with the port that was taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to find it, as `http://…` or `https://…`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Names what listens, for those who are turned away: "broker", "monitor".
    #[must_use]
    pub fn of(mut self, part: &'static str) -> Self {
        self.guard.part = part;
        self
    }

    /// Has `on_refusal` called for each request that is turned away at the door.
    #[must_use]
    pub fn counting(mut self, on_refusal: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_refusal = OnRefusal(Arc::new(on_refusal));
        self
    }

    /// Says which request is open to whom; what the table does not name is open to nobody.
    #[must_use]
    pub fn with_access(mut self, access: &'static [Access]) -> Self {
        self.guard.access = Some(access);
        self
    }

    /// Takes the sessions and keys that `sessions` knows; the paths of `open` are how they are
    /// got, and open to all. The files at `pages` anybody may read.
    #[must_use]
    pub fn with_sessions(
        mut self,
        sessions: Arc<dyn Sessions>,
        open: &'static [&'static str],
        pages: &'static [&'static str],
    ) -> Self {
        self.guard.known = Some(Known { sessions, open, pages });
        self
    }

    /// Sets other bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: ServeLimits) -> Self {
        self.limits = limits;
        self
    }
}
