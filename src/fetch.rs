//! `gleaner fetch`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobStatus, ResultFile, ResultState, WorkunitResult};

use crate::client::{Client, Format, Options};
use crate::{process, show};

const PAGE: u32 = 1_000;

/// Fetches what was decided so far. The exit code is 1 if workunits have failed or the broker's
/// disk has lost results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job, as job-17 or 17.
    job: JobId,
    /// Folder to write the outputs to, as INDEX/NAME; without it they are listed.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Prints the sum of the results, which must be whole numbers: the count of a game tree.
    #[arg(long, conflicts_with = "output")]
    sum: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let job: JobStatus = client.get(&format!("/v1/jobs/{}", args.job)).await?;
        let results = all_results(&client, args.job, job.decided + job.failed).await?;
        let failed = results.iter().any(|r| !matches!(r.result, ResultState::Decided { .. }));
        for result in &results {
            if let ResultState::Damaged { reason, .. } = &result.result {
                eprintln!("error: {}/{} is damaged: {reason}", args.job, result.index);
            }
        }
        if args.sum {
            sum(&job, &results, args.options.format)?;
        } else if let Some(folder) = &args.output {
            write_all(&client, args.job, &results, folder).await?;
        } else if args.options.format == Format::Json {
            show::json(&results);
        } else {
            list(&results);
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

async fn all_results(
    client: &Client,
    job: JobId,
    expected: u32,
) -> anyhow::Result<Vec<WorkunitResult>> {
    let bar = show::progress(expected.into(), "results");
    let mut results: Vec<WorkunitResult> = Vec::new();
    loop {
        let from = results.last().map_or(0, |last| last.index + 1);
        let page = client.results(job, from, PAGE).await?;
        if page.is_empty() {
            bar.finish_and_clear();
            return Ok(results);
        }
        results.extend(page);
        bar.set_position(results.len() as u64);
    }
}

fn sum(job: &JobStatus, results: &[WorkunitResult], format: Format) -> anyhow::Result<()> {
    let mut sum: u128 = 0;
    for result in results {
        let ResultState::Decided { files, .. } = &result.result else { continue };
        let text = files.first().and_then(|file| file.text.as_deref()).unwrap_or_default();
        let value: u64 = text.trim().parse().with_context(|| {
            format!("the result of {}/{} is no whole number", job.job, result.index)
        })?;
        sum += u128::from(value);
    }
    if format == Format::Json {
        let whole = job.decided == job.workunits;
        show::json(
            &serde_json::json!({ "job": job.job, "sum": sum.to_string(), "complete": whole }),
        );
    } else {
        show::line(sum);
        if job.decided < job.workunits {
            eprintln!("of {} of {} workunits", job.decided, job.workunits);
        }
    }
    Ok(())
}

fn list(results: &[WorkunitResult]) {
    let rows = results.iter().flat_map(|result| match &result.result {
        ResultState::Failed { reason } => {
            vec![[result.index.to_string(), "failed".into(), String::new(), reason.clone()]]
        }
        ResultState::Damaged { reason, .. } => {
            vec![[result.index.to_string(), "damaged".into(), String::new(), reason.clone()]]
        }
        ResultState::Decided { files, .. } => files
            .iter()
            .map(|file| {
                let text = file.text.clone().unwrap_or_default();
                [
                    result.index.to_string(),
                    file.name.clone(),
                    file.bytes.to_string(),
                    text.trim_end().to_owned(),
                ]
            })
            .collect(),
    });
    show::line(show::table(["workunit", "file", "bytes", "content"], rows.collect()));
}

async fn write_all(
    client: &Client,
    job: JobId,
    results: &[WorkunitResult],
    folder: &Path,
) -> anyhow::Result<()> {
    let bar = show::progress(results.len() as u64, "workunits");
    for result in results {
        bar.inc(1);
        let ResultState::Decided { files, .. } = &result.result else { continue };
        let folder = folder.join(result.index.to_string());
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        for file in files {
            write_one(client, job, result.index, file, &folder).await?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

async fn write_one(
    client: &Client,
    job: JobId,
    index: u32,
    file: &ResultFile,
    folder: &Path,
) -> anyhow::Result<()> {
    if Path::new(&file.name).components().count() != 1 || file.name.starts_with('.') {
        bail!("the broker names a file {:?}, which is no plain name", file.name);
    }
    let path = folder.join(&file.name);
    let answer = client.raw(&format!("/v1/jobs/{job}/results/{index}/{}", file.name)).await?;
    let mut stream = answer.bytes_stream();
    let mut target =
        fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    while let Some(piece) = stream.next().await {
        let piece = piece.with_context(|| format!("{} broke off", file.name))?;
        std::io::Write::write_all(&mut target, &piece)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
