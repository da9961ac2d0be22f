//! `gleaner jobs` and `gleaner status`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::JobStatus;

use crate::client::{Format, Options};
use crate::{process, show};

/// Lists all jobs in order of submission.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

/// Shows one job. The exit code is 1 for a job that has ended with failed workunits.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The job, as job-17 or 17.
    job: JobId,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let jobs: Vec<JobStatus> = args.options.client()?.get("/v1/jobs").await?;
        print(&jobs, args.options.format());
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn run_status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let job: JobStatus = client.get(&format!("/v1/jobs/{}", args.job)).await?;
        let failed = job.failed > 0;
        match args.options.format() {
            Format::Json => show::json(&job),
            Format::Table => print(&[job], Format::Table),
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

/// Prints jobs.
pub(crate) fn print(jobs: &[JobStatus], format: Format) {
    if format == Format::Json {
        return show::json(&jobs);
    }
    let header = ["job", "name", "owner", "state", "decided", "failed", "running", "CPU s"];
    let rows = jobs.iter().map(|job| {
        [
            job.job.to_string(),
            job.name.clone(),
            job.owner.to_string(),
            format!("{:?}", job.state).to_lowercase(),
            format!("{}/{}", job.decided, job.workunits),
            job.failed.to_string(),
            job.pending.to_string(),
            format!("{:.1}", job.replicas.accepted_cpu_us as f64 / 1e6),
        ]
    });
    show::line(show::table(header, rows.collect()));
}
