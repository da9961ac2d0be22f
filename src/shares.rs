//! `gleaner shares`.

use std::process::ExitCode;

use gleaner_protocol::api::ShareStatus;

use crate::client::Options;
use crate::show;

/// Shows what each project, and each owner without one, has had of the farm for its weight: whoever comes
/// next stands first.
///
/// A week later half of what was used counts. Weights are set in the broker's configuration, in the
/// tables `[shares]` and `[projects]`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.options.show("/v1/shares", |shares: &Vec<ShareStatus>| print(shares))
}

/// What of a project's budget is used.
fn budget(of: &ShareStatus) -> String {
    let standing = of.charged_core_h.zip(of.budget_core_h);
    standing.map(|(used, of)| format!("{used:.2} of {of} core hours")).unwrap_or_default()
}

fn print(shares: &[ShareStatus]) {
    let header = ["project", "owner", "weight", "core hours used", "holds", "may hold", "budget"];
    let rows = shares.iter().map(|of| {
        [
            of.project.as_ref().map(|of| show::name(of.as_str())).unwrap_or_default(),
            of.owner.as_ref().map(|of| show::name(of.as_str())).unwrap_or_default(),
            of.weight.to_string(),
            format!("{:.2}", of.used_s / 3_600.0),
            format!("{}", of.held_permille as f64 / 1e3),
            of.cap_cores.map(|cores| cores.to_string()).unwrap_or_default(),
            budget(of),
        ]
    });
    show::table(header, rows.collect());
}
