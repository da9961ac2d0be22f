//! Answers that say no.

use gleaner_protocol::api::ApiError;
use gleaner_protocol::limits::bounded_reason;
use warp::Reply;
use warp::http::StatusCode;
use warp::reply::Response;

/// A request that is not fulfilled, and why.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    code: &'static str,
    error: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, error: String) -> Self {
        Self { status, code, error: bounded_reason(error) }
    }
}

impl Reply for Refusal {
    fn into_response(self) -> Response {
        let body = ApiError { code: self.code.to_owned(), error: self.error };
        warp::reply::with_status(warp::reply::json(&body), self.status).into_response()
    }
}
