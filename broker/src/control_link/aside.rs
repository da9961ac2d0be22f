//! Reports of one link whose outputs may have to be compared: what takes its time, beside the link,
//! which goes on meanwhile.
//!
//! # Invariants
//! - A lease has one report here at most: another one is dropped, for the first is answered.
//! - At most [`REPORTS_ASIDE_MAX`] are here; who brings more waits.
//! - What is not with the driver when this is dropped does not get there: the agent reports it
//!   again when it is back.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::control::{Outcome, Report};
use gleaner_protocol::{HostName, JobId, LeaseToken, Time};
use tokio::task::{Id, JoinError, JoinSet};

use super::prepare;
use crate::blobs::BlobStore;
use crate::classes::{Classes, Rule};
use crate::driver::{Command, DriverGone, DriverHandle, LinkId, LinkMessage};
use crate::limits::{EXACT_JOBS_MAX, REPORTS_ASIDE_MAX};

/// See the module's page.
pub(super) struct Aside {
    desk: Desk,
    tasks: JoinSet<Done>,
    /// Whose reports are here.
    leases: Vec<(Id, LeaseToken)>,
    /// Jobs that are known not to be compared.
    exact: BTreeSet<JobId>,
}

/// What a task needs.
#[derive(Clone)]
struct Desk {
    link: LinkId,
    driver: DriverHandle,
    blobs: Arc<dyn BlobStore>,
    classes: Classes,
}

/// What a task has found out.
type Done = (JobId, Result<Rule, DriverGone>);

impl Aside {
    pub(super) fn new(
        link: LinkId,
        driver: DriverHandle,
        blobs: Arc<dyn BlobStore>,
        classes: Classes,
    ) -> Self {
        let desk = Desk { link, driver, blobs, classes };
        Self { desk, tasks: JoinSet::new(), leases: Vec::new(), exact: BTreeSet::new() }
    }

    /// Whether a report belongs here.
    pub(super) fn concerns(&mut self, report: &Report) -> bool {
        if !Classes::concern(report) {
            return false;
        }
        while let Some(done) = self.tasks.try_join_next_with_id() {
            self.note(done);
        }
        !self.exact.contains(&report.replica.workunit.job)
    }

    /// Takes a report of a host. All that came before it over its link is with the driver.
    pub(super) async fn take(&mut self, host: HostName, report: Report, received: Time) {
        let token = report.token;
        if self.leases.iter().any(|(_, lease)| *lease == token) {
            return;
        }
        while self.tasks.len() >= REPORTS_ASIDE_MAX
            && let Some(done) = self.tasks.join_next_with_id().await
        {
            self.note(done);
        }
        let task = self.tasks.spawn(self.desk.clone().pass(host, report, received));
        self.leases.push((task.id(), token));
    }

    fn note(&mut self, done: Result<(Id, Done), JoinError>) {
        let id = match done {
            Ok((id, (job, Ok(Rule::Exact)))) => {
                if self.exact.len() == EXACT_JOBS_MAX {
                    self.exact.clear();
                }
                self.exact.insert(job);
                id
            }
            // The link finds out by itself where the driver is gone.
            Ok((id, _)) => id,
            Err(error) => {
                tracing::error!("a report was lost by a bug: {error}");
                error.id()
            }
        };
        self.leases.retain(|(task, _)| *task != id);
    }
}

impl Desk {
    /// Puts a report into its class and passes it on.
    async fn pass(self, host: HostName, report: Report, received: Time) -> Done {
        let job = report.replica.workunit.job;
        (job, self.pass_in_turn(host, report, received).await)
    }

    async fn pass_in_turn(
        &self,
        host: HostName,
        report: Report,
        received: Time,
    ) -> Result<Rule, DriverGone> {
        let output = match &report.outcome {
            Outcome::Output(output) => Some(output.clone()),
            Outcome::Failed(_) => None,
        };
        let turn = self.classes.turn(&report).await;
        let mut prepared = prepare(&*self.blobs, report, received).await;
        let rule = match output {
            Some(output) => self.classes.sort(&turn, &host, &mut prepared, &output).await?,
            None => Rule::Other,
        };
        let messages = vec![LinkMessage::Report(prepared)];
        self.driver.send(Command::LinkMessages { link: self.link, messages }).await?;
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Content, Manifest, OutputFile, ReplicaId, Time, WorkunitId};
    use gleaner_scheduling::{Core, CoreConfig, Input, PolicyName, RequestId};
    use tokio::sync::mpsc;
    use tokio::sync::mpsc::error::TryRecvError;

    use super::*;
    use crate::blobs::LocalBlobs;
    use crate::store::{DataFolder, SledJournal, StoreOptions};

    fn report(token: u64) -> Report {
        let workunit = WorkunitId { job: JobId::new(1), index: 0 };
        let content = Content::Inline(b"1.0".to_vec());
        let files = vec![OutputFile { name: "scores.csv".into(), content }];
        Report {
            token: LeaseToken::new(token),
            replica: ReplicaId { workunit, attempt: 1 },
            outcome: Outcome::Output(Manifest::new(files).expect("a manifest")),
            cpu_us: 1,
            measured: None,
            wall_us: 0,
            peak_memory_mib: None,
        }
    }

    /// A core with one job, whose outputs are compared byte for byte.
    fn core() -> Core {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        let spec = serde_json::from_str(json).expect("a job");
        let request = RequestId::new(1);
        core.handle(Time::ZERO, Input::Submit { request, spec: Box::new(spec) }, &mut Vec::new());
        core
    }

    #[tokio::test]
    async fn a_report_waits_beside_its_link_and_only_until_its_job_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = DataFolder::open(&folder.path().join("store")).expect("free");
        let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
        let (journal, _) = SledJournal::open(store, options, |_| Ok::<(), std::io::Error>(()))
            .expect("a new store");
        let blobs = Arc::new(LocalBlobs::open(&folder.path().join("blobs"), 0).expect("a folder"));
        let (commands, mut driver) = mpsc::channel(8);
        let handle = DriverHandle::new(commands);
        let classes =
            Classes::new(handle.clone(), blobs.clone(), journal.small_blobs(), Arc::default());
        let mut aside = Aside::new(LinkId::new(1), handle, blobs, classes.clone());
        let host = HostName::new("a").expect("a plain name");

        let turn = classes.turn(&report(7)).await;
        for _ in 0..2 {
            assert!(aside.concerns(&report(7)));
            // It returns, although it is not its turn.
            aside.take(host.clone(), report(7), Time::ZERO).await;
        }
        assert_eq!(aside.tasks.len(), 1, "a lease has one report here");
        tokio::task::yield_now().await;
        assert!(matches!(driver.try_recv(), Err(TryRecvError::Empty)), "it waits for its turn");
        drop(turn);
        let Some(Command::Query(query)) = driver.recv().await else { panic!("no question") };
        query(&core())();
        let Some(Command::LinkMessages { messages, .. }) = driver.recv().await else {
            panic!("no report")
        };
        assert!(matches!(&messages[..], [LinkMessage::Report(report)] if report.token.get() == 7));

        let done = aside.tasks.join_next_with_id().await.expect("a task");
        aside.note(done);
        assert!(aside.leases.is_empty());
        assert!(!aside.concerns(&report(8)), "nobody is asked twice");
    }
}
