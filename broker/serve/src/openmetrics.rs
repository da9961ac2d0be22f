//! Metrics as an answer.

use warp::Reply;
use warp::reply::Response;

/// What Prometheus calls the format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers with metrics in OpenMetrics' text format.
#[must_use]
pub fn openmetrics(text: String) -> Response {
    warp::reply::with_header(text, "content-type", CONTENT_TYPE).into_response()
}
