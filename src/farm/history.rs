//! `gleaner farm history`: what the farm did over time, as its broker saw it.

use std::process::ExitCode;

use gleaner_protocol::Span;
use gleaner_protocol::api::{FarmHistoryRow, LaneCores};

use crate::agent::control::parse_duration;
use crate::client::Broker;
use crate::{process, show, wall_clock};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How long a row is: minute (of the last two days), hour (90 days) or day (of UTC, ten years).
    #[arg(long, default_value = "hour", value_name = "LENGTH")]
    by: By,
    /// Only rows of the last so much time: 30m, 24h, 7d.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    last: Option<Span>,
    #[command(flatten)]
    broker: Broker,
    /// For people, for programs, or for spreadsheets.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// How long a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Minute,
    Hour,
    Day,
}

impl By {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
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

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let mut path = format!("/v1/farm/history?by={}", args.by.as_str());
        if let Some(last) = args.last {
            let now_ms = u64::try_from(wall_clock::now().timestamp().as_millisecond()).unwrap_or(0);
            path += &format!("&from_ms={}", now_ms.saturating_sub(last.as_millis()));
        }
        let rows: Vec<FarmHistoryRow> = args.broker.client()?.get(&path).await?;
        match args.format {
            Format::Json => show::json(&rows),
            Format::Csv => show::script(csv(&rows).trim_end()),
            Format::Table => print(&rows),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(rows: &[FarmHistoryRow]) {
    if rows.is_empty() {
        show::note("the broker has seen nothing of the farm then");
    }
    let header = [
        "from",
        "hosts",
        "rendered",
        "harvested",
        "idle",
        "closed",
        "counted",
        "failed",
        "given back",
        "CPU hours",
    ];
    let rows = rows.iter().map(|row| {
        let cores = |cores: f64| format!("{cores:.2}");
        [
            show::time(row.start_ms),
            cores(row.hosts),
            cores(row.rendered),
            cores(row.harvested),
            cores(row.idle),
            cores(row.closed),
            row.counted.to_string(),
            row.failed.to_string(),
            row.released.to_string(),
            format!("{:.3}", row.accepted_cpu_s / 3_600.0),
        ]
    });
    show::table(header, rows.collect());
}

fn csv(rows: &[FarmHistoryRow]) -> String {
    let mut text = "start_ms,seen_s,hosts,rendered,harvested,idle,closed,counted,failed,released,\
                    ended_otherwise,accepted_cpu_s,rendering,deadline,dataset,batch,background\n"
        .to_owned();
    for row in rows {
        let FarmHistoryRow {
            start_ms,
            seen_s,
            hosts,
            rendered,
            harvested,
            idle,
            closed,
            counted,
            failed,
            released,
            ended_otherwise,
            accepted_cpu_s,
            lanes: LaneCores { rendering, deadline, dataset, batch, background },
        } = row;
        text += &format!(
            "{start_ms},{seen_s},{hosts},{rendered},{harvested},{idle},{closed},{counted},{failed},\
             {released},{ended_otherwise},{accepted_cpu_s},{rendering},{deadline},{dataset},{batch},\
             {background}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_csv_has_what_the_header_says() {
        let json = r#"{"start_ms":60000,"seen_s":60,"hosts":2,"rendered":1.5,"harvested":3,"idle":0.5,
            "closed":0,"counted":7,"failed":1,"released":2,"ended_otherwise":3,"accepted_cpu_s":9.25,
            "lanes":{"rendering":0,"deadline":0,"dataset":1,"batch":2,"background":0}}"#;
        let row: FarmHistoryRow = serde_json::from_str(json).expect("a row");
        let text = csv(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "60000,60,2,1.5,3,0.5,0,7,1,2,3,9.25,0,0,1,2,0");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    }
}
