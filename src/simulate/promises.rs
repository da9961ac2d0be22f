//! `gleaner simulate promises`.

use std::process::ExitCode;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use gleaner_simulator::{Progress, PromisesConfig, PromisesReport, promises};

use super::progress::Shown;
use crate::client::Format;
use crate::failure::Failure;
use crate::show;

/// Submits jobs with due times to a recorded farm, and says how many promises were kept.
///
/// Each job is accepted with a chance of at least the confidence, or declined with the earliest
/// due time that has it, which its submitter takes unless it is too late. What is decided knows
/// only what was seen so far. Beside the forecast decide those who think that as many cores stay
/// open as are open now, that any past hours come again, and one who knows the open cores to come.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// A log of a farm: of gleaner monitor --record, HTCondor, the Standard Workload Format, or a
    /// day of loads (lines `name,288 values`). May be given often; days of loads are one farm,
    /// behind each other.
    #[arg(long, value_name = "FILE", required = true)]
    log: Vec<String>,
    /// Where all chance comes from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The chance that submitters ask for.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.9, value_parser = number(0.5, 0.99))]
    confidence: f64,
    /// Work that is submitted, as a share of all that is harvested.
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = number(0.01, 10.0))]
    load: f64,
    /// Standard deviation of the logarithm of a task's time, which is log-normal.
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = number(0.0, 2.0))]
    sigma: f64,
    /// The same of what all tasks of a job have in common.
    #[arg(long, value_name = "S", default_value_t = 0.15, value_parser = number(0.0, 2.0))]
    shared_sigma: f64,
    /// Within how many hours an offered due time is taken.
    #[arg(long, value_name = "H", default_value_t = 24.0, value_parser = number(0.0, 72.0))]
    patience_h: f64,
    /// Days at the beginning of each log that are seen, and not judged.
    #[arg(long, value_name = "DAYS", default_value_t = 0.0, value_parser = number(0.0, 10_000.0))]
    from_day: f64,
    /// Days of each log that are replayed [default: all].
    #[arg(long, value_name = "DAYS", value_parser = number(1.0, 10_000.0))]
    until_day: Option<f64>,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

const HELP: &str = "\
JSON (--format json):
  accepted, in_time_share, worst_week_share  promised jobs, and the share that was done in time:
        of all, and of the week where it is least (of those with 20 promises)
  calibration_error  mean distance between said chances of so many open cores and what came
  calibration_error_by_chance  the same where all chances are right: what so few that overlap leave
  brier, brier_climatology  mean squared error of these chances 1, 2 and 4 hours ahead, and of the
        share of past hours with as many cores; brier_24h, brier_climatology_24h: a day ahead
  of_clairvoyant  jobs in time, for each one of who knows the open cores to come and not the run
        times, and promises at the same confidence
  baselines  {as_now, climatology, clairvoyant: {accepted, as_wished, in_time_share}}
A number that nothing defines (the share of no job) is null.";

pub(super) fn run(args: Args, quiet: bool) -> anyhow::Result<ExitCode> {
    let config = PromisesConfig {
        logs: args.log,
        seed: args.seed,
        confidence: args.confidence,
        load: args.load,
        sigma: args.sigma,
        shared_sigma: args.shared_sigma,
        patience_h: args.patience_h,
        from_day: args.from_day,
        until_day: args.until_day.unwrap_or(f64::INFINITY),
        ..PromisesConfig::default()
    };
    let shown = Shown::begin(quiet);
    let told = |part: u32| shown.done(part, "promises");
    let report = promises(&config, &told).map_err(Failure::Usage)?;
    shown.end();
    match args.format {
        Format::Json => show::json(&report),
        Format::Table => show::lines(table(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(report: &PromisesReport) -> Table {
    let share = |share: Option<f64>| share.map(|share| format!("{share:.4}")).unwrap_or_default();
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(["decider", "accepted", "as wished", "in time"]);
    for (name, of) in &report.baselines {
        let counts = [of.accepted.to_string(), of.as_wished.to_string()];
        let [accepted, as_wished] = counts;
        table.add_row([(*name).to_owned(), accepted, as_wished, share(of.in_time_share)]);
    }
    let (accepted, as_wished) = (report.accepted.to_string(), report.as_wished.to_string());
    table.add_row(["gleaner".into(), accepted, as_wished, share(report.in_time_share)]);
    for (name, number) in [
        ("worst week", report.worst_week_share),
        ("of clairvoyant", report.of_clairvoyant),
        ("calibration error", report.calibration_error),
        ("by chance alone", report.calibration_error_by_chance),
        ("of promises", report.promise_calibration_error),
        ("Brier, 1 to 4 h", report.brier),
        ("climatology", report.brier_climatology),
        ("Brier, 24 h", report.brier_24h),
        ("climatology", report.brier_climatology_24h),
    ] {
        table.add_row([name.to_owned(), String::new(), String::new(), share(number)]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn number(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text: &str| {
        let expected = || format!("{text:?} is no number from {least} to {most}");
        let number: f64 = text.parse().map_err(|_| expected())?;
        if (least..=most).contains(&number) { Ok(number) } else { Err(expected()) }
    }
}
