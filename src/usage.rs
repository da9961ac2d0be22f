//! `gleaner usage`.

use std::process::ExitCode;

use gleaner_protocol::api::{HistoryBy, UsageRow};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::client::Broker;
use crate::failure::Failure;
use crate::{process, show};

/// Sums what replicas took that have ended, and what of it is charged: by project, owner, job, host or
/// outcome.
///
/// Credit is what hosts have done for others: for each accepted output the least CPU time that one of
/// its replicas took, the same for each of them. Jobs of a host's own owner earn nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What a row is of.
    #[arg(
        long,
        default_value = "owner",
        default_value_if("mine", "true", "host"),
        value_name = "WHAT"
    )]
    by: By,
    /// Rows of each of these, of UTC, in which the replicas ended.
    #[arg(long, value_name = "TIME")]
    each: Option<Each>,
    /// Only what ran on hosts of the owner whose key you have joined with, whosever job it was.
    #[arg(long)]
    mine: bool,
    /// The first day, as 2026-11-01, in UTC. A replica counts on the day on which it ended.
    #[arg(long, value_name = "DAY")]
    from: Option<Date>,
    /// The last day, which counts as well.
    #[arg(long, value_name = "DAY")]
    to: Option<Date>,
    #[command(flatten)]
    broker: Broker,
    /// For people, for programs, or for spreadsheets.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Project,
    Owner,
    Job,
    Host,
    /// The owner of the host.
    HostOwner,
    Outcome,
}

impl By {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Owner => "owner",
            Self::Job => "job",
            Self::Host => "host",
            Self::HostOwner => "host-owner",
            Self::Outcome => "outcome",
        }
    }
}

/// How long a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Each {
    Minute,
    Hour,
    Day,
}

impl Each {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => HistoryBy::Minute.as_str(),
            Self::Hour => HistoryBy::Hour.as_str(),
            Self::Day => HistoryBy::Day.as_str(),
        }
    }
}

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// Lines of values between commas, below a header.
    Csv,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let path = path(args)?;
        let rows: Vec<UsageRow> = args.broker.client()?.get(&path).await?;
        match args.format {
            Format::Json => show::json(&rows),
            Format::Csv => show::script(csv(&rows).trim_end()),
            Format::Table => print(args.by, &rows),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn path(args: &Args) -> anyhow::Result<String> {
    let mut path = format!("/v1/usage?by={}", args.by.as_str());
    if let Some(each) = args.each {
        path += &format!("&each={}", each.as_str());
    }
    if args.mine {
        path += "&mine=true";
    }
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(Failure::Usage(format!("--from {from} is after --to {to}")).into());
    }
    if let Some(from) = args.from {
        path += &format!("&from_ms={}", begin_ms(from)?);
    }
    if let Some(to) = args.to {
        path += &format!("&to_ms={}", begin_ms(to.tomorrow()?)?);
    }
    Ok(path)
}

/// When a day begins, in milliseconds of UTC.
fn begin_ms(day: Date) -> anyhow::Result<u64> {
    let ms = day.to_zoned(TimeZone::UTC)?.timestamp().as_millisecond();
    Ok(u64::try_from(ms).unwrap_or(0))
}

/// What a row is of, in a word, after when it begins.
fn name(row: &UsageRow) -> String {
    let job = row.job.map(|job| job.to_string());
    let owner = row.owner.as_ref().map(ToString::to_string);
    let host = row.host.as_ref().map(ToString::to_string);
    let host_owner = row.host_owner.as_ref().map(ToString::to_string);
    let outcome = row.outcome.map(|outcome| outcome.as_str().to_owned());
    let project = row.project.as_ref().map(ToString::to_string);
    let of = project.or(owner).or(job).or(host).or(host_owner).or(outcome).unwrap_or_default();
    match row.start_ms {
        Some(start_ms) => format!("{} {of}", show::time(start_ms)),
        None => of,
    }
}

fn print(by: By, rows: &[UsageRow]) {
    if rows.is_empty() {
        show::note("no replica is recorded that has ended then");
    }
    let header = [
        by.as_str(),
        "replicas",
        "accepted",
        "slot hours",
        "CPU hours",
        "charged hours",
        "credit hours",
    ];
    let hours = |seconds: f64| format!("{:.3}", seconds / 3_600.0);
    let rows = rows.iter().map(|row| {
        [
            show::name(&name(row)),
            row.replicas.to_string(),
            row.accepted.to_string(),
            hours(row.slot_s),
            hours(row.cpu_s),
            hours(row.charged_s),
            hours(row.credit_s),
        ]
    });
    show::table(header, rows.collect());
}

/// No name has a comma or a quote in it.
fn csv(rows: &[UsageRow]) -> String {
    let mut text =
        "start_ms,project,owner,job,host,host_owner,outcome,slot_s,cpu_s,gpu_s,replicas,accepted,charged_s,\
         credit_s\n"
            .to_owned();
    for row in rows {
        let UsageRow { slot_s, cpu_s, gpu_s, replicas, accepted, charged_s, credit_s, .. } = row;
        let start_ms = row.start_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let project = row.project.as_ref().map(ToString::to_string).unwrap_or_default();
        let owner = row.owner.as_ref().map(ToString::to_string).unwrap_or_default();
        let job = row.job.map(|job| job.get().to_string()).unwrap_or_default();
        let host = row.host.as_ref().map(ToString::to_string).unwrap_or_default();
        let host_owner = row.host_owner.as_ref().map(ToString::to_string).unwrap_or_default();
        let outcome = row.outcome.map_or("", |outcome| outcome.as_str());
        text += &format!(
            "{start_ms},{project},{owner},{job},{host},{host_owner},{outcome},{slot_s},{cpu_s},{gpu_s},\
             {replicas},{accepted},{charged_s},{credit_s}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gleaner_protocol::JobId;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    fn asked(options: &[&str]) -> Result<String, String> {
        let words = ["usage"].into_iter().chain(options.iter().copied());
        let only = Only::try_parse_from(words).map_err(|error| error.to_string())?;
        path(&only.args).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn days_are_those_of_utc_and_the_last_one_counts() {
        assert_eq!(asked(&[]).as_deref(), Ok("/v1/usage?by=owner"));
        let november = ["--by", "job", "--from", "2026-11-01", "--to", "2026-11-30"];
        let path = "/v1/usage?by=job&from_ms=1793491200000&to_ms=1796083200000";
        assert_eq!(asked(&november).as_deref(), Ok(path));
        assert_eq!(1_796_083_200_000 - 1_793_491_200_000, 30 * 86_400_000_u64);
        let refused = asked(&["--from", "2026-11-02", "--to", "2026-11-01"]);
        assert!(refused.expect_err("refused").contains("is after"));
        assert_eq!(asked(&["--mine"]).as_deref(), Ok("/v1/usage?by=host&mine=true"));
        let outcomes = asked(&["--mine", "--by", "outcome"]);
        assert_eq!(outcomes.as_deref(), Ok("/v1/usage?by=outcome&mine=true"));
        let hours = asked(&["--by", "project", "--each", "hour"]);
        assert_eq!(hours.as_deref(), Ok("/v1/usage?by=project&each=hour"));
        assert!(asked(&["--from", "yesterday"]).is_err());
        assert!(asked(&["--by", "weather"]).is_err());
    }

    #[test]
    fn a_line_of_csv_has_what_the_header_says() {
        let row = UsageRow {
            start_ms: Some(60_000),
            project: None,
            owner: None,
            job: Some(JobId::new(17)),
            host: None,
            host_owner: None,
            outcome: None,
            slot_s: 1.5,
            cpu_s: 0.25,
            gpu_s: 0.0,
            replicas: 3,
            accepted: 2,
            charged_s: 1.0,
            credit_s: 0.5,
        };
        let text = csv(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "60000,,,17,,,,1.5,0.25,0,3,2,1,0.5");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    }
}
