//! `gleaner fetch`.

mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use gleaner_kernels::application::join_tables;
use gleaner_kernels::isosurface::{JoinedMesh, MeshError, read_ply_part, write_ply};
use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobStatus, ResultFile, ResultState, WorkunitResult};
use gleaner_protocol::limits::RESULT_TEXT_BYTES_MAX;

use crate::client::{Client, Format, Options};
use crate::{explain, process, show};
use follow::{Following, follow};

const PAGE: u32 = 1_000;

/// Workunits that are named one by one where they are missing.
const NAMED_MAX: usize = 20;

/// Longest mesh that is put together, in bytes; it takes about twice as much memory.
const MESH_BYTES_MAX: u64 = 2 << 30;
/// Longest table that is put together, in bytes.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// Fetches what was decided so far. The exit code is 1 if workunits have failed or the broker's
/// disk has lost results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job, as job-17 or 17.
    job: JobId,
    /// Folder to write the outputs to, as INDEX/NAME; without it they are listed. Those of a kernel
    /// with a specification are written as NAME, tables and meshes of several workunits as one.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Prints the sum of the results, which must be whole numbers: the count of a game tree.
    #[arg(long, conflicts_with = "output")]
    sum: bool,
    /// Goes on until the job has ended: prints each result as it is decided, and writes it below --output
    /// as INDEX/NAME.
    #[arg(long, conflicts_with = "sum")]
    follow: bool,
    /// In the order of the workunits: what comes early waits for those before it.
    #[arg(long, requires = "follow")]
    in_order: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        if args.follow {
            let Args { job, in_order, ref output, ref options, .. } = args;
            let (output, format) = (output.as_deref(), options.format());
            return follow(&client, Following { job, in_order, output, format }).await;
        }
        let job: JobStatus = client.get(&format!("/v1/jobs/{}", args.job)).await?;
        let results = all_results(&client, args.job, job.decided + job.failed).await?;
        let failed = results.iter().any(|r| !matches!(r.result, ResultState::Decided { .. }));
        for result in &results {
            if let ResultState::Damaged { reason, .. } = &result.result {
                show::note(format_args!(
                    "error: {}/{} is damaged: {reason}",
                    args.job, result.index
                ));
            }
        }
        let mut all_failed = results.iter();
        if let Some(told) = all_failed.find_map(|result| explain::what_failed(&job, result)) {
            show::note(told);
        }
        if args.sum {
            sum(&job, &results, args.options.format())?;
        } else if let Some(folder) = &args.output {
            match &job.application {
                Some(_) => {
                    write_whole(&client, args.job, &results, folder).await?;
                    if let Some(lacks) = lacks(job.workunits, &results) {
                        show::note(format_args!("{}: {lacks}", args.job));
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
    let mut sum: i128 = 0;
    for result in results {
        let ResultState::Decided { files, .. } = &result.result else { continue };
        let file = number_file(files).with_context(|| {
            format!(
                "{}/{} has no output \"stdout\" or \"result\" to be summed",
                job.job, result.index
            )
        })?;
        let said = shown(file);
        let value: Option<i128> = file.text.as_deref().and_then(|text| text.trim().parse().ok());
        let value = value.with_context(|| {
            let (name, index) = (&file.name, result.index);
            format!("the output {name:?} of {}/{index} is no whole number: {said}", job.job)
        })?;
        sum = sum.checked_add(value).context("the sum is too large")?;
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

/// The output that is a number: the only one, or what a program printed or a kernel computed.
fn number_file(files: &[ResultFile]) -> Option<&ResultFile> {
    match files {
        [file] => Some(file),
        _ => files.iter().find(|file| matches!(file.name.as_str(), "stdout" | "result")),
    }
}

/// A file's content in a table, or what it is instead of short text.
fn shown(file: &ResultFile) -> String {
    match &file.text {
        Some(text) if text.trim().is_empty() => "(empty)".into(),
        Some(text) => text.trim_end().to_owned(),
        None if file.bytes > RESULT_TEXT_BYTES_MAX as u64 => format!("({} bytes)", file.bytes),
        None => "(no text)".into(),
    }
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
                let (index, bytes) = (result.index.to_string(), file.bytes.to_string());
                [index, show::name(&file.name), bytes, shown(file)]
            })
            .collect(),
    });
    show::table(["workunit", "file", "bytes", "content"], rows.collect());
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
        let written = match name.ends_with(".ply") {
            true => write_mesh(client, job, name, &parts, folder).await,
            false => write_table(client, job, name, &parts, folder).await,
        };
        if let Err(error) = written {
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

/// Writes one mesh of those that workunits have made in bricks of one volume.
async fn write_mesh(
    client: &Client,
    job: JobId,
    name: &str,
    parts: &[(u32, &ResultFile)],
    folder: &Path,
) -> anyhow::Result<()> {
    let instead = format!("fetch each from the broker's /v1/jobs/{job}/results/INDEX/{name}");
    let bytes: u64 = parts.iter().map(|(_, file)| file.bytes).sum();
    if bytes > MESH_BYTES_MAX {
        let count = parts.len();
        bail!(
            "{name} has {bytes} bytes in {count} workunits, more than the {MESH_BYTES_MAX} that are put \
             together: {instead}"
        );
    }
    let mut joined = JoinedMesh::default();
    for (index, _) in parts {
        let answer = client.raw(&format!("/v1/jobs/{job}/results/{index}/{name}")).await?;
        let part = answer.bytes().await.with_context(|| format!("{name} broke off"))?;
        let part = read_ply_part(&part).and_then(|part| joined.add(&part));
        part.with_context(|| format!("{name} of {job}/{index} cannot be put together: {instead}"))?;
    }
    let path = plain_path(folder, name)?;
    let file = fs::File::create(&path).map_err(MeshError::Write);
    let written = file.and_then(|file| write_ply(joined.whole(), BufWriter::new(file)));
    written.with_context(|| format!("cannot write {}", path.display()))
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
    fn a_content_that_is_no_short_text_says_what_it_is() {
        let file = |bytes: u64, text: Option<&str>| ResultFile {
            name: "stdout".into(),
            bytes,
            text: text.map(str::to_owned),
        };
        for (file, said) in [
            (file(2, Some("7\n")), "7"),
            (file(8, None), "(no text)"),
            (file(256, None), "(no text)"),
            (file(257, None), "(257 bytes)"),
            (file(0, Some("")), "(empty)"),
            (file(2, Some(" \n")), "(empty)"),
        ] {
            assert_eq!(shown(&file), said);
        }
    }

    #[test]
    fn what_is_summed_is_what_was_printed() {
        let named = |names: &[&str]| {
            let files = names.iter().map(|name| ResultFile {
                name: (*name).to_owned(),
                bytes: 1,
                text: Some("1".into()),
            });
            let files: Vec<ResultFile> = files.collect();
            number_file(&files).map(|file| file.name.clone())
        };
        assert_eq!(named(&["note", "stdout"]).as_deref(), Some("stdout"));
        assert_eq!(named(&["result"]).as_deref(), Some("result"));
        assert_eq!(named(&["count"]).as_deref(), Some("count"));
        assert_eq!(named(&["a", "b"]), None);
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
