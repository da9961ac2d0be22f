//! `gleaner lanes`.

use std::process::ExitCode;

use gleaner_protocol::api::LaneStatus;

use crate::client::Options;
use crate::show;

/// Shows who holds the farm's free cores: its lanes in their order, and how much each may hold.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.options.show("/v1/lanes", |lanes: &Vec<LaneStatus>| print(lanes))
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
