//! `gleaner wait`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobState, JobStatus};
use indicatif::ProgressBar;

use crate::client::{Client, Format, Options};
use crate::failure::Failure;
use crate::{jobs, process, show};

/// Waits until jobs have ended. The exit code is 1 if one has failed workunits or was cancelled.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The jobs, as job-17 or 17.
    #[arg(required = true)]
    jobs: Vec<JobId>,
    /// Gives up after this many seconds, with exit code 6.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let all = wait_all(&client, &args.jobs);
        let ended = match args.timeout {
            None => all.await?,
            Some(seconds) => {
                let limit = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| Failure::Usage(format!("--timeout {seconds} is no time")))?;
                tokio::time::timeout(limit, all).await.map_err(|_| {
                    Failure::TimedOut(format!("not all jobs have ended after {seconds} s"))
                })??
            }
        };
        jobs::print(&ended, args.options.format);
        let completed = ended.iter().all(|job| job.state == JobState::Completed);
        if args.options.format == Format::Table && !completed {
            eprintln!("see `gleaner explain JOB` for the reasons");
        }
        Ok(if completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

async fn wait_all(client: &Client, ids: &[JobId]) -> anyhow::Result<Vec<JobStatus>> {
    let bar = show::progress(0, "workunits");
    loop {
        // Listen first, look then: nothing falls between.
        let mut events = client.raw("/v1/events").await?.bytes_stream();
        let jobs = look(client, ids, &bar).await?;
        if jobs.iter().all(|job| job.state.is_final()) {
            bar.finish_and_clear();
            return Ok(jobs);
        }
        while let Some(event) = events.next().await {
            // Whatever it says, something happened; a broken stream is opened anew.
            if event.is_err() {
                break;
            }
            let jobs = look(client, ids, &bar).await?;
            if jobs.iter().all(|job| job.state.is_final()) {
                bar.finish_and_clear();
                return Ok(jobs);
            }
        }
    }
}

async fn look(client: &Client, ids: &[JobId], bar: &ProgressBar) -> anyhow::Result<Vec<JobStatus>> {
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        let job = client.get(&format!("/v1/jobs/{id}")).await;
        jobs.push(job.with_context(|| format!("cannot look at {id}"))?);
    }
    let count = |of: fn(&JobStatus) -> u32| jobs.iter().map(|job| u64::from(of(job))).sum();
    bar.set_length(count(|job| job.workunits));
    bar.set_position(count(|job| job.decided + job.failed));
    Ok(jobs)
}
