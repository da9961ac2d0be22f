//! Keeps the broker supplied with positions, and checks what comes of them.
//!
//! # Invariants
//! - Whatever the broker acknowledged is remembered here, and looked for again at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_protocol::api::{JobStatus, ResultState, Submitted, WorkunitResult};
use gleaner_protocol::{JobId, Span};
use tokio::sync::watch;

use super::positions::{POSITIONS, Position};
use super::show::{JobView, Show};
use crate::client::{Client, ClientError};

/// How often hosts and jobs are looked at, for the live picture and for the next job.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Undecided workunits that are there for each slot, so that none stands idle.
const WORKUNITS_PER_SLOT: u32 = 4;
/// Results that are asked for at once.
const RESULTS_PAGE: u32 = 1000;

/// What was harvested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Harvest {
    /// CPU time of replicas whose output was accepted.
    pub(super) accepted_cpu: Span,
    /// Workunits decided.
    pub(super) completed: u64,
    /// Completed positions whose sum is the published one.
    pub(super) correct: u64,
    /// Completed positions whose sum is not, or that failed.
    pub(super) wrong: u64,
    /// Replicas given back or taken back.
    pub(super) aborted: u64,
    /// What the broker had acknowledged and does not have any more.
    pub(super) lost: u64,
}

/// The submitter of the demo.
pub(super) struct Submitter<'a> {
    client: Client,
    show: &'a Show,
    slots: u32,
    jobs: Vec<Job>,
}

/// An accepted job.
struct Job {
    id: JobId,
    position: &'static Position,
    workunits: u32,
    /// As last heard.
    status: Option<JobStatus>,
    /// Every result that the broker ever showed.
    shown: BTreeMap<u32, ResultState>,
}

impl<'a> Submitter<'a> {
    /// For a broker whose hosts have so many slots together.
    pub(super) fn new(broker_url: &str, slots: u32, show: &'a Show) -> anyhow::Result<Self> {
        Ok(Self { client: Client::local(broker_url)?, show, slots, jobs: Vec::new() })
    }

    /// Submits positions, one job each, whenever too few workunits are open; until told to stop.
    pub(super) async fn keep_busy(
        &mut self,
        mut stop: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        while !*stop.borrow_and_update() {
            while self.undecided() < self.slots * WORKUNITS_PER_SLOT {
                self.submit().await?;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            self.look().await?;
        }
        Ok(())
    }

    /// What came of everything; asks the broker for all of it once more.
    pub(super) async fn account(&mut self) -> anyhow::Result<Harvest> {
        let mut harvest = Harvest::default();
        for job in &self.jobs {
            let (status, results) = match look_at(&self.client, job.id).await {
                Ok(found) => found,
                Err(ClientError::NotFound(_)) => {
                    harvest.lost += u64::from(job.workunits);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            harvest.lost += job.lost(&status, &results);
            harvest.completed += u64::from(status.decided);
            harvest.aborted += status.replicas.released + status.replicas.aborted;
            let cpu_us = harvest.accepted_cpu.as_micros() + status.replicas.accepted_cpu_us;
            harvest.accepted_cpu = Span::from_micros(cpu_us);
            match job.verdict(&results) {
                Some(true) => harvest.correct += 1,
                Some(false) => harvest.wrong += 1,
                None => {}
            }
        }
        Ok(harvest)
    }

    fn undecided(&self) -> u32 {
        self.jobs.iter().map(Job::undecided).sum()
    }

    async fn submit(&mut self) -> anyhow::Result<()> {
        let position = &POSITIONS[self.jobs.len() % POSITIONS.len()];
        let accepted: Submitted = self.client.post("/v1/jobs", &position.job()?).await?;
        self.jobs.push(Job {
            id: accepted.job,
            position,
            workunits: accepted.workunits,
            status: None,
            shown: BTreeMap::new(),
        });
        Ok(())
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        for job in self.jobs.iter_mut().filter(|job| !job.is_final()) {
            let (status, results) = look_at(&self.client, job.id).await?;
            job.shown.extend(results.into_iter().map(|result| (result.index, result.result)));
            if status.state.is_final() {
                let results: Vec<_> = job.results().collect();
                self.show.position_counted(job.position, job.verdict(&results));
            }
            job.status = Some(status);
        }
        self.show.hosts(&self.client.hosts().await?);
        let open = self.jobs.iter().filter(|job| !job.is_final()).map(|job| JobView {
            name: job.position.name,
            decided: job.workunits - job.undecided(),
            workunits: job.workunits,
        });
        self.show.jobs(&open.collect::<Vec<_>>());
        let completed = self.jobs.iter().map(|job| job.workunits - job.undecided()).sum();
        self.show.workunits(completed);
        Ok(())
    }
}

async fn look_at(
    client: &Client,
    id: JobId,
) -> Result<(JobStatus, Vec<WorkunitResult>), ClientError> {
    // Results that come in between are more than the status says, which is no loss.
    let status = client.get(&format!("/v1/jobs/{id}")).await?;
    let mut results: Vec<WorkunitResult> = Vec::new();
    loop {
        let from = results.last().map_or(0, |last| last.index + 1);
        let page = client.results(id, from, RESULTS_PAGE).await?;
        if page.is_empty() {
            return Ok((status, results));
        }
        results.extend(page);
    }
}

impl Job {
    fn is_final(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.state.is_final())
    }

    fn undecided(&self) -> u32 {
        let ended = self.status.as_ref().map_or(0, |status| status.decided + status.failed);
        self.workunits.saturating_sub(ended)
    }

    fn results(&self) -> impl Iterator<Item = WorkunitResult> {
        let shown = self.shown.iter();
        shown.map(|(index, result)| WorkunitResult { index: *index, result: result.clone() })
    }

    /// Workunits and results of it that were acknowledged and are not there any more.
    fn lost(&self, status: &JobStatus, results: &[WorkunitResult]) -> u64 {
        let missing_workunits = self.workunits.saturating_sub(status.workunits);
        let ended = status.decided + status.failed;
        let missing_results = (ended as usize).saturating_sub(results.len());
        let now: BTreeMap<u32, &ResultState> =
            results.iter().map(|result| (result.index, &result.result)).collect();
        let changed =
            self.shown.iter().filter(|(index, result)| now.get(index) != Some(result)).count();
        u64::from(missing_workunits) + missing_results.max(changed) as u64
    }

    /// Whether the position's number of move paths is right; none where it is not complete.
    fn verdict(&self, results: &[WorkunitResult]) -> Option<bool> {
        if results.len() < self.workunits as usize {
            return None;
        }
        let counts = results.iter().map(|result| count(&result.result));
        let sum: Option<u64> = counts.sum();
        Some(sum == Some(self.position.paths))
    }
}

/// The number that a decided workunit has as its output.
fn count(result: &ResultState) -> Option<u64> {
    match result {
        ResultState::Decided { files, .. } => {
            let file = files.iter().find(|file| file.name == "result")?;
            file.text.as_ref()?.trim().parse().ok()
        }
        ResultState::Failed { .. } | ResultState::Damaged { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::api::{JobState, ReplicaCounts, ResultFile};
    use gleaner_protocol::job::Lane;
    use gleaner_protocol::{Digest, OwnerName};

    use super::*;

    static TWO: Position = Position { name: "two", fen: "", depth: 1, paths: 30 };

    fn job(shown: &[WorkunitResult]) -> Job {
        let shown = shown.iter().map(|result| (result.index, result.result.clone())).collect();
        Job { id: JobId::new(1), position: &TWO, workunits: 2, status: None, shown }
    }

    fn decided(index: u32, count: &str) -> WorkunitResult {
        let text = Some(count.to_owned());
        let files = vec![ResultFile { name: "result".into(), bytes: count.len() as u64, text }];
        let digest = Digest::of(count.as_bytes());
        WorkunitResult { index, result: ResultState::Decided { digest, files } }
    }

    fn failed(index: u32) -> WorkunitResult {
        WorkunitResult { index, result: ResultState::Failed { reason: "no".into() } }
    }

    fn status(workunits: u32, decided: u32) -> JobStatus {
        JobStatus {
            project: None,
            job: JobId::new(1),
            name: String::new(),
            owner: OwnerName::new("demo").expect("a name"),
            lane: Lane::Background,
            application: None,
            state: JobState::Running,
            workunits,
            decided,
            failed: 0,
            open: 0,
            pending: 0,
            due_ms: None,
            chance_permille: None,
            expected_end_ms: None,
            replicas: ReplicaCounts::default(),
        }
    }

    #[test]
    fn a_position_is_judged_by_its_sum_once_it_is_complete() {
        let job = job(&[]);
        assert_eq!(job.verdict(&[decided(0, "10")]), None);
        assert_eq!(job.verdict(&[decided(0, "10"), decided(1, "20")]), Some(true));
        assert_eq!(job.verdict(&[decided(0, "10"), decided(1, "21")]), Some(false));
        assert_eq!(job.verdict(&[decided(0, "10"), decided(1, "x")]), Some(false));
        assert_eq!(job.verdict(&[decided(0, "10"), failed(1)]), Some(false));
    }

    #[test]
    fn nothing_is_lost_while_results_stay_and_grow() {
        let job = job(&[decided(0, "10")]);
        assert_eq!(job.lost(&status(2, 1), &[decided(0, "10")]), 0);
        assert_eq!(job.lost(&status(2, 1), &[decided(0, "10"), decided(1, "20")]), 0);
    }

    #[test]
    fn what_is_gone_or_different_is_lost() {
        let job = job(&[decided(0, "10")]);
        assert_eq!(job.lost(&status(1, 1), &[decided(0, "10")]), 1, "a workunit");
        assert_eq!(job.lost(&status(2, 0), &[]), 1, "a result that was shown");
        assert_eq!(job.lost(&status(2, 1), &[decided(0, "11")]), 1, "another result");
        assert_eq!(job.lost(&status(2, 2), &[decided(0, "10")]), 1, "a result that was counted");
    }
}
