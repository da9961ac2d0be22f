//! `gleaner cancel`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::JobStatus;

use crate::client::{Format, Options};
use crate::{jobs, process, show};

/// Cancels a job: its replicas end, what was decided stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job, as job-17 or 17.
    job: JobId,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let client = args.options.client()?;
        let job: JobStatus = client.delete(&format!("/v1/jobs/{}", args.job)).await?;
        match args.options.format() {
            Format::Json => show::json(&job),
            Format::Table => jobs::print(&[job], Format::Table),
        }
        Ok(ExitCode::SUCCESS)
    })
}
