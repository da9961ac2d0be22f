//! `gleaner wait`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use gleaner_identity::SessionError;
use gleaner_protocol::api::{JobState, JobStatus};
use gleaner_protocol::{JobId, error_chain};
use indicatif::ProgressBar;

use crate::client::{Client, ClientError, Format, Options};
use crate::failure::Failure;
use crate::{explain, jobs, process, show, submit};

/// Pause before a broker that has gone away is asked again; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

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
        for job in &args.jobs {
            explain::warn_if_nobody_can(&client, *job).await;
        }
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
        jobs::print(&ended, args.options.format());
        let completed = ended.iter().all(|job| job.state == JobState::Completed);
        if args.options.format() == Format::Table {
            for job in &ended {
                match job.state {
                    JobState::Failed => eprintln!(
                        "{id}: {} of {} workunits failed: `gleaner explain {id}` tells which and why",
                        job.failed,
                        job.workunits,
                        id = job.job
                    ),
                    JobState::Cancelled => eprintln!("{}: it was cancelled", job.job),
                    _ => {}
                }
            }
        }
        Ok(if completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Waits as long as it takes. Once the broker has answered, it may be away for a while: it is
/// asked again, and that is said.
async fn wait_all(client: &Client, ids: &[JobId]) -> anyhow::Result<Vec<JobStatus>> {
    let mut patience = Patience {
        in_danger: BTreeSet::new(),
        bar: show::progress(0, "workunits"),
        pause: PAUSE_MIN,
        was_there: false,
        is_away: false,
    };
    loop {
        match watch(client, ids, &mut patience).await {
            Ok(Some(jobs)) => {
                patience.bar.finish_and_clear();
                return Ok(jobs);
            }
            Ok(None) => {}
            Err(error) if patience.was_there && is_passing(&error) => patience.misses(&error),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(patience.pause).await;
        patience.pause = (patience.pause * 2).min(PAUSE_MAX);
    }
}

/// How a broker is borne with that goes away.
struct Patience {
    /// Jobs whose due time was said to be in danger.
    in_danger: BTreeSet<JobId>,
    bar: ProgressBar,
    pause: Duration,
    /// Whether it has answered at all.
    was_there: bool,
    is_away: bool,
}

impl Patience {
    fn sees(&mut self) {
        (self.was_there, self.pause) = (true, PAUSE_MIN);
        if std::mem::take(&mut self.is_away) {
            self.bar.suspend(|| eprintln!("the broker is back"));
        }
    }

    /// Says once that a job is likely to be late.
    fn warns(&mut self, job: &JobStatus) {
        let Some(chance) = job.chance_permille.filter(|of| *of < 500) else { return };
        if !job.state.is_final() && self.in_danger.insert(job.job) {
            let due = job.due_ms.map(submit::due::here).unwrap_or_default();
            let end = job.expected_end_ms.map(submit::due::here).unwrap_or("later".into());
            let (id, chance) = (job.job, f64::from(chance) / 10.0);
            self.bar.suspend(|| {
                show::note(format_args!(
                    "warning: {id} is likely to be late: {chance} % by {due}, expected {end}"
                ));
            });
        }
    }

    fn misses(&mut self, why: &anyhow::Error) {
        if !std::mem::replace(&mut self.is_away, true) {
            let why = error_chain(why.as_ref());
            self.bar
                .suspend(|| show::note(format_args!("waiting for the broker to come back: {why}")));
        }
    }
}

/// Looks, and looks again after each event, until the jobs have ended; none where the stream of
/// events did before.
async fn watch(
    client: &Client,
    ids: &[JobId],
    patience: &mut Patience,
) -> anyhow::Result<Option<Vec<JobStatus>>> {
    // Listen first, look then: nothing falls between.
    let mut events = client.raw("/v1/events").await?.bytes_stream();
    loop {
        let jobs = look(client, ids, &patience.bar).await?;
        patience.sees();
        jobs.iter().for_each(|job| patience.warns(job));
        if jobs.iter().all(|job| job.state.is_final()) {
            return Ok(Some(jobs));
        }
        // Whatever it says, something happened; a broken stream is opened anew.
        let Some(Ok(_)) = events.next().await else { return Ok(None) };
    }
}

/// Whether a broker that restarts fails so: it is away, breaks off, or is not ready.
pub(crate) fn is_passing(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<ClientError>() {
        Some(
            ClientError::Unreachable { .. }
            | ClientError::BrokeOff { .. }
            | ClientError::Answer { .. },
        ) => true,
        Some(ClientError::Refused { status, .. }) => status.is_server_error(),
        Some(ClientError::Session { source }) => {
            matches!(source, SessionError::Unreachable { .. })
        }
        Some(ClientError::NotFound(_)) | None => false,
    })
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
