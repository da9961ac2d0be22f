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

use crate::access::{Access, Role};
use crate::guard::{Guard, Known, Sessions};
use crate::limits::{CONNECTIONS_MAX, HTTP_HEAD_TIME_MAX, SHUTDOWN_GRACE, TLS_HANDSHAKE_TIME_MAX};
use crate::tls::{self, TlsFiles};
use crate::token::{Token, TokenError};

/// Where to listen, and how whoever speaks must prove themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificate and key, for TLS.
    pub tls: Option<TlsFiles>,
    /// File with the token that every request must show.
    pub token_file: Option<PathBuf>,
    /// Whether somebody may have a session for a key, and so needs no token.
    pub knows_keys: bool,
    /// Files with the tokens of roles, which are good for what is theirs alone.
    pub role_files: Vec<(Role, PathBuf)>,
    /// Roles that must have a token of their own where other machines can reach the address.
    pub wanted_beyond_loopback: &'static [Role],
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
        token_file: Option<PathBuf>,
    ) -> Result<Self, ServeError> {
        let tls = match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (None, None) => None,
            _ => return Err(ServeError::HalfTls),
        };
        Ok(Self {
            listen,
            tls,
            token_file,
            knows_keys: false,
            role_files: Vec::new(),
            wanted_beyond_loopback: &[],
        })
    }

    /// With the file of a role's token, where there is one.
    #[must_use]
    pub fn with_role(mut self, role: Role, file: Option<PathBuf>) -> Self {
        self.role_files.extend(file.map(|file| (role, file)));
        self
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
    #[error(
        "{listen} can be reached from other machines, and {missing} missing: set tls_cert, tls_key and token_file, or listen on 127.0.0.1"
    )]
    Exposed {
        /// The address.
        listen: SocketAddr,
        /// What is missing.
        missing: &'static str,
    },
    /// The address can be reached from other machines, and a role that must have a token of its own
    /// has none.
    #[error(
        "{listen} can be reached from other machines, and {role} is missing: whoever has the token of \
         token_file could do what is for {role} alone; make one with `(umask 077; head -c 24 \
         /dev/urandom | base64 > FILE)` and set {role} = \"FILE\""
    )]
    Unkept {
        /// The address.
        listen: SocketAddr,
        /// Which role.
        role: Role,
    },
    /// A role's token, and nobody has to show any.
    #[error("{0} is of no use without token_file: who shows no token may do all")]
    NoToken(Role),
    /// Two roles have one token.
    #[error(
        "the {role} {path} holds the same token as {other}: make another one with \
         `head -c 24 /dev/urandom | base64`", path = path.display()
    )]
    OneToken {
        /// Whose.
        role: Role,
        /// The file.
        path: PathBuf,
        /// Whose it is already.
        other: Role,
    },
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
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
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

/// Reads certificate, key and token, and takes the address.
///
/// # Errors
/// See [`ServeError`].
pub async fn bind(config: &ListenConfig) -> Result<Listener, ServeError> {
    let listen = config.listen;
    let loopback = !config.is_beyond_loopback();
    if !loopback {
        let is_open = config.token_file.is_none() && !config.knows_keys;
        let missing = match (&config.tls, is_open) {
            (None, true) => Some("TLS and token are"),
            (None, false) => Some("TLS is"),
            (_, true) => Some("the token is"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(ServeError::Exposed { listen, missing });
        }
        let has = |wanted: &Role| config.role_files.iter().any(|(role, _)| role == wanted);
        if let Some(role) = config.wanted_beyond_loopback.iter().find(|role| !has(role)) {
            return Err(ServeError::Unkept { listen, role: *role });
        }
    }
    let tls = config.tls.as_ref().map(tls::load).transpose()?;
    let guard = guard(config, loopback)?;
    let bind_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { listen },
        _ => ServeError::Bind { listen, source },
    };
    let socket = TcpListener::bind(listen).await.map_err(bind_error)?;
    let address = socket.local_addr().map_err(bind_error)?;
    let on_refusal = OnRefusal(Arc::new(|| {}));
    Ok(Listener { socket, tls, guard, limits: ServeLimits::default(), on_refusal, address })
}

/// Reads the tokens.
fn guard(config: &ListenConfig, loopback: bool) -> Result<Guard, ServeError> {
    let token = config.token_file.as_deref().map(Token::read).transpose()?;
    let mut guard = Guard::new(token, loopback);
    guard.wants_proof |= !loopback;
    for (role, path) in &config.role_files {
        if config.token_file.is_none() && role.is_common() {
            return Err(ServeError::NoToken(*role));
        }
        let token = Token::read(path)?;
        if let Err(other) = guard.add_key(*role, token) {
            return Err(ServeError::OneToken { role: *role, path: path.clone(), other });
        }
    }
    Ok(guard)
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

    /// Takes the sessions that `sessions` knows besides tokens; the paths of `open` are how they are
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

    /// Has whoever asks show this token, or a session.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        // The one of a file, where there is one, is good for no less.
        let _ = self.guard.add_key(Role::Member, token);
        self.guard.wants_proof = true;
        self
    }

    /// Sets other bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: ServeLimits) -> Self {
        self.limits = limits;
        self
    }
}
