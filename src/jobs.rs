//! `gleaner jobs` and `gleaner status`.

use std::process::ExitCode;

use gleaner_protocol::JobId;
use gleaner_protocol::api::JobStatus;
use gleaner_protocol::job::Lane;

use crate::client::{Format, Options};
use crate::{process, show, submit};

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
        let jobs = args.options.client()?.jobs().await?;
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

/// When it is due, and how likely it is to be in time.
fn due(job: &JobStatus) -> String {
    let Some(due) = job.due_ms.map(submit::due::here) else { return String::new() };
    match job.chance_permille {
        Some(chance) => format!("{due} ({} %)", f64::from(chance) / 10.0),
        None => due,
    }
}

/// Prints jobs.
pub(crate) fn print(jobs: &[JobStatus], format: Format) {
    if format == Format::Json {
        return show::json(&jobs);
    }
    let header = ["job", "name", "owner", "state", "decided", "failed", "running", "CPU s"];
    let row = |job: &JobStatus| {
        [
            job.job.to_string(),
            show::name(&job.name),
            show::name(job.owner.as_str()),
            format!("{:?}", job.state).to_lowercase(),
            format!("{}/{}", job.decided, job.workunits),
            job.failed.to_string(),
            job.pending.to_string(),
            format!("{:.1}", job.replicas.accepted_cpu_us as f64 / 1e6),
        ]
    };
    if jobs.iter().all(|job| job.lane == Lane::Background) {
        return show::table(header, jobs.iter().map(row).collect());
    }
    let [id, name, owner, state, decided, failed, running, cpu] = header;
    let header = [id, name, owner, "lane", state, decided, failed, running, "due", cpu];
    let rows = jobs.iter().map(|job| {
        let [id, name, owner, state, decided, failed, running, cpu] = row(job);
        let (lane, due) = (job.lane.to_string(), due(job));
        [id, name, owner, lane, state, decided, failed, running, due, cpu]
    });
    show::table(header, rows.collect());
}
