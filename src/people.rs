//! `gleaner people` and `gleaner revoke`.

use std::process::ExitCode;

use gleaner_protocol::people::{PrincipalId, PrincipalStatus};

use crate::client::{Format, Options};
use crate::{process, show};

/// Lists whom the broker knows by their keys: people, agents, monitors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

/// Takes from somebody all that they may, at once: sessions end, and an agent's link.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Who, by the first column of `gleaner people`.
    #[arg(required = true, value_name = "KEY")]
    who: Vec<PrincipalId>,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.options.show("/v1/people", |people: &Vec<PrincipalStatus>| print(people, Format::Table))
}

pub(crate) fn run_revoke(args: RevokeArgs) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let mut revoked: Vec<PrincipalStatus> = Vec::new();
        for id in &args.who {
            revoked.push(client.delete(&format!("/v1/people/{id}")).await?);
        }
        print(&revoked, args.options.format());
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints people as a table or as JSON.
pub(crate) fn print(people: &[PrincipalStatus], format: Format) {
    if format == Format::Json {
        return show::json(&people);
    }
    let header = ["key", "role", "owner", "project", "host", "trusted", "joined", "revoked"];
    let rows = people.iter().map(|of| {
        [
            of.id.to_string(),
            of.role.to_string(),
            show::name(of.owner.as_str()),
            of.project.as_ref().map(|of| show::name(of.as_str())).unwrap_or_default(),
            of.host.as_ref().map(|host| show::name(host.as_str())).unwrap_or_default(),
            if of.trusted { "yes" } else { "" }.to_owned(),
            show::time(of.made_ms),
            of.revoked_ms.map(show::time).unwrap_or_default(),
        ]
    });
    show::table(header, rows.collect());
}
