//! `gleaner audit`.

use std::process::ExitCode;

use gleaner_identity::{AuditEnd, AuditEntry, check_audit};
use serde::Deserialize;

use crate::client::{Format, Options};
use crate::{process, show};

/// Lists who let whom in, and out, and who stopped all harvest: invitations, enrolments, revocations,
/// stops.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Checks that no line was changed, taken out or cut off, and says no more.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Deserialize)]
struct Audit {
    text: String,
    end: AuditEnd,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let audit: Audit = args.options.client()?.get("/v1/audit").await?;
        let checked = check_audit(&audit.text, audit.end);
        if args.verify || checked.is_err() {
            let entries = checked?;
            show::line(format_args!("{} lines, each as it was written", entries.len()));
            return Ok(ExitCode::SUCCESS);
        }
        let entries = checked?;
        match args.options.format() {
            Format::Json => show::json(&entries),
            Format::Table => print(&entries),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(entries: &[AuditEntry]) {
    let header = ["line", "when", "who", "did", "what"];
    let rows = entries.iter().map(|entry| {
        [
            entry.number.to_string(),
            show::time(entry.at_ms),
            entry.who.clone(),
            entry.what.clone(),
            entry.on.clone(),
        ]
    });
    show::table(header, rows.collect());
}
