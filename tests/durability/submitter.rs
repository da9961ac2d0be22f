//! A player who submits jobs, cancels some and waits for others.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::JobId;

use crate::api::NoAnswer;
use crate::draw::Draw;
use crate::ledger::Kind;
use crate::plan::{Fate, Mix, draw_job};
use crate::stage::{Act, Stage};

/// Jobs of one submitter that may be under way.
const OPEN_MAX: usize = 4;

pub(crate) struct Submitter {
    pub(crate) stage: Arc<Stage>,
    pub(crate) name: String,
    pub(crate) draw: Draw,
    pub(crate) mix: Mix,
    pub(crate) mine: BTreeSet<JobId>,
    /// Those that are to be cancelled, and may have been already.
    pub(crate) unwanted: BTreeSet<JobId>,
}

impl Submitter {
    /// Ends when the act closes and everything that it wanted to be cancelled is.
    pub(crate) async fn run(mut self) {
        let mut start = 0;
        for number in 0.. {
            if self.stage.act() == Act::Closing {
                break;
            }
            let spec = draw_job(&mut self.draw, format!("{}-{number}", self.name), self.mix);
            let (fate, spec) = (Fate::of(&spec.task), Arc::new(spec));
            self.stage.write(|ledger| ledger.planned(Arc::clone(&spec)));
            let (api, now) = self.stage.broker_after(start).await;
            match api.submit(&spec).await {
                Ok(submitted) => {
                    let job = submitted.job;
                    self.mine.insert(job);
                    self.stage.write(|ledger| ledger.accepted(job, &spec.name));
                    if fate == Fate::Endless || self.draw.one_in(6) {
                        self.unwanted.insert(job);
                    }
                    if self.draw.one_in(2) {
                        self.cancel_one().await;
                    }
                }
                // It may be there or not: nobody waits for it.
                Err(NoAnswer::Cut(_)) => start = now,
                Err(NoAnswer::Refused(status, error)) => {
                    let what = format!("a sound job was refused: {status} {error:?}");
                    self.stage.write(|ledger| ledger.fault(Kind::Wrong, what));
                    return;
                }
            }
            let wait = self.draw.millis(0..20);
            tokio::time::sleep(wait).await;
            // One that sent more as time goes would have the more to do the slower the machine is.
            while self.is_full().await {
                self.cancel_one().await;
            }
        }
        while !self.unwanted.is_empty() {
            self.cancel_one().await;
        }
    }

    /// Waits for room among the open ones. Where none comes soon, an endless one may be among them.
    async fn is_full(&self) -> bool {
        tokio::select! {
            () = self.stage.until(|ledger| ledger.open_of(&self.mine) < OPEN_MAX) => false,
            () = self.stage.closing() => false,
            () = tokio::time::sleep(self.draw.clone().millis(20..120)) => true,
        }
    }

    async fn cancel_one(&mut self) {
        let Some(job) = self.unwanted.first().copied() else { return };
        let (api, start) = self.stage.broker_after(0).await;
        let least = self.stage.ledger().least();
        match api.cancel(job).await {
            Ok(status) => {
                self.unwanted.remove(&job);
                self.stage.write(|ledger| {
                    ledger.acknowledged += 1;
                    ledger.judge(least.get(&job), &status);
                    if !status.state.is_final() {
                        let what = format!("{job} was cancelled and is {:?}", status.state);
                        ledger.fault(Kind::Wrong, what);
                    }
                });
            }
            Err(NoAnswer::Cut(_)) => self.stage.gone(start).await,
            Err(NoAnswer::Refused(status, error)) => {
                self.unwanted.remove(&job);
                let what = format!("{job} cannot be cancelled: {status} {error:?}");
                self.stage.write(|ledger| ledger.fault(Kind::Lost, what));
            }
        }
    }
}
