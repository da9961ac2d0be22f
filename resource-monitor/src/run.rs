//! The monitor as a service.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_serve::{ListenConfig, ServeError, bind, serve};
use thiserror::Error;
use tokio::task::JoinSet;
use tracing::info;

use crate::broker_link::BrokerLink;
use crate::counters::Counters;
use crate::driver::Driver;
use crate::limits::TOKEN_BYTES_MAX;
use crate::recording::{Recorder, Tape};
use crate::routes::routes;
use crate::{Config, ConfigError, JsonSource};

/// Runs the monitor until `shutdown`; calls `ready` with its address once it listens.
///
/// # Errors
/// See [`RunError`]; all of them before `ready` is called.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let rules = config.rules()?;
    let poll_url = config.poll_url()?;
    let mut broker_url = config.broker_url()?;
    let prefix = broker_url.path().trim_end_matches('/').to_owned();
    broker_url.set_path(&format!("{prefix}/v1/farm/events"));
    let token = config.token_file.as_deref().map(read_token).transpose()?;
    let client = client(config.ca_file.as_deref())?;
    let counters = Arc::new(Counters::default());
    let listen = ListenConfig::new(
        config.listen,
        config.tls_cert.clone(),
        config.tls_key.clone(),
        config.token_file.clone(),
    )?;
    let refusals = Arc::clone(&counters);
    let listener = bind(&listen).await?.of("monitor");
    let listener = listener.counting(move || refusals.refused_requests.add(1));
    let (listen, url) = (listener.address(), listener.url());

    let tape = config.record.as_ref().map(|_| Arc::new(Tape::default()));
    let record = config.record.as_deref().zip(tape.clone());
    let recorder = record
        .map(|(path, tape)| {
            let refuse = |source| RunError::Record { path: path.to_owned(), source };
            Recorder::start(path, &rules, tape, counters.clone()).map_err(refuse)
        })
        .transpose()?;
    let driver = Arc::new(Driver::new(rules, tape, counters));
    // Dropped, and with it all tasks ended, when the server has ended.
    let mut tasks = JoinSet::new();
    let clock = driver.clone();
    tasks.spawn(async move { clock.run_clock().await });
    let living = driver.clone();
    tasks.spawn(async move { living.run_signs_of_life().await });
    tasks.spawn(
        BrokerLink {
            url: broker_url,
            client: client.clone(),
            token: token.clone(),
            outbox: driver.outbox.clone(),
            counters: driver.counters.clone(),
        }
        .run(),
    );
    if let Some(url) = poll_url {
        let (poller, source) = (driver.clone(), JsonSource::new(url, client));
        tasks.spawn(async move {
            poller.run_poller(source, rules.poll_interval.into()).await;
        });
    }
    info!(%url, broker = config.broker, "the monitor listens");
    ready(listen);
    serve(listener, routes(driver), shutdown).await;
    drop(recorder);
    Ok(())
}

fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, RunError> {
    // Refused where another part of this process has installed it, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    if let Some(path) = ca_file {
        client = client.tls_certs_only(read_certificates(path)?);
    }
    client.build().map_err(RunError::Client)
}

fn read_certificates(path: &Path) -> Result<Vec<reqwest::Certificate>, RunError> {
    let refuse = |reason: String| RunError::Certificates { path: path.to_owned(), reason };
    let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| refuse(error.to_string()))?;
    if certificates.is_empty() {
        return Err(refuse("there are none in it".into()));
    }
    Ok(certificates)
}

fn read_token(path: &Path) -> Result<String, RunError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
        .map_err(|source| RunError::Token { path: path.to_owned(), source })?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(RunError::TokenText(path.to_owned()));
    }
    Ok(token.to_owned())
}

/// Why the monitor does not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A setting without sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be had, or may not.
    #[error("cannot serve")]
    Serve(#[from] ServeError),
    /// The token cannot be read.
    #[error("cannot read the token file {path}: {source}", path = path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The token could never be borne by a request.
    #[error("the token file {path} holds no token: one line of visible ASCII", path = .0.display())]
    TokenText(PathBuf),
    /// The farm cannot be recorded.
    #[error("cannot record to {path}: {source}", path = path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The certificates to trust cannot be read.
    #[error("cannot read the certificates {path}: {reason}", path = path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(reqwest::Error),
}
