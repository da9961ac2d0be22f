//! Results as they are decided, until the job has ended.
//!
//! # Invariants
//! - Each result is told once, and in order where that is asked for: what comes early waits for those
//!   before it.
//! - A broker that restarts meanwhile is waited for.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobStatus, ResultState, WorkunitResult};

use super::{PAGE, make, shown, write_one};
use crate::client::{Client, Format};
use crate::show;
use crate::wait::is_passing;

/// Pause before a broker that has gone away is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// How results are told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Following<'a> {
    pub(super) job: JobId,
    pub(super) in_order: bool,
    pub(super) output: Option<&'a Path>,
    pub(super) format: Format,
}

/// What was told so far.
#[derive(Debug, Default)]
struct Told {
    /// All before this one.
    all_before: u32,
    /// Those behind that.
    early: BTreeSet<u32>,
    has_failed: bool,
}

impl Told {
    /// Whether a result is to be told now.
    fn is_next(&self, index: u32, in_order: bool) -> bool {
        index == self.all_before
            || (!in_order && index > self.all_before && !self.early.contains(&index))
    }

    fn note(&mut self, index: u32) {
        self.early.insert(index);
        while self.early.remove(&self.all_before) {
            self.all_before += 1;
        }
    }
}

/// Tells results as they come, until the job has ended.
pub(super) async fn follow(client: &Client, of: Following<'_>) -> anyhow::Result<ExitCode> {
    let mut told = Told::default();
    let mut was_there = false;
    loop {
        match listen(client, of, &mut told, &mut was_there).await {
            Ok(true) if told.has_failed => return Ok(ExitCode::FAILURE),
            Ok(true) => return Ok(ExitCode::SUCCESS),
            Ok(false) => {}
            Err(error) if was_there && is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks, and looks again after each event; `true` where the job has ended, `false` where the stream of
/// events has.
async fn listen(
    client: &Client,
    of: Following<'_>,
    told: &mut Told,
    was_there: &mut bool,
) -> anyhow::Result<bool> {
    // Listen first, look then: nothing falls between.
    let mut events = client.raw("/v1/events").await?.bytes_stream();
    loop {
        let status: JobStatus = client.get(&format!("/v1/jobs/{}", of.job)).await?;
        *was_there = true;
        tell_new(client, of, told).await?;
        if status.state.is_final() {
            return Ok(true);
        }
        let Some(Ok(_)) = events.next().await else { return Ok(false) };
    }
}

/// Tells what is there and was not told.
async fn tell_new(client: &Client, of: Following<'_>, told: &mut Told) -> anyhow::Result<()> {
    let mut from = told.all_before;
    loop {
        let page = client.results(of.job, from, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.index + 1;
        for result in &page {
            if told.is_next(result.index, of.in_order) {
                tell(client, of, result).await?;
                told.has_failed |= !matches!(result.result, ResultState::Decided { .. });
                told.note(result.index);
            } else if of.in_order && result.index > told.all_before {
                // One before it is still to come.
                return Ok(());
            }
        }
    }
}

async fn tell(client: &Client, of: Following<'_>, result: &WorkunitResult) -> anyhow::Result<()> {
    let index = result.index;
    let files = match &result.result {
        ResultState::Decided { files, .. } => files,
        ResultState::Failed { reason } | ResultState::Damaged { reason, .. } => {
            show::note(format_args!("{}/{index} failed: {reason}", of.job));
            return Ok(());
        }
    };
    if let Some(folder) = of.output {
        let folder = folder.join(index.to_string());
        make(&folder)?;
        for file in files {
            write_one(client, of.job, index, file, &folder).await?;
        }
    }
    match of.format {
        Format::Json => {
            show::line(serde_json::to_string(result).expect("our own types serialise"));
        }
        Format::Table => {
            for file in files {
                show::line(format_args!("{index} {}: {}", file.name, shown(file)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_in_order_where_that_is_asked_for() {
        let comes = [2, 0, 2, 3, 1, 0, 3];
        for (in_order, expected) in [(false, vec![2, 0, 3, 1]), (true, vec![0, 1])] {
            let (mut told, mut all) = (Told::default(), Vec::new());
            for index in comes {
                if told.is_next(index, in_order) {
                    told.note(index);
                    all.push(index);
                }
            }
            assert_eq!(all, expected);
            assert_eq!(told.all_before, if in_order { 2 } else { 4 });
        }
    }
}
