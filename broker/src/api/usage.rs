//! `/v1/usage`: what ended replicas took, and what of it is charged.

use gleaner_protocol::api::{HistoryBy, UsageBy};
use gleaner_protocol::error_chain;
use gleaner_protocol::people::Role;
use gleaner_serve::Problem;
use schemars::JsonSchema;
use serde::Deserialize;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::{Api, handler_of, json};
use crate::usage::{UsageError, UsageQuery, Whose};

/// What stands after `?`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    by: UsageBy,
    /// Rows of each minute, hour or day.
    each: Option<HistoryBy>,
    /// Replicas that ended then or later.
    from_ms: Option<u64>,
    /// Replicas that ended before then.
    to_ms: Option<u64>,
    /// Replicas on hosts of who asks, whosever jobs they were of.
    #[serde(default)]
    mine: bool,
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
    let of = if asked.mine {
        let owner = who.identity().map(|identity| identity.owner);
        let nobody = "mine: who shows no key of their own has no hosts (`gleaner join`)";
        let owner = owner.ok_or_else(|| Problem::malformed(nobody.to_owned()))?;
        if !matches!(asked.by, UsageBy::Host | UsageBy::HostOwner | UsageBy::Outcome) {
            // Whose jobs run on a host is not its owner's matter.
            let jobs = "mine: ask by host, host-owner or outcome";
            return Err(Problem::malformed(jobs.to_owned()));
        }
        Some(Whose::Hosts(owner))
    } else if who.is_agent()
        || who.identity().is_some_and(|of| matches!(of.role, Role::Viewer | Role::Operator))
    {
        let why = "usage is not for a viewer, an operator or an agent, but for what ran on hosts of your own: ask for mine \
                   (`gleaner usage --mine`)";
        return Err(Problem::new(StatusCode::FORBIDDEN, "role", why));
    } else {
        who.owner().cloned().map(Whose::Jobs)
    };
    let rows = api.usage.sum(UsageQuery { by: asked.by, each: asked.each, within_ms, of }).await;
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
