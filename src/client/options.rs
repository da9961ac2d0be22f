//! How the command line names a broker.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::Client;
use crate::failure::Failure;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

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
    /// File with the token that the broker asks for.
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
        let broker = self.broker.trim_end_matches('/').to_owned();
        if !broker.starts_with("http://") && !broker.starts_with("https://") {
            let hint =
                format!("--broker {broker:?} is no address: it begins with http:// or https://");
            return Err(Failure::Usage(hint).into());
        }
        let token = self.token_file.as_ref().map(|path| {
            fs::read_to_string(path)
                .map(|token| token.trim().to_owned())
                .with_context(|| format!("cannot read the token file {}", path.display()))
        });
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).no_proxy();
        http = trusting(http, self.ca_file.as_deref())?;
        let http = http.build().context("cannot set up HTTP")?;
        Ok(Client { broker, token: token.transpose()?, http })
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
