//! What a client is told when something is wrong.

use std::time::Duration;

use gleaner_protocol::api::ApiError;
use gleaner_protocol::limits::bounded_reason;
use warp::http::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use warp::http::{Method, StatusCode};

use crate::limits::PATH_CHARS_MAX;

/// An answer with a status of 400 or above: returned by a handler, rejected by a filter, or
/// mapped from what warp rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    error: String,
    earliest_due_ms: Option<u64>,
    retry_after_s: Option<u64>,
    /// What may be asked instead, of a path that does not take a method.
    allow: Option<String>,
}

impl Problem {
    /// `code` for programs, `error` for people: what, on what, and what to do.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, error: impl Into<String>) -> Self {
        Self {
            status,
            code,
            error: bounded_reason(error.into()),
            earliest_due_ms: None,
            retry_after_s: None,
            allow: None,
        }
    }

    /// The same with the time when a job could be due.
    #[must_use]
    pub fn with_earliest_due_ms(self, earliest_due_ms: Option<u64>) -> Self {
        Self { earliest_due_ms, ..self }
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

    /// 404: nothing is at this path.
    pub(crate) fn no_route(method: &Method, path: &str) -> Self {
        let error = format!("there is no {method} {}", shortened(path));
        Self::new(StatusCode::NOT_FOUND, "no_route", error)
    }

    /// 405: something else may be asked of this path, where it is known what.
    pub(crate) fn wrong_method(method: &Method, path: &str, allowed: &[&Method]) -> Self {
        let error = format!("{} does not take {method}", shortened(path));
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", error);
        let allow: Vec<&str> = allowed.iter().map(|method| method.as_str()).collect();
        Self { allow: Some(allow.join(", ")).filter(|allow| !allow.is_empty()), ..problem }
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

    /// 429: who asks has asked more than may be, and may again after a while.
    #[must_use]
    pub fn too_fast(owner: &str, wait: Duration) -> Self {
        let wait_s = wait.as_secs_f64();
        let error = format!("{owner} asks too fast: the next request may come in {wait_s:.1} s");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", error);
        Self { retry_after_s: Some(wait_s.ceil().max(1.0) as u64), ..problem }
    }

    /// 429: more than may be for now, and less after a while.
    #[must_use]
    pub fn too_often(wait: Duration, error: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_much", error);
        Self { retry_after_s: Some(wait.as_secs().max(1)), ..problem }
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

/// What of a path is said again.
pub(crate) fn shortened(path: &str) -> String {
    path.chars().take(PATH_CHARS_MAX).collect()
}

impl warp::reject::Reject for Problem {}

impl warp::Reply for Problem {
    fn into_response(self) -> warp::reply::Response {
        let body = ApiError {
            code: self.code.to_owned(),
            error: self.error,
            earliest_due_ms: self.earliest_due_ms,
        };
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
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        if let Some(retry_after_s) = self.retry_after_s {
            headers.insert(RETRY_AFTER, retry_after_s.into());
        }
        response
    }
}
