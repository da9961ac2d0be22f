//! The monitor's HTTP interface.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/events` | a `HookEvent` | `{"accepted": true}` |
//! | `POST /v1/samples` | a `HostSample` | a `SampleAnswer` |
//! | `GET /v1/hosts` | | all [`HostView`](crate::HostView)s |
//! | `GET /v1/hosts/{host}` | | one of them |
//! | `GET /v1/farm` | | the farm as a whole: a [`FarmView`](crate::FarmView) |
//! | `GET /v1/farm/comparison` | | renders with and without harvest: a [`ComparisonView`](crate::ComparisonView) |
//! | `POST /v1/farm/stop` | `{"by": …, "reason": …}` | the stop that holds, and whether it is kept |
//! | `POST /v1/farm/resume` | `{"by": …}` | `{"lifted": …}`: the stop that held, or null |
//! | `POST /v1/challenge` | a `ChallengeRequest` | what to sign for a session |
//! | `POST /v1/session` | a `SessionRequest` | a session of this monitor |
//! | `GET /metrics` | | OpenMetrics' text format, which Prometheus reads |
//! | `GET /healthz` | | `ok` |
//!
//! What is open to which role stands in [`access`].

mod access;
mod control;
mod sessions;

pub(crate) use access::ACCESS;
pub(crate) use sessions::OPEN;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use gleaner_protocol::HostName;
use gleaner_protocol::farm::{HookEvent, HostSample, SampleAnswer};
use gleaner_protocol::limits::{CORES_MAX, HOOK_MESSAGE_BYTES_MAX};
use gleaner_protocol::people::Identity;
use gleaner_serve::{Problem, any_of, body_bytes, openmetrics};
use serde::de::DeserializeOwned;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reject::{LengthRequired, MethodNotAllowed, PayloadTooLarge};
use warp::reply::Response;
use warp::{Filter, Rejection, Reply};

use crate::Input;
use crate::driver::Driver;
use crate::limits::{BOOKINGS_MAX, SAMPLE_BYTES_MAX};
use crate::people::People;

/// All routes; answers that say no are JSON too.
pub(crate) fn routes(driver: Arc<Driver>, people: Arc<People>) -> BoxedFilter<(Response,)> {
    let counted = Arc::clone(&driver.metrics);
    let farm = control::routes(Arc::clone(&driver));
    let sessions = sessions::routes(Arc::clone(&people));
    let who = warp::ext::optional::<Identity>()
        .map(move |who| Speaker { who, people: Arc::clone(&people) });
    let with_driver = warp::any().map(move || driver.clone());
    let events = warp::path!("v1" / "events")
        .and(warp::post())
        .and(warp::body::content_length_limit(HOOK_MESSAGE_BYTES_MAX as u64))
        .and(body_bytes(HOOK_MESSAGE_BYTES_MAX as u64))
        .and(who.clone())
        .and(with_driver.clone())
        .map(|body: Bytes, who: Speaker, driver: Arc<Driver>| {
            accept(&driver, parse_event(&body, &who))
        });
    let samples = warp::path!("v1" / "samples")
        .and(warp::post())
        .and(warp::body::content_length_limit(SAMPLE_BYTES_MAX))
        .and(body_bytes(SAMPLE_BYTES_MAX))
        .and(who.clone())
        .and(with_driver.clone())
        .map(|body: Bytes, who: Speaker, driver: Arc<Driver>| {
            accept_sample(&driver, parse_sample(&body, &who))
        });
    let hosts = warp::path!("v1" / "hosts")
        .and(warp::get())
        .and(with_driver.clone())
        .map(|driver: Arc<Driver>| warp::reply::json(&driver.views()).into_response());
    let host = warp::path!("v1" / "hosts" / String)
        .and(warp::get())
        .and(with_driver.clone())
        .map(|name: String, driver: Arc<Driver>| one_host(&driver, &name));
    let metrics =
        warp::path!("metrics").and(warp::get()).and(with_driver).map(|driver: Arc<Driver>| {
            openmetrics(driver.metrics.render(&driver.totals(), driver.outbox.len()))
        });
    let health = warp::path!("healthz").and(warp::get()).map(|| "ok\n".into_response());
    any_of([
        events.boxed(),
        samples.boxed(),
        hosts.boxed(),
        host.boxed(),
        farm,
        sessions,
        metrics.boxed(),
        health.boxed(),
    ])
    .recover(refuse)
    .map(move |reply| {
        let answer = Reply::into_response(reply);
        if !answer.status().is_success() {
            counted.refused_requests.inc();
        }
        answer
    })
    .boxed()
}

/// Who tells of a host.
#[derive(Clone)]
struct Speaker {
    who: Option<Identity>,
    people: Arc<People>,
}

impl Speaker {
    fn speaks_of(&self, host: &HostName) -> Result<(), Problem> {
        self.people.speaks_of(self.who.as_ref(), host)
    }
}

fn accept(driver: &Driver, input: Result<Input, Problem>) -> Response {
    match input.and_then(|input| take(driver, input)) {
        Ok(()) => warp::reply::json(&serde_json::json!({"accepted": true})).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Whoever sends samples learns of a stop by itself, be the broker away that would tell.
fn accept_sample(driver: &Driver, input: Result<Input, Problem>) -> Response {
    match input.and_then(|input| take(driver, input)) {
        Ok(()) => {
            let answer = SampleAnswer { accepted: true, stopped: driver.is_stopped() };
            warp::reply::json(&answer).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn take(driver: &Driver, input: Input) -> Result<(), Problem> {
    driver.take(input).map_err(|error| {
        Problem::new(StatusCode::INSUFFICIENT_STORAGE, "too_many_hosts", error.to_string())
    })
}

fn one_host(driver: &Driver, name: &str) -> Response {
    match HostName::new(name).ok().and_then(|name| driver.view(&name)) {
        Some(view) => warp::reply::json(&view).into_response(),
        None => {
            let error = format!("no hook, sample or poll has named a host {name:.200?}");
            Problem::new(StatusCode::NOT_FOUND, "unknown_host", error).into_response()
        }
    }
}

fn parse_event(body: &[u8], who: &Speaker) -> Result<Input, Problem> {
    let event: HookEvent = parse(body, "hook event")?;
    who.speaks_of(&event.host)?;
    check_cores("event", event.resources.cores)?;
    Ok(Input::Hook(event))
}

fn parse_sample(body: &[u8], who: &Speaker) -> Result<Input, Problem> {
    let sample: HostSample = parse(body, "host sample")?;
    who.speaks_of(&sample.host)?;
    check_cores("sample", Some(sample.cores))?;
    if sample.bookings.len() > BOOKINGS_MAX {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "out_of_bounds",
            format!("{} bookings are more than {BOOKINGS_MAX}", sample.bookings.len()),
        ));
    }
    Ok(Input::Sample(sample))
}

fn parse<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "malformed", format!("not a {what}: {error}"))
    })
}

fn check_cores(what: &str, cores: Option<u32>) -> Result<(), Problem> {
    match cores {
        Some(cores) if cores > CORES_MAX => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "out_of_bounds",
            format!("the {what} has {cores} cores, more than {CORES_MAX}"),
        )),
        _ => Ok(()),
    }
}

async fn refuse(rejection: Rejection) -> Result<Response, Infallible> {
    if let Some(problem) = rejection.find::<Problem>() {
        return Ok(problem.clone().into_response());
    }
    let (status, code, error) = if rejection.find::<PayloadTooLarge>().is_some() {
        (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is too large for this request")
    } else if rejection.find::<LengthRequired>().is_some() {
        (StatusCode::LENGTH_REQUIRED, "length_required", "send a Content-Length header")
    } else if rejection.find::<MethodNotAllowed>().is_some() {
        (StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not take this method")
    } else {
        (StatusCode::BAD_REQUEST, "malformed", "the request cannot be read")
    };
    Ok(Problem::new(status, code, error).into_response())
}
