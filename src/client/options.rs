//! How the command line names a broker.

use std::path::{Path, PathBuf};

use gleaner_protocol::error_chain;

use super::{Client, Service};
use crate::given_file::{self, GivenFileError};
use crate::joined::Joined;

/// Longest file of certificates, in bytes.
const CA_FILE_BYTES_MAX: u64 = 16 << 20;

/// The broker of this machine.
const LOCAL_BROKER: &str = "http://127.0.0.1:7710";

/// Which broker, how to speak to it, and what to print.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    broker: Broker,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Which broker, and how to speak to it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Broker {
    /// The broker's address [default: that of the last `gleaner join`, or else
    /// http://127.0.0.1:7710].
    #[arg(long, env = "GLEANER_BROKER", value_name = "URL")]
    broker: Option<String>,
    #[command(flatten)]
    trust: Trust,
}

/// How to speak to another service, and what to print.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    #[command(flatten)]
    trust: Trust,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// What is shown, and who is trusted.
#[derive(Debug, Clone, clap::Args)]
struct Trust {
    /// File with the token that it asks for.
    #[arg(long, env = "GLEANER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with an own key, which is shown instead of a token (`gleaner join`).
    #[arg(long, env = "GLEANER_KEY_FILE", value_name = "FILE", conflicts_with = "token_file")]
    key_file: Option<PathBuf>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

impl Options {
    /// A client of that broker.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.broker.client()
    }

    /// The form in which it is to be printed.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }
}

impl Broker {
    /// A client of it.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let joined = Joined::read()?;
        // It is of no use at another broker.
        let joined = joined.filter(|of| self.broker.as_ref().is_none_or(|at| *at == of.broker));
        let Some(joined) = joined else {
            let broker = self.broker.as_deref().unwrap_or(LOCAL_BROKER);
            return self.trust.client(Service::BROKER, broker);
        };
        let shows = self.trust.token_file.is_some() || self.trust.key_file.is_some();
        let trust = Trust {
            key_file: if shows { self.trust.key_file.clone() } else { Some(joined.key_file) },
            ca_file: self.trust.ca_file.clone().or(joined.ca_file),
            ..self.trust.clone()
        };
        trust.client(Service::BROKER, &joined.broker)
    }
}

impl Access {
    /// A client of a service at an address.
    pub(crate) fn client(&self, service: Service, address: &str) -> anyhow::Result<Client> {
        self.trust.client(service, address)
    }
}

impl Trust {
    fn client(&self, service: Service, address: &str) -> anyhow::Result<Client> {
        let token_file = self.token_file.as_deref();
        let client = Client::new(service, address, token_file, self.ca_file.as_deref())?;
        match &self.key_file {
            Some(key_file) => client.with_key(key_file),
            None => Ok(client),
        }
    }
}

/// Has a client trust the certificates of a file instead of the system's, where one is given.
pub(crate) fn trusting(
    http: reqwest::ClientBuilder,
    ca_file: Option<&Path>,
) -> anyhow::Result<reqwest::ClientBuilder> {
    let Some(path) = ca_file else { return Ok(http) };
    let pem = given_file::read("the certificates", path, CA_FILE_BYTES_MAX)?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
        let problem = format!("has no certificates: {}", error_chain(&error));
        GivenFileError::Content { path: path.into(), problem }
    })?;
    Ok(http.tls_certs_only(certificates))
}
