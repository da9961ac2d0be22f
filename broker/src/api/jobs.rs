//! `/v1/jobs` and `/v1/explain`.

use std::str::FromStr;

use gleaner_protocol::api::{Explanation, JobStatus, Reason};
use gleaner_protocol::job::{JobSpec, Task};
use gleaner_protocol::limits::{SPEC_BYTES_MAX, WASM_MODULE_BYTES_MAX};
use gleaner_protocol::{Digest, JobId, WorkunitId};
use gleaner_scheduling::{SubmitRefusal, WaitReason};
use gleaner_serve::Problem;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::{Api, body, handler, handler_of, json, no_such, parse};
use crate::driver::Forgotten;

impl Api {
    pub(super) fn job_routes(&self) -> BoxedFilter<(Response,)> {
        let jobs = warp::path!("v1" / "jobs");
        let job = warp::path!("v1" / "jobs" / String);
        let forgotten = warp::path!("v1" / "jobs" / String / "forget");
        let explain_job = warp::path!("v1" / "explain" / String);
        let explain_workunit = warp::path!("v1" / "explain" / String / String);
        handler_of(jobs.and(warp::post()).and(body()), self, submit)
            .or(handler_of(job.and(warp::get()), self, status))
            .unify()
            .or(handler(jobs.and(warp::get()), self, list))
            .unify()
            .or(handler_of(job.and(warp::delete()), self, cancel))
            .unify()
            .or(handler_of(forgotten.and(warp::post()), self, forget))
            .unify()
            .or(handler_of(explain_job.and(warp::get()), self, explain))
            .unify()
            .or(handler_of(
                explain_workunit.and(warp::get()).map(|job, index| (job, index)),
                self,
                explain_one,
            ))
            .unify()
            .boxed()
    }
}

async fn submit(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    api.committer.admit().map_err(|error| Problem::from(&*error))?;
    let spec: JobSpec = parse(&body, "job")?;
    for (name, digest) in spec.task.contents() {
        match api.blobs.length(digest).await? {
            Some(bytes) => check_size(&spec.task, digest, bytes)?,
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
    match api.settled(api.driver.submit(spec)).await? {
        Ok(submitted) => {
            Ok(warp::reply::with_status(json(&submitted), StatusCode::CREATED).into_response())
        }
        Err(refusal) => Err(match &refusal {
            SubmitRefusal::Invalid(_) => {
                Problem::new(StatusCode::BAD_REQUEST, "invalid-job", refusal.to_string())
            }
            SubmitRefusal::Declined(_) => {
                Problem::new(StatusCode::CONFLICT, "declined", refusal.to_string())
            }
            SubmitRefusal::NoPolicy(_) => {
                Problem::new(StatusCode::BAD_REQUEST, "no-policy", refusal.to_string())
            }
            SubmitRefusal::TooManyJobs | SubmitRefusal::TooManyAbilities => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-many", refusal.to_string())
            }
        }),
    }
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

async fn list(api: Api, (): ()) -> Result<Response, Problem> {
    let jobs: Vec<JobStatus> =
        api.read(|core| core.farm().jobs().map(gleaner_scheduling::Job::status).collect()).await?;
    Ok(json(&jobs))
}

async fn status(api: Api, id: String) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    let status =
        api.read(move |core| core.farm().job(id).map(gleaner_scheduling::Job::status)).await?;
    status.map(|status| json(&status)).ok_or_else(|| no_such(id))
}

async fn cancel(api: Api, id: String) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    if !api.settled(api.driver.cancel(id)).await? {
        return Err(no_such(id));
    }
    status(api, id.to_string()).await
}

async fn forget(api: Api, id: String) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    match api.settled(api.driver.forget(id)).await? {
        Forgotten::Yes(status) => Ok(json(&status)),
        Forgotten::Unknown => Err(no_such(id)),
        Forgotten::Active => Err(Problem::conflict(format!(
            "{id} has not ended: wait for it (`gleaner wait {id}`) or cancel it first (`gleaner cancel {id}`)"
        ))),
    }
}

async fn explain(api: Api, id: String) -> Result<Response, Problem> {
    let id: JobId = parse_id(&id)?;
    let found = api
        .read(move |core| {
            let state = core.farm().job(id)?.status();
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

async fn explain_one(api: Api, (id, index): (String, String)) -> Result<Response, Problem> {
    let job: JobId = parse_id(&id)?;
    let index = index
        .parse()
        .map_err(|_| Problem::malformed(format!("{index:?} is no index of a workunit")))?;
    let id = WorkunitId { job, index };
    let reasons = api.read(move |core| core.explain_workunit(id)).await?;
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
