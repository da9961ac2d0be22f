//! Opening a control link: TCP, TLS where the address says so, the WebSocket handshake.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gleaner_identity::Credentials;
use gleaner_protocol::limits::CONTROL_MESSAGE_BYTES_MAX;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config, tungstenite};

use super::LinkError;
use crate::limits::CONNECT_MS_MAX;

/// Which broker to call, and how.
#[derive(Debug, Clone)]
pub struct LinkTarget {
    /// Its address, `http://` or `https://`.
    pub broker: String,
    /// What to show.
    pub credentials: Credentials,
    /// Whom to trust; needed for `https://` only.
    pub tls: Option<Arc<ClientConfig>>,
}

impl LinkTarget {
    /// A broker without TLS that asks for no key.
    #[must_use]
    pub fn plain(broker: impl Into<String>) -> Self {
        Self { broker: broker.into(), credentials: Credentials::None, tls: None }
    }
}

/// Opens a WebSocket, within [`CONNECT_MS_MAX`].
pub(super) async fn open(target: &LinkTarget) -> Result<WebSocketStream<Stream>, LinkError> {
    let limit = Duration::from_millis(CONNECT_MS_MAX);
    tokio::time::timeout(limit, open_unbounded(target))
        .await
        .map_err(|_| LinkError::ConnectTimeOut(target.broker.clone()))?
}

async fn open_unbounded(target: &LinkTarget) -> Result<WebSocketStream<Stream>, LinkError> {
    let refuse = |reason: String| LinkError::Address { address: target.broker.clone(), reason };
    let url = reqwest::Url::parse(&target.broker).map_err(|error| refuse(error.to_string()))?;
    let host = url.host_str().ok_or_else(|| refuse("it names no host".into()))?;
    let port = url.port_or_known_default().ok_or_else(|| refuse("it names no port".into()))?;
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        other => return Err(refuse(format!("{other}:// is not http:// or https://"))),
    };
    let scheme = if secure { "wss" } else { "ws" };
    let path = url.path().trim_end_matches('/');
    let mut request = format!("{scheme}://{host}:{port}{path}/v1/control").into_client_request()?;
    if let Some(token) = target.credentials.bearer().await? {
        let value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| refuse("its token is no printable ASCII".into()))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let tcp = connect_tcp(host, port)
        .await
        .map_err(|source| LinkError::Connect { address: target.broker.clone(), source })?;
    let stream = if secure {
        let config = target.tls.clone().ok_or_else(|| refuse("TLS is not set up".into()))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|error| refuse(error.to_string()))?;
        let tls = TlsConnector::from(config).connect(name, tcp).await;
        Stream::Tls(Box::new(
            tls.map_err(|source| LinkError::Connect { address: target.broker.clone(), source })?,
        ))
    } else {
        Stream::Plain(tcp)
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(CONTROL_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(CONTROL_MESSAGE_BYTES_MAX));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            // A session of a key may have ended, or its key may have been revoked.
            target.credentials.forget().await;
            Err(LinkError::Unauthorised(response.status().to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((bare, port)).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// A connection with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
