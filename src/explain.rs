//! `gleaner explain`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::Explanation;

use crate::client::{Format, Options};
use crate::failure::Failure;
use crate::{process, show};

/// Says why a job or one of its workunits waits, runs or has ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job (job-17), or the workunit (job-17/3).
    subject: String,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = path(&args.subject)?;
    process::block_on(async {
        let explanation: Explanation = args.options.client()?.get(&path).await?;
        match args.options.format() {
            Format::Json => show::json(&explanation),
            Format::Table => {
                show::line(format_args!("{}: {}", explanation.subject, explanation.summary));
                for reason in &explanation.reasons {
                    show::line(format_args!("  {:24} {}", reason.code, reason.text));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn path(subject: &str) -> Result<String, Failure> {
    let (job, index) = match subject.split_once('/') {
        Some((job, index)) => (job, Some(index)),
        None => (subject, None),
    };
    let job: JobId = job.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    let Some(index) = index else { return Ok(format!("/v1/explain/{job}")) };
    let index: u32 = index.parse().map_err(|_| {
        Failure::Usage(format!("{index:?} is no workunit's index; expected job-17/3"))
    })?;
    Ok(format!("/v1/explain/{job}/{index}"))
}
