//! `gleaner farm compare`: what harvest costs the farm's renders.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::Value;

use super::monitor::Options;
use crate::client::Format;
use crate::{process, show};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The monitor holds some hosts out of harvest, others each day ([comparison] of its configuration), and
counts what renders do on them and on those that may be harvested. Days are compared as wholes: the
interval is that of the mean of their differences, 95 % sure, and takes 5 days at least. Where harvested
hosts render fewer hours, the manager may take harvest for load and book them less. A host has a rate on
a day on which it rendered for an hour; delays are what its hooks measured; failures are known where the
manager tells its hooks (Slurm, Grid Engine, OpenPBS, Torque, Qube, HTCondor, Afanasy, Tractor), or a
script of yours says it (GLEANER_FAILED).")]
pub(super) struct Args {
    #[command(flatten)]
    options: Options,
}

/// Of the monitor's answer, what is printed.
#[derive(Debug, Deserialize)]
struct Comparison {
    held_out_permille: u16,
    time_zone: String,
    day: String,
    held_out: Vec<String>,
    harvested: u64,
    metrics: Vec<Metric>,
}

#[derive(Debug, Deserialize)]
struct Metric {
    name: String,
    more_is_better: bool,
    days: u64,
    harvested: Option<Arm>,
    held_out: Option<Arm>,
    difference: Option<Difference>,
}

#[derive(Debug, Deserialize)]
struct Arm {
    host_days: u64,
    mean: f64,
}

#[derive(Debug, Deserialize)]
struct Difference {
    estimate: f64,
    low: f64,
    high: f64,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let answer: Value = args.options.client()?.get("/v1/farm/comparison").await?;
        match args.options.format() {
            Format::Json => show::json(&answer),
            Format::Table => print(&serde_json::from_value(answer)?),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(comparison: &Comparison) {
    let Comparison { held_out_permille, time_zone, day, held_out, harvested, metrics } = comparison;
    show::line(format_args!(
        "{day} ({time_zone}): {} hosts are held out of harvest ({held_out_permille} thousandths, drawn \
         anew each day), {harvested} are not",
        held_out.len()
    ));
    if !held_out.is_empty() {
        show::line(format_args!("  {}", held_out.join(" ")));
    }
    let header = ["", "days", "harvested", "held out", "difference", "95 % interval", "harvest"];
    show::table(header, metrics.iter().map(row).collect());
}

fn row(metric: &Metric) -> [String; 7] {
    let arm = |arm: &Option<Arm>| match arm {
        Some(Arm { host_days, mean }) => format!("{mean:.2} ({host_days} host-days)"),
        None => "-".into(),
    };
    let (difference, interval, verdict) = match &metric.difference {
        Some(Difference { estimate, low, high }) => (
            format!("{estimate:+.2}"),
            format!("{low:+.2} to {high:+.2}"),
            verdict(*low, *high, metric.more_is_better),
        ),
        None => ("-".into(), "-".into(), "too few days"),
    };
    [
        metric.name.clone(),
        metric.days.to_string(),
        arm(&metric.harvested),
        arm(&metric.held_out),
        difference,
        interval,
        verdict.into(),
    ]
}

/// What an interval says about harvest.
fn verdict(low: f64, high: f64, more_is_better: bool) -> &'static str {
    match (low > 0.0, high < 0.0) {
        (true, _) if more_is_better => "helps",
        (true, _) => "costs",
        (_, true) if more_is_better => "costs",
        (_, true) => "helps",
        _ => "makes no difference that shows",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_zero_is_a_verdict() {
        assert_eq!(verdict(-1.0, 0.5, true), "makes no difference that shows");
        assert_eq!((verdict(0.1, 0.5, true), verdict(0.1, 0.5, false)), ("helps", "costs"));
        assert_eq!((verdict(-2.0, -0.5, true), verdict(-2.0, -0.5, false)), ("costs", "helps"));
    }

    #[test]
    fn what_is_not_known_yet_is_a_dash() {
        let text = r#"{"name": "n", "more_is_better": true, "days": 2,
            "harvested": {"host_days": 12, "mean": 3.14159}, "held_out": null, "difference": null}"#;
        let row = row(&serde_json::from_str(text).expect("a metric"));
        assert_eq!(row, ["n", "2", "3.14 (12 host-days)", "-", "-", "-", "too few days"]);
    }
}
