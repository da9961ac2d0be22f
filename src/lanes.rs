//! `gleaner lanes`.

use std::process::ExitCode;

use gleaner_protocol::api::LaneStatus;

use crate::client::{Format, Options};
use crate::{process, show};

/// Shows who holds the farm's free cores: its lanes in their order, and how much each may hold.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let lanes: Vec<LaneStatus> = args.options.client()?.get("/v1/lanes").await?;
        match args.options.format() {
            Format::Json => show::json(&lanes),
            Format::Table => print(&lanes),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(lanes: &[LaneStatus]) {
    let header =
        ["lane", "policy", "jobs", "holds", "of cores", "parked", "room", "at most", "keeps"];
    let cores = |permille: u64| format!("{}", permille as f64 / 1000.0);
    let rows = lanes.iter().map(|lane| {
        [
            lane.lane.to_string(),
            lane.policy.clone(),
            lane.jobs.to_string(),
            cores(lane.held_permille),
            cores(lane.given_permille),
            lane.parked.to_string(),
            lane.room.to_string(),
            format!("{} %", lane.max_percent),
            format!("{} %", lane.min_percent),
        ]
    });
    show::table(header, rows.collect());
}
