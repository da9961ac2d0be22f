//! How the command line names a broker.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Client, Service};

/// Which broker, and how to speak to it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The broker's address.
    #[arg(
        long,
        env = "GLEANER_BROKER",
        default_value = "http://127.0.0.1:7710",
        value_name = "URL"
    )]
    broker: String,
    #[command(flatten)]
    access: Access,
}

/// How to speak to any service.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    /// File with the token that it asks for.
    #[arg(long, env = "GLEANER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: Format,
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
        self.access.client(Service::BROKER, &self.broker)
    }

    /// The form in which it is to be printed.
    pub(crate) const fn format(&self) -> Format {
        self.access.format
    }
}

impl Access {
    /// A client of a service at an address.
    pub(crate) fn client(&self, service: Service, address: &str) -> anyhow::Result<Client> {
        Client::new(service, address, self.token_file.as_deref(), self.ca_file.as_deref())
    }
}

/// Has a client trust the certificates of a file instead of the system's, where one is given.
pub(crate) fn trusting(
    http: reqwest::ClientBuilder,
    ca_file: Option<&Path>,
) -> anyhow::Result<reqwest::ClientBuilder> {
    let Some(path) = ca_file else { return Ok(http) };
    let pem = fs::read(path)
        .with_context(|| format!("cannot read the certificates {}", path.display()))?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem)
        .with_context(|| format!("{} has no certificates", path.display()))?;
    Ok(http.tls_certs_only(certificates))
}
