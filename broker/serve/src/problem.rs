//! What a client is told when something is wrong.

use gleaner_protocol::api::ApiError;
use gleaner_protocol::limits::bounded_reason;
use warp::http::StatusCode;
use warp::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

/// An answer with a status of 400 or above: returned by a handler, rejected by a filter, or
/// mapped from what warp rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    error: String,
}

impl Problem {
    /// `code` for programs, `error` for people: what, on what, and what to do.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, error: impl Into<String>) -> Self {
        Self { status, code, error: bounded_reason(error.into()) }
    }

    /// 400: what was sent cannot be used.
    #[must_use]
    pub fn malformed(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", error)
    }

    /// 404: what was named is not here.
    #[must_use]
    pub fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", error)
    }

    /// 409: it contradicts what is.
    #[must_use]
    pub fn conflict(error: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", error)
    }

    /// 413: a body over its limit.
    #[must_use]
    pub fn too_large(limit_bytes: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is longer than {limit_bytes} bytes"),
        )
    }

    /// 503: not now.
    #[must_use]
    pub fn unavailable(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, error)
    }

    /// 500: our fault. The client learns no details.
    #[must_use]
    pub fn internal() -> Self {
        let error = "the server failed on this request; its log says how";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error)
    }

    /// Its status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Its word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// Its sentence for people.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.error
    }
}

impl warp::reject::Reject for Problem {}

impl warp::Reply for Problem {
    fn into_response(self) -> warp::reply::Response {
        let body = ApiError { code: self.code.to_owned(), error: self.error };
        let mut response =
            warp::reply::with_status(warp::reply::json(&body), self.status).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}
