//! `gleaner kernel times`: how long kernels took on the hosts of a broker.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use gleaner_kernels::application::Application;
use gleaner_protocol::KernelTime;
use serde::Serialize;

use super::application;
use crate::client::{Format, Options};
use crate::{process, show};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which kernel [default: all].
    #[arg(value_parser = application())]
    kernel: Option<Application>,
    /// Of this size only.
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// On hosts of this kind only.
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Writes each measurement to a file, as a profile, in the place of a table of all.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub(super) const HELP: &str = "\
Each replica of a kernel with a specification is measured whose output counts: CPU time where one core
computed it, what went by where a GPU did, its files read and the GPU opened. The kind of a host is
what its agent was told (gleaner agent --kind fat), and its GPU is one of its own (fat-gpu); of a host
whose agent was told nothing they are cpu and gpu.

Example: what a study would take that is like one that ran
  gleaner kernel times npairs --size 120x13440 --output times.csv
  gleaner simulate mixed-npairs --set profile=times.csv --set components_min=1 --set components_max=8

Exit codes:
  0  done
  1  the file cannot be written
  3  the broker cannot be reached";

/// All measurements that are alike.
#[derive(Debug, Serialize)]
struct Row {
    kernel: String,
    part: String,
    size: String,
    kind: String,
    /// In the order in which they came.
    seconds: Vec<f64>,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { kernel, size, kind, output, options } = args;
    let text = process::block_on(async {
        let answer = options.client()?.raw("/v1/kernel-times").await?;
        answer.text().await.context("the broker's answer is cut off")
    })?;
    let mut lines = text.lines();
    if lines.next() != Some(KernelTime::HEADER) {
        bail!("the broker's answer is no profile: run the same release on both ends");
    }
    let times: Result<Vec<KernelTime>, _> = lines.map(str::parse).collect();
    let mut times = times.context("the broker's answer is no profile")?;
    times.retain(|time| {
        kernel.is_none_or(|kernel| time.kernel.as_str() == kernel.name())
            && size.as_ref().is_none_or(|size| time.size.as_str() == size)
            && kind.as_ref().is_none_or(|kind| time.kind.as_str() == kind)
    });
    if let Some(path) = output {
        let lines: String = times.iter().map(|time| format!("{time}\n")).collect();
        fs::write(&path, format!("{}\n{lines}", KernelTime::HEADER))
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{}: {} measurements", path.display(), times.len());
        return Ok(ExitCode::SUCCESS);
    }
    let rows = rows(times);
    match options.format() {
        Format::Json => show::json(&rows),
        Format::Table if rows.is_empty() => eprintln!("nothing of that was measured yet"),
        Format::Table => print(rows),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is alike, together: by kernel, size and part, those of numbers in their order, and then by
/// kind.
fn rows(times: Vec<KernelTime>) -> Vec<Row> {
    let mut alike: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for KernelTime { kernel, part, size, kind, run_us } in times {
        let number: Option<u64> = part.parse().ok();
        let seconds = run_us as f64 / 1e6;
        alike.entry((kernel, size, number, part, kind)).or_default().push(seconds);
    }
    alike
        .into_iter()
        .map(|((kernel, size, _, part, kind), seconds)| Row {
            kernel: kernel.to_string(),
            part,
            size: size.to_string(),
            kind: kind.to_string(),
            seconds,
        })
        .collect()
}

fn print(rows: Vec<Row>) {
    let header = ["kernel", "part", "size", "kind", "replicas", "seconds, median"];
    let rows = rows.into_iter().map(|Row { kernel, part, size, kind, mut seconds }| {
        seconds.sort_by(f64::total_cmp);
        let (low, high) = (seconds[(seconds.len() - 1) / 2], seconds[seconds.len() / 2]);
        let (count, median) = (seconds.len().to_string(), f64::midpoint(low, high));
        [kernel, part, size, kind, count, format!("{median:.3}")]
    });
    show::table(header, rows.collect());
}
