//! `/v1/jobs/{job}/workunits`: those that are begun and not ended, and where their replicas are.

use gleaner_protocol::JobId;
use gleaner_protocol::api::{OpenReplica, OpenWorkunit};
use gleaner_scheduling::{Core, Job, Workunit};
use gleaner_serve::Problem;
use schemars::JsonSchema;
use serde::Deserialize;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::{Api, handler_of, json, no_such, page_limit};
use crate::limits::WORKUNITS_PAGE_MAX;

/// Which part of the list: workunits from an index on. The list ends where a page is empty.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    #[serde(default)]
    from: u32,
    limit: Option<usize>,
}

impl Api {
    pub(super) fn workunit_routes(&self) -> BoxedFilter<(Response,)> {
        let list = warp::path!("v1" / "jobs" / String / "workunits").and(warp::get());
        let list = list.and(asker()).and(warp::query::<Page>());
        handler_of(list.map(|job, who, page| (job, who, page)), self, open)
    }
}

async fn open(
    api: Api,
    (job, who, Page { from, limit }): (String, Asker, Page),
) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let limit = page_limit(limit, WORKUNITS_PAGE_MAX)?;
    let read = move |core: &Core| Some(open_from(core, who.find(core, id)?, from, limit));
    let found = api.read(read).await?;
    Ok(json(&found.ok_or_else(|| no_such(id))?))
}

fn open_from(core: &Core, job: &Job, from: u32, limit: usize) -> Vec<OpenWorkunit> {
    let of = |(index, workunit)| status(core, index, core.farm().workunit(workunit));
    let open = job.open.range(from..).map(|(index, workunit)| (*index, *workunit));
    open.take(limit).map(of).collect()
}

fn status(core: &Core, index: u32, workunit: &Workunit) -> OpenWorkunit {
    let replicas = workunit.pending.iter().map(|pending| {
        let host = core.farm().host(pending.host);
        OpenReplica {
            attempt: pending.attempt,
            is_parked: host.parked.iter().any(|lease| lease.token == pending.token),
            is_away: !host.connected,
            host: host.info.name.clone(),
        }
    });
    OpenWorkunit {
        index,
        waiting: workunit.waiting.into(),
        votes: u32::try_from(workunit.votes.len()).unwrap_or(u32::MAX),
        attempts: workunit.attempts,
        replicas: replicas.collect(),
    }
}
