//! `gleaner explain`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::{Explanation, JobStatus, ResultState, WorkunitResult};

use crate::client::{Client, Format, Options};
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

/// Reasons of a job that nothing but another host, or another broker's configuration, changes.
const NOBODY_CAN: [&str; 3] = ["no-hosts", "nobody-can", "too-few-voters"];

/// Says on stderr that a job waits for a host that nobody has connected, if so. That it cannot be
/// said is no failure: the job is there.
pub(crate) async fn warn_if_nobody_can(client: &Client, job: JobId) {
    let asked: Result<Explanation, _> = client.get(&format!("/v1/explain/{job}")).await;
    let Ok(explanation) = asked else { return };
    let told = explanation.reasons.iter().filter(|of| NOBODY_CAN.contains(&of.code.as_str()));
    for reason in told {
        show::note(format_args!("warning: {job} waits: {}", reason.text));
    }
}

/// What of a job failed, for stderr: how many of how many, the first, and why.
pub(crate) fn what_failed(job: &JobStatus, first: &WorkunitResult) -> Option<String> {
    let ResultState::Failed { reason } = &first.result else { return None };
    let (id, JobStatus { failed, workunits, .. }) = (job.job, job);
    let index = first.index;
    Some(format!(
        "{id}: {failed} of {workunits} workunits failed, the first is {id}/{index}: {}; \
         `gleaner explain {id}` tells of all",
        show::plain(reason)
    ))
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
