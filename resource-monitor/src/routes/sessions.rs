//! How somebody with a key gets a session.

use std::sync::Arc;

use bytes::Bytes;
use gleaner_protocol::people::{ChallengeRequest, SessionRequest};
use gleaner_serve::{Problem, any_of, body_bytes};
use serde::Serialize;
use warp::filters::BoxedFilter;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::parse;
use crate::limits::OPEN_BODY_BYTES_MAX;
use crate::people::People;

/// Paths that are open to all: what comes there proves itself.
pub(crate) const OPEN: &[&str] = &["/v1/challenge", "/v1/session"];

pub(super) fn routes(people: Arc<People>) -> BoxedFilter<(Response,)> {
    let with_people = warp::any().map(move || Arc::clone(&people));
    let challenge = warp::path!("v1" / "challenge")
        .and(warp::post())
        .and(body_bytes(OPEN_BODY_BYTES_MAX))
        .and(with_people.clone())
        .map(|body: Bytes, people: Arc<People>| {
            let request = parse::<ChallengeRequest>(&body, "request for a challenge");
            answer(request.and_then(|request| people.challenge(request)))
        });
    let session = warp::path!("v1" / "session")
        .and(warp::post())
        .and(body_bytes(OPEN_BODY_BYTES_MAX))
        .and(with_people)
        .map(|body: Bytes, people: Arc<People>| {
            let request = parse::<SessionRequest>(&body, "request for a session");
            answer(request.and_then(|request| people.session(&request)))
        });
    any_of([challenge.boxed(), session.boxed()])
}

fn answer<T: Serialize>(said: Result<T, Problem>) -> Response {
    said.map_or_else(Reply::into_response, |said| warp::reply::json(&said).into_response())
}
