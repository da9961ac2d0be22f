//! `/v1/jobs` and `/v1/explain`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::str::FromStr;

use gleaner_protocol::api::{Explanation, JobStatus, Reason};
use gleaner_protocol::job::{JobSpec, Lane, Task};
use gleaner_protocol::limits::{FEATURES_MAX, SPEC_BYTES_MAX, WASM_MODULE_BYTES_MAX};
use gleaner_protocol::{Digest, Feature, HostKind, JobId, WorkunitId};
use gleaner_scheduling::{Core, Job, SubmitRefusal, WaitReason};
use gleaner_serve::{Problem, any_of};
use schemars::JsonSchema;
use serde::Deserialize;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::asker::{Asker, asker};
use super::{Api, body, handler_of, json, no_such, page_limit, parse};
use crate::driver::Forgotten;
use crate::limits::{INPUT_FEATURES_MAX, JOBS_PAGE_MAX};
use crate::predict;

impl Api {
    pub(super) fn job_routes(&self) -> BoxedFilter<(Response,)> {
        let jobs = warp::path!("v1" / "jobs");
        let job = warp::path!("v1" / "jobs" / String);
        let forgotten = warp::path!("v1" / "jobs" / String / "forget");
        let explain_job = warp::path!("v1" / "explain" / String);
        let explain_workunit = warp::path!("v1" / "explain" / String / String);
        let submitted = jobs.and(warp::post()).and(asker()).and(body());
        let listed = jobs.and(warp::get()).and(asker()).and(warp::query::<Page>());
        let explained = explain_workunit.and(warp::get()).and(asker());
        any_of([
            handler_of(submitted.map(|who, body| (who, body)), self, submit),
            handler_of(job.and(warp::get()).and(asker()).map(pair), self, status),
            handler_of(listed.map(|who, page| (who, page)), self, list),
            handler_of(job.and(warp::delete()).and(asker()).map(pair), self, cancel),
            handler_of(forgotten.and(warp::post()).and(asker()).map(pair), self, forget),
            handler_of(explain_job.and(warp::get()).and(asker()).map(pair), self, explain),
            handler_of(explained.map(|job, index, who| (job, index, who)), self, explain_one),
        ])
    }
}

fn pair(job: String, who: Asker) -> (String, Asker) {
    (job, who)
}

async fn submit(api: Api, (who, body): (Asker, bytes::Bytes)) -> Result<Response, Problem> {
    api.committer.admit().map_err(|error| Problem::from(&*error))?;
    let mut spec: JobSpec = parse(&body, "job")?;
    who.sign(&mut spec)?;
    let refusal = |project| api.budgets.refusal(project, spec.lane);
    if let Some(why) = spec.project.as_ref().and_then(refusal) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "budget", why));
    }
    if spec.is_frame() {
        let why = "task.frame: the broker alone makes frames; open a view (POST /v1/views)";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid-job", why.to_owned()));
    }
    if spec.lane == Lane::Rendering && !draws_volumes(&spec.task) {
        let why =
            "lane: the rendering lane draws volumes (`gleaner submit volume`), and nothing else";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid-job", why.to_owned()));
    }
    spec.on.get_or_insert(api.default_on);
    // Held until the job is there: its dataset is not removed meanwhile.
    let _reads = match spec.profile.reads {
        Some(_) => Some(api.datasets.turn().await),
        None => None,
    };
    let workunits = spec.workunits.len();
    if let Some(reads) = &mut spec.profile.reads {
        api.check_reads(&who, reads, workunits)?;
    }
    let mut sizes = BTreeMap::new();
    for (name, digest) in spec.task.contents() {
        match api.blobs.keep(digest).await? {
            Some(bytes) => {
                check_size(&spec.task, digest, bytes)?;
                sizes.insert(digest, bytes);
            }
            None => {
                return Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    "missing-input",
                    format!(
                        "input {name:?} ({digest}) was not uploaded: PUT /v1/blobs/{digest} first"
                    ),
                ));
            }
        }
    }
    note_sizes(&mut spec, &sizes);
    // What a client says of itself here counts for nothing.
    (spec.profile.promised, spec.profile.cpu_sigma_permille) = (None, None);
    if predict::is_wanted(&spec) {
        let kinds = api.read(connected_kinds).await?;
        let asked = api.history.ask(move |history| {
            predict::fill_in(history, &mut spec, &kinds);
            spec
        });
        spec = asked.await.map_err(|_| Problem::internal())?;
    }
    // Held until the job is there: no other is promised what this one has just got.
    let turn = match spec.lane {
        Lane::Deadline => Some(api.promises.turn().await),
        _ => None,
    };
    if turn.is_some() {
        spec = api.settled(api.promises.ask(&api.driver, spec)).await?.map_err(refused)?;
    }
    let submitted = api.settled(api.driver.submit(spec)).await?.map_err(refused)?;
    Ok(warp::reply::with_status(json(&submitted), StatusCode::CREATED).into_response())
}

fn refused(refusal: SubmitRefusal) -> Problem {
    let (status, code) = match &refusal {
        SubmitRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid-job"),
        SubmitRefusal::Declined { .. } => (StatusCode::CONFLICT, "declined"),
        SubmitRefusal::NoPolicy(_) => (StatusCode::BAD_REQUEST, "no-policy"),
        SubmitRefusal::TooManyOfOne { .. } | SubmitRefusal::TooManyWorkunits { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "too-many")
        }
        SubmitRefusal::TooManyJobs | SubmitRefusal::TooManyAbilities => {
            (StatusCode::SERVICE_UNAVAILABLE, "too-many")
        }
    };
    let problem = Problem::new(status, code, refusal.to_string());
    match refusal {
        SubmitRefusal::Declined { earliest_due_us, .. } => {
            problem.with_earliest_due_ms(earliest_due_us.map(|due_us| due_us.div_ceil(1_000)))
        }
        _ => problem,
    }
}

fn draws_volumes(task: &Task) -> bool {
    matches!(task, Task::Application(application) if application.kernel.as_str() == "volume")
}

/// How large its inputs are is a feature of a job: together, and each where there are more.
fn note_sizes(spec: &mut JobSpec, sizes: &BTreeMap<Digest, u64>) {
    let bytes: Vec<u64> =
        spec.task.inputs().iter().filter_map(|input| sizes.get(&input.digest).copied()).collect();
    if bytes.is_empty() {
        return;
    }
    let all = [("input_bytes".to_owned(), bytes.iter().sum::<u64>())];
    let each = (1..).zip(&bytes).map(|(at, bytes)| (format!("input{at}_bytes"), *bytes));
    let each = each.take(if bytes.len() > 1 { INPUT_FEATURES_MAX } else { 0 });
    for (name, bytes) in all.into_iter().chain(each) {
        if spec.profile.features.len() < FEATURES_MAX
            && let Ok(bytes) = Feature::try_from(bytes as f64)
        {
            spec.profile.features.entry(name).or_insert(bytes);
        }
    }
}

/// The kinds of the hosts that are connected.
fn connected_kinds(core: &Core) -> BTreeSet<HostKind> {
    let hosts = core.farm().hosts().map(|(_, host)| host).filter(|host| host.connected);
    hosts.filter_map(|host| host.info.kind.clone()).collect()
}

/// Modules and specifications have limits of their own, below those of other contents.
fn check_size(task: &Task, digest: Digest, bytes: u64) -> Result<(), Problem> {
    match task {
        Task::Application(application) if application.spec == digest && bytes > SPEC_BYTES_MAX => {
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "large-specification",
                format!(
                    "task.application.spec {digest} has {bytes} bytes, at most {SPEC_BYTES_MAX} \
                     are read: put data into an input"
                ),
            ))
        }
        Task::Wasm(wasm) if wasm.module == digest && bytes > WASM_MODULE_BYTES_MAX => {
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "large-module",
                format!(
                    "task.wasm.module {digest} has {bytes} bytes, at most {WASM_MODULE_BYTES_MAX} are \
                     run: strip it, or put its data into an input"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Which part of the list: jobs from an id on, in order of submission. The list ends where a page is
/// empty.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    from: Option<String>,
    limit: Option<usize>,
}

async fn list(api: Api, (who, Page { from, limit }): (Asker, Page)) -> Result<Response, Problem> {
    let limit = page_limit(limit, JOBS_PAGE_MAX)?;
    let from = from.map_or(Ok(JobId::new(0)), |from| parse_id(&from))?;
    let page = api.read(move |core| jobs_from(core, &who, from, limit)).await?;
    let page: Vec<_> = page.into_iter().map(|status| api.promises.told(status)).collect();
    Ok(json(&page))
}

fn jobs_from(core: &Core, who: &Asker, from: JobId, limit: usize) -> Vec<JobStatus> {
    let seen = core.farm().jobs_from(from).filter(|job| who.sees(job));
    seen.take(limit).map(Job::status).collect()
}

async fn status(api: Api, (id, who): (String, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    let status = api.read(move |core| who.find(core, id).map(Job::status)).await?;
    let status = status.ok_or_else(|| no_such(id))?;
    Ok(json(&api.promises.told(status)))
}

/// Whether a job is there for whoever asks.
pub(super) async fn check_sees(api: &Api, who: &Asker, id: JobId) -> Result<(), Problem> {
    let who = who.clone();
    let is_there = api.read(move |core| who.find(core, id).is_some()).await?;
    if is_there { Ok(()) } else { Err(no_such(id)) }
}

async fn cancel(api: Api, (id, who): (String, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    check_sees(&api, &who, id).await?;
    if !api.settled(api.driver.cancel(id)).await? {
        return Err(no_such(id));
    }
    status(api, (id.to_string(), who)).await
}

async fn forget(api: Api, (id, who): (String, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    check_sees(&api, &who, id).await?;
    match api.settled(api.driver.forget(id)).await? {
        Forgotten::Yes(status) => Ok(json(&status)),
        Forgotten::Unknown => Err(no_such(id)),
        Forgotten::Active => Err(Problem::conflict(format!(
            "{id} has not ended: wait for it (`gleaner wait {id}`) or cancel it first (`gleaner cancel {id}`)"
        ))),
    }
}

async fn explain(api: Api, (id, who): (String, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    let found = api
        .read(move |core| {
            let state = who.find(core, id)?.status();
            Some((state, core.explain_job(id)?))
        })
        .await?;
    let (status, reasons) = found.ok_or_else(|| no_such(id))?;
    let summary = format!(
        "{}: {} of {} workunits decided, {} failed, {} replicas run",
        format!("{:?}", status.state).to_lowercase(),
        status.decided,
        status.workunits,
        status.failed,
        status.pending
    );
    Ok(json(&explanation(id.to_string(), summary, reasons)))
}

async fn explain_one(
    api: Api,
    (id, index, who): (String, String, Asker),
) -> Result<Response, Problem> {
    let job: JobId = parse_id(&id)?;
    let index = index
        .parse()
        .map_err(|_| Problem::malformed(format!("{index:?} is no index of a workunit")))?;
    let id = WorkunitId { job, index };
    let explained = move |core: &Core| who.find(core, job).and_then(|_| core.explain_workunit(id));
    let reasons = api.read(explained).await?;
    let reasons = reasons.ok_or_else(|| no_such(id))?;
    let summary = reasons.first().map_or_else(|| "it waits".into(), ToString::to_string);
    Ok(json(&explanation(id.to_string(), summary, reasons)))
}

fn explanation(subject: String, summary: String, reasons: Vec<WaitReason>) -> Explanation {
    let reasons = reasons
        .iter()
        .map(|reason| Reason { code: reason.code().into(), text: reason.to_string() })
        .collect();
    Explanation { subject, summary, reasons }
}

pub(super) fn parse_id<T>(text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| Problem::malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Time;
    use gleaner_scheduling::{CoreConfig, Input, PolicyName, RequestId};

    use super::*;

    #[test]
    fn pages_are_bounded_and_together_they_are_all_jobs() {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let count = 2 * JOBS_PAGE_MAX as u64 + 10;
        for _ in 0..count {
            let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
            let spec = serde_json::from_str(json).expect("a job");
            let input = Input::Submit { request: RequestId::new(1), spec: Box::new(spec) };
            core.handle(Time::ZERO, input, &mut Vec::new());
        }
        let (mut seen, mut from) = (Vec::new(), JobId::new(0));
        loop {
            let page = jobs_from(&core, &Asker::of_all(), from, JOBS_PAGE_MAX);
            assert!(page.len() <= JOBS_PAGE_MAX);
            let Some(last) = page.last() else { break };
            from = JobId::new(last.job.get() + 1);
            seen.extend(page.iter().map(|status| status.job.get()));
        }
        assert_eq!(seen, (1..=count).collect::<Vec<_>>());
    }
}
