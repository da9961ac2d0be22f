//! Compares what the broker says with what it acknowledged.

use std::collections::BTreeMap;

use gleaner_protocol::api::{ApiError, ResultState, WorkunitResult};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{JobId, WorkunitId};
use reqwest::StatusCode;

use crate::api::{Api, NoAnswer};
use crate::ledger::{End, Kind, Ledger};
use crate::output::Output;
use crate::plan::Fate;
use crate::stage::Stage;

/// How much is looked at, beside the status of every job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The results of some jobs that votes came for.
    News { jobs_max: usize },
    /// All results, and the content of those that are blobs of their own.
    All,
}

/// Asks for everything and notes the faults in the ledger. What the broker refuses to give out is
/// the error, the first of all; the rest is looked at nevertheless.
pub(crate) async fn recount(stage: &Stage, api: &Api, depth: Depth) -> Result<(), NoAnswer> {
    let least = stage.ledger().least();
    let jobs = api.jobs().await?;
    stage.write(|ledger| {
        for status in &jobs {
            ledger.judge(least.get(&status.job), status);
        }
        for id in least.keys().filter(|id| jobs.iter().all(|job| job.job != **id)) {
            ledger.fault(Kind::Lost, format!("{id} was acknowledged and is gone"));
        }
    });
    let chosen = choose(&mut stage.ledger(), depth);
    let mut refusals = Refusals::default();
    for job in chosen {
        refusals.note(recount_results(stage, api, job, depth).await)?;
    }
    refusals.end()
}

/// Collects what was refused; a connection that breaks ends it all.
#[derive(Default)]
struct Refusals(Option<NoAnswer>);

impl Refusals {
    fn note(&mut self, answer: Result<(), NoAnswer>) -> Result<(), NoAnswer> {
        match answer {
            Err(cut @ NoAnswer::Cut(_)) => Err(cut),
            Err(refused) => {
                self.0.get_or_insert(refused);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn end(self) -> Result<(), NoAnswer> {
        self.0.map_or(Ok(()), Err)
    }
}

fn choose(ledger: &mut Ledger, depth: Depth) -> Vec<JobId> {
    let jobs = ledger.jobs().filter(|(_, known)| known.spec.is_some());
    let chosen: Vec<_> = match depth {
        Depth::All => jobs.map(|(id, _)| id).collect(),
        Depth::News { jobs_max } => {
            jobs.filter(|(_, known)| known.news).map(|(id, _)| id).take(jobs_max).collect()
        }
    };
    for id in &chosen {
        ledger.job_mut(*id).expect("it was chosen from it").news = false;
    }
    chosen
}

async fn recount_results(
    stage: &Stage,
    api: &Api,
    job: JobId,
    depth: Depth,
) -> Result<(), NoAnswer> {
    let (spec, ends) = {
        let ledger = stage.ledger();
        let known = ledger.job(job).expect("it was chosen from it");
        (known.spec.clone().expect("its plan is known"), known.ends())
    };
    let mut results = BTreeMap::new();
    loop {
        let from = results.last_key_value().map_or(0, |(index, _)| index + 1);
        let page = api.results(job, from).await?;
        let is_last = page.is_empty();
        results.extend(page.into_iter().map(|result| (result.index, result)));
        if is_last {
            break;
        }
    }
    stage.write(|ledger| {
        for (index, end) in &ends {
            let told = results.get(index).map(end_of);
            if told.is_none() || end.is_some() && told != *end {
                let what = format!("{job}/{index} must have ended with {end:?}; it has {told:?}");
                ledger.fault(Kind::Lost, what);
            }
        }
        for result in results.values() {
            judge(ledger, job, &spec, result);
        }
    });
    let mut refusals = Refusals::default();
    for result in results.values() {
        if let ResultState::Damaged { reason, .. } = &result.result {
            let error = ApiError::new("damaged", reason.clone());
            refusals.note(Err(NoAnswer::Refused(StatusCode::INTERNAL_SERVER_ERROR, error)))?;
        }
    }
    if depth == Depth::All {
        for index in results.keys() {
            let workunit = WorkunitId { job, index: *index };
            refusals.note(read_blob(stage, api, workunit, &spec).await)?;
        }
    }
    refusals.end()
}

fn end_of(result: &WorkunitResult) -> End {
    match &result.result {
        ResultState::Decided { digest, .. } | ResultState::Damaged { digest, .. } => {
            End::Decided(*digest)
        }
        ResultState::Failed { reason } => End::GivenUp(reason.clone()),
    }
}

/// Compares a result with what honest hosts get, once, and with itself from then on.
fn judge(ledger: &mut Ledger, job: JobId, spec: &JobSpec, result: &WorkunitResult) {
    let index = result.index;
    let end = end_of(result);
    let known = ledger.job_mut(job).expect("it was chosen from it");
    let before = known.units.entry(index).or_default().end.replace(end.clone());
    if before.as_ref() == Some(&end) {
        return;
    }
    ledger.acknowledged += 1;
    let mut wrong = |what: String| ledger.fault(Kind::Wrong, format!("{job}/{index} {what}"));
    if let Some(before) = before {
        wrong(format!("was {before:?} and is {end:?}"));
    }
    let fate = Fate::of(&spec.task);
    match &result.result {
        ResultState::Decided { .. } | ResultState::Damaged { .. } if fate == Fate::Doomed => {
            wrong("cannot be decided".into());
        }
        ResultState::Failed { reason } if fate != Fate::Doomed => {
            wrong(format!("was given up: {reason}"));
        }
        ResultState::Failed { .. } => {}
        ResultState::Damaged { digest, .. } => {
            let honest = Output::honest(WorkunitId { job, index }, spec.workunits.item(index));
            if *digest != honest.manifest.digest() {
                wrong(format!("is {digest:?}; honest hosts get another output"));
            }
        }
        ResultState::Decided { digest, files } => {
            let honest = Output::honest(WorkunitId { job, index }, spec.workunits.item(index));
            let text = files.first().and_then(|file| file.text.as_ref()).map(String::as_bytes);
            let is_right = *digest == honest.manifest.digest()
                && files.len() == 1
                && text.is_none_or(|text| text == honest.bytes());
            if !is_right {
                wrong(format!("is {digest:?} {files:?}; honest hosts get another output"));
            }
        }
    }
}

/// Reads a result's content where it is a blob of its own.
async fn read_blob(
    stage: &Stage,
    api: &Api,
    workunit: WorkunitId,
    spec: &JobSpec,
) -> Result<(), NoAnswer> {
    if Fate::of(&spec.task) == Fate::Doomed {
        return Ok(());
    }
    let honest = Output::honest(workunit, spec.workunits.item(workunit.index));
    if honest.blob.is_some() {
        let content = api.result_file(workunit.job, workunit.index).await?;
        if content != honest.bytes() {
            let what = format!("the content of {workunit} is another one");
            stage.write(|ledger| ledger.fault(Kind::Wrong, what));
        }
    }
    Ok(())
}
