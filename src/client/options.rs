//! How the command line names a broker.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gleaner_identity::{Trust as TlsTrust, client_config};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Service};
use crate::failure::Failure;
use crate::joined::Joined;
use crate::{process, show};

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
    /// The broker's address [default: that of the last `gleaner join`, where no token or key is given,
    /// or else http://127.0.0.1:7710].
    #[arg(long, env = "GLEANER_BROKER", value_name = "URL")]
    broker: Option<String>,
    /// File with an own key, which is shown instead of a token [default: that of the last `gleaner
    /// join`, where neither this nor a token is given].
    #[arg(long, env = "GLEANER_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
}

/// How to speak to another service, and what to print.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
    /// File with an own key, which is shown instead of a token [default: that of the last `gleaner
    /// join`, where no token is given and monitor or broker are on another machine, or both on this one].
    #[arg(long, env = "GLEANER_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// What is shown, and who is trusted.
#[derive(Debug, Clone, clap::Args)]
struct Trust {
    /// File with an own key as a token, which is shown as it is (`gleaner join --token`).
    #[arg(long, env = "GLEANER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
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

    /// Asks that broker for something, and prints the answer.
    pub(crate) fn show<T: DeserializeOwned + Serialize>(
        &self,
        path: &str,
        print: impl FnOnce(&T),
    ) -> anyhow::Result<ExitCode> {
        process::block_on(async {
            let answer: T = self.client()?.get(path).await?;
            match self.format {
                Format::Json => show::json(&answer),
                Format::Table => print(&answer),
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    /// The form in which it is to be printed.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }
}

impl Broker {
    /// A client of it.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let Self { broker, key_file, trust } = self;
        // What was joined shows its own key to its own broker, and nothing else goes there unasked.
        let shows = key_file.is_some() || trust.token_file.is_some();
        let joined = if shows { None } else { Joined::read()? };
        let is_same = |of: &Joined| {
            broker.as_ref().is_none_or(|broker| broker.trim_end_matches('/') == of.broker)
        };
        if let Some(joined) = joined.filter(is_same) {
            let ca_file = trust.ca_file.clone().or(joined.ca_file);
            let trust = Trust { token_file: None, ca_file };
            return trust.client(Service::BROKER, &joined.broker)?.with_key(&joined.key_file);
        }
        let client = trust.client(Service::BROKER, broker.as_deref().unwrap_or(LOCAL_BROKER))?;
        match key_file {
            Some(key_file) => client.with_key(key_file),
            None => Ok(client),
        }
    }
}

impl Access {
    /// A client of a service at an address.
    pub(crate) fn client(&self, service: Service, address: &str) -> anyhow::Result<Client> {
        if let Some(key_file) = &self.key_file {
            return self.trust.client(service, address)?.with_key(key_file);
        }
        // On the same machine nothing is asked for, unless its broker asks for keys, too. Who is elsewhere and
        // does not show a certificate is shown nothing unasked.
        let is_asked = |of: &Joined| match is_loopback(address) {
            true => is_loopback(&of.broker),
            false => address.starts_with("https://"),
        };
        let joined = if self.trust.token_file.is_some() { None } else { Joined::read()? };
        match joined.filter(is_asked) {
            Some(Joined { key_file, ca_file, .. }) => {
                let ca_file = self.trust.ca_file.clone().or(ca_file);
                let trust = Trust { token_file: None, ca_file };
                trust.client(service, address)?.with_key(&key_file)
            }
            None => self.trust.client(service, address),
        }
    }

    /// A client of a broker at an address, with the key that was joined with, if it is that one's.
    pub(crate) fn broker(&self, address: &str) -> anyhow::Result<Client> {
        let (broker, trust) = (Some(address.to_owned()), self.trust.clone());
        Broker { broker, key_file: self.key_file.clone(), trust }.client()
    }
}

/// Whether an address is one of this machine.
fn is_loopback(address: &str) -> bool {
    let host = reqwest::Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

impl Trust {
    fn client(&self, service: Service, address: &str) -> anyhow::Result<Client> {
        Client::new(service, address, self.token_file.as_deref(), self.ca_file.as_deref())
    }
}

/// Has a client trust the certificates of a file instead of the system's, where one is given.
pub(crate) fn trusting(
    http: reqwest::ClientBuilder,
    ca_file: Option<&Path>,
) -> anyhow::Result<reqwest::ClientBuilder> {
    let Some(path) = ca_file else { return Ok(http) };
    let tls =
        client_config(TlsTrust::File(path)).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(http.tls_backend_preconfigured(tls))
}
