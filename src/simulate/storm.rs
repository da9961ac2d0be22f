//! `gleaner simulate storm`.

use std::process::ExitCode;

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{Progress, Seeds, StormConfig, storm};

use super::progress::Shown;
use crate::show;

/// Faults from each seed over a modelled farm; then they stop, and all work has to end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A storm from each seed from A to before B.
    #[arg(long, value_name = "A..B", default_value = "0..20")]
    seeds: Seeds,
    /// Modelled hours that the faults last.
    #[arg(long, value_name = "H", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    hours: u32,
    /// Hosts, half of them on the farm and half of them desktops.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    hosts: u32,
}

pub(super) fn run(args: &Args, quiet: bool) -> anyhow::Result<ExitCode> {
    let shown = Shown::begin(quiet);
    let mut events = 0;
    for (place, seed) in (0_u64..).zip(args.seeds.iter()) {
        let done = place * 1_000_000 / args.seeds.count();
        shown.done(u32::try_from(done).unwrap_or(u32::MAX), &format!("seed {seed}"));
        let config = StormConfig {
            policy: PolicyName::ALL[(seed % 2) as usize],
            farm_hosts: args.hosts / 2,
            desktop_hosts: args.hosts - args.hosts / 2,
            lasts: Span::from_secs(u64::from(args.hours) * 3600),
            ..StormConfig::default()
        };
        events += storm(seed, &config)?.events;
    }
    shown.end();
    show::line(format!("{} storms, {events} events, no breach", args.seeds.count()));
    Ok(ExitCode::SUCCESS)
}
