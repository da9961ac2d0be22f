//! `gleaner login`.

use std::process::ExitCode;

use gleaner_protocol::api::LoginLink;
use serde::Serialize;

use crate::client::{Format, Options};
use crate::{process, show};

/// Prints a link that opens the broker's pages in a browser, as whoever asks for it.
///
/// It is good once, for five minutes. The browser stays logged in for as long as the page is open, and
/// twelve hours longer; a revoked key ends that at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Serialize)]
struct Link {
    url: String,
    valid_s: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let LoginLink { secret, valid_s } = client.post("/v1/logins", &()).await?;
        let secret = secret.map(|secret| format!("#login={secret}")).unwrap_or_default();
        let url = format!("{}/{secret}", client.address());
        match args.options.format() {
            Format::Json => show::json(&Link { url, valid_s }),
            Format::Table => show::line(&url),
        }
        Ok(ExitCode::SUCCESS)
    })
}
