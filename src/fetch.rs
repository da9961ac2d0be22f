//! `gleaner fetch`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use gleaner_kernels::application::join_tables;
use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobStatus, ResultFile, ResultState, WorkunitResult};

use crate::client::{Client, Format, Options};
use crate::{process, show};

const PAGE: u32 = 1_000;

/// Workunits that are named one by one where they are missing.
const NAMED_MAX: usize = 20;

/// Longest table that is put together, in bytes.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// Fetches what was decided so far. The exit code is 1 if workunits have failed or the broker's
/// disk has lost results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job, as job-17 or 17.
    job: JobId,
    /// Folder to write the outputs to, as INDEX/NAME; without it they are listed. Those of a kernel
    /// with a specification are written as NAME, tables of several workunits as one.
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
            sum(&job, &results, args.options.format())?;
        } else if let Some(folder) = &args.output {
            match &job.application {
                Some(_) => {
                    write_whole(&client, args.job, &results, folder).await?;
                    if let Some(lacks) = lacks(job.workunits, &results) {
                        eprintln!("{}: {lacks}", args.job);
                    }
                }
                None => write_all(&client, args.job, &results, folder).await?,
            }
        } else if args.options.format() == Format::Json {
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
        make(&folder)?;
        for file in files {
            write_one(client, job, result.index, file, &folder).await?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Writes what workunits have made that are parts of one result.
async fn write_whole(
    client: &Client,
    job: JobId,
    results: &[WorkunitResult],
    folder: &Path,
) -> anyhow::Result<()> {
    make(folder)?;
    let mut files: BTreeMap<&str, Vec<(u32, &ResultFile)>> = BTreeMap::new();
    for result in results {
        let ResultState::Decided { files: of, .. } = &result.result else { continue };
        for file in of {
            files.entry(&file.name).or_default().push((result.index, file));
        }
    }
    // What is whole already comes first: nothing that is wrong with a table keeps it back.
    for parts in files.values() {
        if let [(index, file)] = parts[..] {
            write_one(client, job, index, file, folder).await?;
        }
    }
    let mut trouble = None;
    for (name, parts) in files.into_iter().filter(|(_, parts)| parts.len() > 1) {
        if let Err(error) = write_table(client, job, name, &parts, folder).await {
            trouble.get_or_insert(error);
        }
    }
    trouble.map_or(Ok(()), Err)
}

/// Writes one table of the parts that workunits have made.
async fn write_table(
    client: &Client,
    job: JobId,
    name: &str,
    parts: &[(u32, &ResultFile)],
    folder: &Path,
) -> anyhow::Result<()> {
    let instead = format!("fetch each from the broker's /v1/jobs/{job}/results/INDEX/{name}");
    let bytes: u64 = parts.iter().map(|(_, file)| file.bytes).sum();
    if bytes > TABLE_BYTES_MAX {
        let count = parts.len();
        bail!(
            "{name} has {bytes} bytes in {count} workunits, more than the {TABLE_BYTES_MAX} that are \
             put together: {instead}"
        );
    }
    let mut texts = Vec::new();
    for (index, file) in parts {
        texts.push(text(client, job, *index, file).await?);
    }
    let whole = join_tables(&texts).with_context(|| {
        format!("{name} of several workunits are no tables with the same columns: {instead}")
    })?;
    let path = plain_path(folder, name)?;
    fs::write(&path, whole).with_context(|| format!("cannot write {}", path.display()))
}

/// What a result that is put together of workunits lacks, if it is not whole.
fn lacks(workunits: u32, results: &[WorkunitResult]) -> Option<String> {
    let is_decided = |r: &&WorkunitResult| matches!(r.result, ResultState::Decided { .. });
    let decided: BTreeSet<u32> = results.iter().filter(is_decided).map(|r| r.index).collect();
    let missing = || (0..workunits).filter(|index| !decided.contains(index));
    let mut named: Vec<String> = missing().take(NAMED_MAX).map(|index| index.to_string()).collect();
    if named.is_empty() {
        return None;
    }
    let more = missing().count() - named.len();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Some(format!(
        "{} of {workunits} workunits are decided; what was written lacks what is in: {}",
        decided.len(),
        named.join(", ")
    ))
}

async fn text(
    client: &Client,
    job: JobId,
    index: u32,
    file: &ResultFile,
) -> anyhow::Result<String> {
    let name = &file.name;
    let answer = client.raw(&format!("/v1/jobs/{job}/results/{index}/{name}")).await?;
    answer.text().await.with_context(|| format!("{name} broke off"))
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// A file of a folder; what the broker says is no path.
fn plain_path(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    if Path::new(name).components().count() != 1 || name.starts_with('.') {
        bail!("the broker names a file {name:?}, which is no plain name");
    }
    Ok(folder.join(name))
}

async fn write_one(
    client: &Client,
    job: JobId,
    index: u32,
    file: &ResultFile,
    folder: &Path,
) -> anyhow::Result<()> {
    let path = plain_path(folder, &file.name)?;
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

#[cfg(test)]
mod tests {
    use gleaner_protocol::Digest;

    use super::*;

    fn decided(index: u32) -> WorkunitResult {
        let (digest, files) = (Digest::of(b""), Vec::new());
        WorkunitResult { index, result: ResultState::Decided { digest, files } }
    }

    #[test]
    fn what_is_not_whole_says_what_it_lacks() {
        let failed = ResultState::Failed { reason: "no".into() };
        let failed = WorkunitResult { index: 2, result: failed };
        let said = lacks(4, &[decided(0), failed, decided(3)]).expect("two are missing");
        assert!(said.starts_with("2 of 4 workunits are decided;"), "{said}");
        assert!(said.ends_with(": 1, 2"), "{said}");
        assert_eq!(lacks(2, &[decided(0), decided(1)]), None);
        let many = lacks(1_000_000, &[]).expect("all are missing");
        assert!(many.starts_with("0 of 1000000 ") && many.ends_with(", 999980 more"), "{many}");
    }
}
