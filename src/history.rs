//! `gleaner history`.

use std::process::ExitCode;

use gleaner_protocol::api::{ApplicationHistory, KindHistory, RecordedApplication};

use crate::client::{Format, Options};
use crate::show::Cell;
use crate::{process, show};

/// Shows how long runs of applications took, and what is predicted from them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The application, as the list without it names it: a kernel, the path of a program, a module.
    application: Option<String>,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        match &args.application {
            Some(application) => {
                let path = format!("/v1/history/{}", encoded(application));
                let history: ApplicationHistory = client.get(&path).await?;
                match args.options.format() {
                    Format::Json => show::json(&history),
                    Format::Table => print_one(&history),
                }
            }
            None => {
                let all: Vec<RecordedApplication> = client.get("/v1/history").await?;
                match args.options.format() {
                    Format::Json => show::json(&all),
                    Format::Table => print_all(&all),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Percent-encoded, but for what stands in most names.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn print_all(all: &[RecordedApplication]) {
    if all.is_empty() {
        show::note("no run is recorded yet: the broker records each output that counts");
    }
    let rows = all.iter().map(|of| {
        [
            show::name(&of.application),
            of.runs.to_string(),
            (of.runs - of.ended.min(of.runs)).to_string(),
            of.kinds.join(", "),
            at(of.last_ms),
        ]
    });
    show::table(["application", "runs", "cut off", "kinds of hosts", "last"], rows.collect());
}

fn print_one(history: &ApplicationHistory) {
    let header = [
        "kind",
        "runs",
        "cut off",
        "median",
        "median CPU",
        "peak MiB",
        "time of a run",
        "error (max)",
        "spread",
    ];
    let rows = history.kinds.iter().map(|of| {
        let KindHistory { runs, ended, .. } = of;
        [
            Cell::from(show::name(&of.kind)),
            runs.to_string().into(),
            (runs - ended.min(runs)).to_string().into(),
            seconds(of.wall_median_us).into(),
            seconds(of.cpu_median_us).into(),
            of.peak_memory_mib.map(|mib| mib.to_string()).unwrap_or_default().into(),
            of.formula.clone().unwrap_or_else(|| "none has ended".into()).into(),
            error(of).into(),
            Cell::lines(
                of.quantiles
                    .iter()
                    .map(|of| format!("{} % ≤ {:.2} ×", (100.0 * of.p).round(), of.ratio)),
            ),
        ]
    });
    show::table(header, rows.collect());
    if history.kinds.iter().any(|of| of.left_out.is_some()) {
        show::note(
            "error: of the last runs, each predicted by all the others; spread: what part of runs \
             takes at most so many times what the formula says",
        );
    }
}

fn error(of: &KindHistory) -> String {
    let shown = |errors: &gleaner_protocol::api::LeftOutErrors| {
        format!("{:.1} % ({:.1} %)", errors.mean_percent, errors.max_percent)
    };
    of.left_out.as_ref().map(shown).unwrap_or_default()
}

fn seconds(microseconds: Option<u64>) -> String {
    let shown = |us: u64| match us {
        0..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..100_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => format!("{:.0} s", us as f64 / 1e6),
    };
    microseconds.map(shown).unwrap_or_default()
}

fn at(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_one_part_of_a_path() {
        assert_eq!(encoded("/usr/bin/x-1 ü"), "%2Fusr%2Fbin%2Fx-1%20%C3%BC");
        assert_eq!(encoded("npairs/left"), "npairs%2Fleft");
    }

    #[test]
    fn times_are_shown_with_their_units() {
        let shown = [Some(1_234), Some(1_500_000), Some(250_000_000), None].map(seconds);
        assert_eq!(shown, ["1.23 ms", "1.50 s", "250 s", ""]);
        assert_eq!(at(1_700_000_000_000), "2023-11-14 22:13 UTC");
    }
}
