//! `/v1/usage`: what ended replicas took, and what of it is charged.

use gleaner_protocol::api::UsageBy;
use gleaner_protocol::error_chain;
use gleaner_serve::Problem;
use serde::Deserialize;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::{Api, handler_of, json};
use crate::usage::{UsageError, UsageQuery};

/// What stands after `?`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    by: UsageBy,
    /// Replicas that ended then or later.
    from_ms: Option<u64>,
    /// Replicas that ended before then.
    to_ms: Option<u64>,
}

impl Api {
    pub(super) fn usage_routes(&self) -> BoxedFilter<(Response,)> {
        let usage = warp::path!("v1" / "usage").and(warp::get());
        let asked = usage.and(asker()).and(warp::query::<Asked>());
        handler_of(asked.map(|who, asked| (who, asked)), self, show)
    }
}

async fn show(api: Api, (who, asked): (Asker, Asked)) -> Result<Response, Problem> {
    let within_ms = asked.from_ms.unwrap_or(0)..asked.to_ms.unwrap_or(u64::MAX);
    let rows =
        api.usage.sum(UsageQuery { by: asked.by, within_ms, of: who.owner().cloned() }).await;
    Ok(json(&rows.map_err(problem)?))
}

fn problem(error: UsageError) -> Problem {
    match error {
        UsageError::TooMany => {
            Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error.to_string())
        }
        UsageError::Disk(_) | UsageError::Ends => {
            Problem::unavailable("unavailable", error_chain(&error))
        }
    }
}
