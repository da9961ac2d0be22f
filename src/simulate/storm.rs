//! `gleaner simulate storm`.

use std::process::ExitCode;

use gleaner_protocol::boottime;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::{
    Progress, STORM_FURY_MAX, STORM_HOSTS, STORM_HOSTS_RANGE, STORM_HOURS, STORM_HOURS_RANGE,
    Seeds, StormConfig, StormReport, span_of_hours, storm_told,
};
use serde::Serialize;

use super::progress::Shown;
use crate::client::Format;
use crate::show;

/// Faults from each seed over a modelled farm; then they stop, and all work has to end.
///
/// Broker, monitor, agents and hooks are driven by their own code. Everything that can be wrong
/// after an event is checked after it; the first breach ends the run with exit code 1, its seed,
/// and the command that replays it. How fast it went is said on stderr.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A storm from each seed from A to before B.
    #[arg(long, value_name = "A..B", default_value = "0..20")]
    seeds: Seeds,
    /// Modelled hours that the faults last.
    #[arg(long, value_name = "H", default_value_t = STORM_HOURS, value_parser = hours)]
    hours: f64,
    /// Hosts; three of five are render hosts, the others desktops.
    #[arg(long, value_name = "N", default_value_t = STORM_HOSTS, value_parser = hosts_range())]
    hosts: u32,
    /// How many times as often as usual faults happen.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=STORM_FURY_MAX))]
    fury: u64,
    /// The policy of the background lane; where none is named, all of them in turn.
    #[arg(long, value_name = "NAME")]
    policy: Option<PolicyName>,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Counts over all storms.
#[derive(Debug, Serialize)]
struct Shape {
    scenario: &'static str,
    seeds: String,
    hours: f64,
    hosts: u32,
    counts: serde_json::Map<String, serde_json::Value>,
}

pub(super) fn run(args: &Args, quiet: bool) -> anyhow::Result<ExitCode> {
    let shown = Shown::begin(quiet);
    let begun = boottime();
    let mut sum = StormReport::default();
    for (place, seed) in (0_u64..).zip(args.seeds.iter()) {
        let what = format!("seed {seed}");
        let told = |part: u32| {
            let done = (place * 1_000_000 + u64::from(part)) / args.seeds.count();
            shown.done(u32::try_from(done).unwrap_or(u32::MAX), &what);
        };
        let turns = PolicyName::ALL[(seed % PolicyName::ALL.len() as u64) as usize];
        let config = StormConfig {
            policy: args.policy.unwrap_or(turns),
            hosts: args.hosts,
            fury: args.fury,
            lasts: span_of_hours(args.hours),
            ..StormConfig::default()
        };
        sum.add(&storm_told(seed, &config, &told)?);
    }
    shown.end();
    let seconds = boottime().since(begun).as_secs_f64();
    if !quiet {
        let speed = sum.events as f64 / seconds;
        eprintln!("{} events in {seconds:.1} s: {speed:.0} a second", sum.events);
    }
    match args.format {
        Format::Json => {
            let counts = sum.counts().into_iter();
            show::json(&Shape {
                scenario: "storm",
                seeds: args.seeds.to_string(),
                hours: args.hours,
                hosts: args.hosts,
                counts: counts.map(|(name, count)| (name.to_owned(), count.into())).collect(),
            });
        }
        Format::Table => {
            for (name, count) in sum.counts() {
                show::line(format!("{name:<20} {count:>14}"));
            }
            show::line(format!("{} storms without a breach", args.seeds.count()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn hosts_range() -> clap::builder::RangedI64ValueParser<u32> {
    let (least, most) = STORM_HOSTS_RANGE;
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

fn hours(text: &str) -> Result<f64, String> {
    let (least, most) = STORM_HOURS_RANGE;
    let expected = || format!("{text:?} is no number of hours: expected {least} to {most}");
    let hours: f64 = text.parse().map_err(|_| expected())?;
    if (least..=most).contains(&hours) { Ok(hours) } else { Err(expected()) }
}
