//! `gleaner hosts`.

use std::process::ExitCode;

use gleaner_protocol::api::HostStatus;

use crate::client::{Format, Options};
use crate::{process, show};

/// Lists the hosts that the broker knows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let hosts: Vec<HostStatus> = args.options.client()?.get("/v1/hosts").await?;
        match args.options.format() {
            Format::Json => show::json(&hosts),
            Format::Table => print(&hosts),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(hosts: &[HostStatus]) {
    let header = [
        "host",
        "origin",
        "kind",
        "connected",
        "cores",
        "slots",
        "running",
        "counted",
        "disagreed",
        "gave back",
        "gpu",
        "alarm, or why closed",
    ];
    let rows = hosts.iter().map(|host| {
        [
            host.host.to_string(),
            host.origin.to_string(),
            host.kind.as_ref().map(ToString::to_string).unwrap_or_default(),
            if host.connected { "yes" } else { "no" }.to_owned(),
            host.cores.to_string(),
            host.slots.to_string(),
            host.running.to_string(),
            host.reported.to_string(),
            host.disagreed.to_string(),
            host.released.to_string(),
            host.gpu.as_ref().map(ToString::to_string).unwrap_or_default(),
            host.alarm.clone().or_else(|| host.closed.clone()).unwrap_or_default(),
        ]
    });
    show::line(show::table(header, rows.collect()));
}
