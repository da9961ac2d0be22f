//! How the command line names a monitor.

use crate::client::{Access, Client, Format, Service};

/// Which monitor, and how to speak to it.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Options {
    /// The farm's resource monitor.
    #[arg(
        long,
        env = "GLEANER_MONITOR",
        default_value = "http://127.0.0.1:7711",
        value_name = "URL"
    )]
    monitor: String,
    #[command(flatten)]
    access: Access,
}

impl Options {
    /// A client of that monitor.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        self.access.client(Service::MONITOR, &self.monitor)
    }

    /// A client of a broker, which is shown the same.
    pub(super) fn broker(&self, address: &str) -> anyhow::Result<Client> {
        self.access.broker(address)
    }

    /// The form in which it is to be printed.
    pub(super) const fn format(&self) -> Format {
        self.access.format
    }
}
