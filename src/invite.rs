//! `gleaner invite`.

use std::process::ExitCode;

use gleaner_identity::InvitationLine;
use gleaner_protocol::people::{Invitation, InvitationRequest, Role};
use gleaner_protocol::{OwnerName, ProjectName, Span};
use serde::Serialize;

use crate::agent::control::parse_duration;
use crate::client::{Format, Options};
use crate::failure::Failure;
use crate::{process, show};

/// Invites somebody, or hosts of theirs: prints the line that they paste into a terminal.
///
/// Pass the line on by a way that others do not read: whoever has it first can join with it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What they may: viewer, submitter, agent (of a host), hook (of a host: it tells the farm's monitor
    /// of renders), monitor, operator (who stops harvest) or admin.
    #[arg(long)]
    role: Role,
    /// Whose jobs or hosts they are [default: the project's name].
    #[arg(long, required_unless_present = "project")]
    owner: Option<OwnerName>,
    /// Of submitters: the project that answers for all of their jobs. Of viewers: the one whose jobs they
    /// see, and no others.
    #[arg(long, value_name = "NAME")]
    project: Option<ProjectName>,
    /// Of agents: trust what they compute. Once you trust somebody's hosts, a workunit of two replicas or
    /// more is decided only where a trusted owner is among those who agree, or two owners who have
    /// agreed with trusted ones ten times in a row. For the farm's own hosts.
    #[arg(long)]
    trusted: bool,
    /// How many keys may join with it (also --hosts): hosts of an owner, or one person.
    #[arg(long, alias = "hosts", default_value_t = 1, value_name = "COUNT")]
    uses: u32,
    /// For how long it is good: 30m, 24h, 7d.
    #[arg(long, default_value = "24h", value_parser = parse_duration, value_name = "FOR")]
    ttl: Span,
    /// The broker's address as they reach it, where it is another one from here.
    #[arg(long, value_parser = parse_address, value_name = "URL")]
    address: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Serialize)]
struct Invited {
    line: String,
    id: String,
    role: Role,
    owner: OwnerName,
    project: Option<ProjectName>,
    uses: u32,
    valid_s: u64,
}

fn parse_address(text: &str) -> Result<String, String> {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    if is_address { Ok(text.into()) } else { Err("it begins with http:// or https://".into()) }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let Args { role, owner, project, trusted, uses, ttl, .. } = args;
        let named = project.as_ref().map(|of| OwnerName::new(of.as_str())).transpose()?;
        let owner = owner.or(named).ok_or_else(|| Failure::Usage("say --owner".into()))?;
        let valid_s = ttl.as_millis().div_ceil(1_000);
        let request =
            InvitationRequest { role, owner, project, trusted, uses, valid_s, address: None };
        let invitation: Invitation = client.post("/v1/invitations", &request).await?;
        let InvitationRequest { owner, project, .. } = request;
        let is_plain = args.address.as_ref().is_some_and(|at| at.starts_with("http://"));
        if is_plain && invitation.pin.is_some() {
            let why = "--address begins with http://, and this broker speaks https:// alone";
            return Err(Failure::Usage(why.into()).into());
        }
        let is_given = args.address.is_some();
        let broker = args.address.unwrap_or_else(|| client.address().to_owned());
        let broker = broker.trim_end_matches('/').to_owned();
        if !is_given && ["//127.", "//localhost", "//[::1]"].iter().any(|at| broker.contains(at)) {
            show::note("this line is good on this machine alone: for others, give --address");
        }
        let id = invitation.id.clone();
        let line = InvitationLine { broker, invitation };
        let line = format!("gleaner join '{line}'");
        match args.options.format() {
            Format::Json => show::json(&Invited { line, id, role, owner, project, uses, valid_s }),
            Format::Table => show::line(&line),
        }
        Ok(ExitCode::SUCCESS)
    })
}
