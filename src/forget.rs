//! `gleaner forget`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::JobStatus;

use crate::client::{Format, Options};
use crate::{jobs, process, show};

/// Forgets jobs that have ended, with their results: fetch what you want to keep first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The jobs, as job-17 or 17.
    #[arg(required = true)]
    jobs: Vec<JobId>,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        for id in &args.jobs {
            // What it was, for the record.
            let job: JobStatus = client.post(&format!("/v1/jobs/{id}/forget"), &()).await?;
            match args.options.format() {
                Format::Json => show::json(&job),
                Format::Table => jobs::print(&[job], Format::Table),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
