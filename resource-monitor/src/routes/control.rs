//! What administrators and operators ask and order.

use std::sync::Arc;

use bytes::Bytes;
use gleaner_protocol::people::Identity;
use gleaner_serve::{Problem, any_of, body_bytes};
use serde::Deserialize;
use serde_json::json;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::parse;
use crate::Stop;
use crate::driver::{Driver, ResumeError};
use crate::limits::STOP_BODY_BYTES_MAX;
use crate::wall_clock::wall_clock;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopRequest {
    by: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeRequest {
    by: String,
}

pub(super) fn routes(driver: Arc<Driver>) -> BoxedFilter<(Response,)> {
    let with_driver = warp::any().map(move || driver.clone());
    let who = || warp::ext::optional::<Identity>();
    let farm = warp::path!("v1" / "farm")
        .and(warp::get())
        .and(with_driver.clone())
        .map(|driver: Arc<Driver>| warp::reply::json(&driver.farm_view()).into_response());
    let comparison = warp::path!("v1" / "farm" / "comparison")
        .and(warp::get())
        .and(with_driver.clone())
        .map(|driver: Arc<Driver>| comparison(&driver).unwrap_or_else(Reply::into_response));
    let stop = warp::path!("v1" / "farm" / "stop")
        .and(warp::post())
        .and(body_bytes(STOP_BODY_BYTES_MAX))
        .and(who())
        .and(with_driver.clone())
        .then(|body: Bytes, who, driver: Arc<Driver>| {
            off_thread(move || stop(&driver, &body, who))
        });
    let resume = warp::path!("v1" / "farm" / "resume")
        .and(warp::post())
        .and(body_bytes(STOP_BODY_BYTES_MAX))
        .and(who())
        .and(with_driver)
        .then(|body: Bytes, who, driver: Arc<Driver>| {
            off_thread(move || resume(&driver, &body, who))
        });
    any_of([farm.boxed(), comparison.boxed(), stop.boxed(), resume.boxed()])
}

fn comparison(driver: &Driver) -> Result<Response, Problem> {
    let view = driver.comparison().ok_or_else(|| {
        let error = "nothing is compared: the monitor's configuration has no [comparison]";
        Problem::new(StatusCode::NOT_FOUND, "no_comparison", error.to_owned())
    })?;
    Ok(warp::reply::json(&view).into_response())
}

/// Runs what waits for the disk where nobody else waits for it.
async fn off_thread(act: impl FnOnce() -> Result<Response, Problem> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(act).await {
        Ok(answer) => answer.unwrap_or_else(Reply::into_response),
        Err(error) => {
            let error = format!("a bug ended the request half-way: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", error).into_response()
        }
    }
}

/// Who orders: whoever has a key is not who they say.
fn orderer(said: String, who: Option<Identity>) -> String {
    who.map_or(said, |Identity { id, owner, .. }| format!("{owner} ({id})"))
}

fn stop(driver: &Driver, body: &[u8], who: Option<Identity>) -> Result<Response, Problem> {
    let request: StopRequest = parse(body, "stop")?;
    let by = orderer(request.by, who);
    let stop = Stop::new(&by, &request.reason, wall_clock()).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "out_of_bounds", error.to_string())
    })?;
    Ok(warp::reply::json(&driver.stop(stop)).into_response())
}

fn resume(driver: &Driver, body: &[u8], who: Option<Identity>) -> Result<Response, Problem> {
    let request: ResumeRequest = parse(body, "resume")?;
    let lifted = driver.resume(&orderer(request.by, who)).map_err(|error| {
        let (status, code) = match error {
            ResumeError::StoppedAnew => (StatusCode::CONFLICT, "stopped_anew"),
            ResumeError::NotWritten(_) | ResumeError::Unclear(_) => {
                (StatusCode::INSUFFICIENT_STORAGE, "not_kept")
            }
        };
        Problem::new(status, code, error.to_string())
    })?;
    Ok(warp::reply::json(&json!({"lifted": lifted})).into_response())
}
