//! `/v1/jobs/{job}/results`: what was decided.

use gleaner_protocol::api::{ResultFile, ResultState, WorkunitResult};
use gleaner_protocol::{Content, Digest, JobId, Manifest, codec};
use gleaner_scheduling::Core;
use gleaner_serve::Problem;
use serde::Deserialize;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::jobs::parse_id;
use super::{Api, blobs, handler_of, json, no_such};
use crate::limits::{RESULT_TEXT_BYTES_MAX, RESULTS_PAGE_MAX};
use crate::store::SmallBlobs;

/// Which part of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    from: u32,
    #[serde(default = "default_limit")]
    limit: u32,
}

const fn default_limit() -> u32 {
    1_000
}

/// How a workunit ended, without its content.
enum Ended {
    Decided(Digest),
    Failed(String),
}

impl Api {
    pub(super) fn result_routes(&self) -> BoxedFilter<(Response,)> {
        let list = warp::path!("v1" / "jobs" / String / "results")
            .and(warp::get())
            .and(warp::query::<Page>())
            .map(|job, page| (job, page));
        let file = warp::path!("v1" / "jobs" / String / "results" / u32 / String)
            .and(warp::get())
            .map(|job, index, name| (job, index, name));
        handler_of(list, self, list_results).or(handler_of(file, self, send_file)).unify().boxed()
    }
}

/// The manifest of a canonical output, or what is wrong with it.
pub(crate) fn manifest(small_blobs: &SmallBlobs, digest: Digest) -> Result<Manifest, String> {
    let lost = |why: String| format!("output {digest} cannot be read: {why}");
    let encoded = small_blobs.get(&digest).map_err(|error| lost(error.chain()))?;
    let encoded = encoded.ok_or_else(|| lost("it is not in the store".into()))?;
    codec::decode(&encoded).map_err(|error| lost(error.to_string()))
}

async fn list_results(api: Api, (job, page): (String, Page)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let Page { from, limit } = page;
    if limit == 0 || limit > RESULTS_PAGE_MAX {
        let error = format!("limit is {limit}, must be from 1 to {RESULTS_PAGE_MAX}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error));
    }
    let ended = api.read(move |core| ended_from(core, id, from, limit)).await?;
    let ended = ended.ok_or_else(|| no_such(id))?;
    let results = ended.into_iter().map(|(index, ended)| {
        let result = match ended {
            Ended::Failed(reason) => ResultState::Failed { reason },
            Ended::Decided(digest) => decided(&api.small_blobs, digest),
        };
        WorkunitResult { index, result }
    });
    Ok(json(&results.collect::<Vec<_>>()))
}

fn decided(small_blobs: &SmallBlobs, digest: Digest) -> ResultState {
    match manifest(small_blobs, digest) {
        Ok(manifest) => {
            let files = manifest.files().iter().map(|file| ResultFile {
                name: file.name.clone(),
                bytes: file.content.len(),
                text: short_text(&file.content),
            });
            ResultState::Decided { digest, files: files.collect() }
        }
        Err(reason) => {
            tracing::error!("{reason}");
            ResultState::Damaged { digest, reason }
        }
    }
}

fn ended_from(core: &Core, id: JobId, from: u32, limit: u32) -> Option<Vec<(u32, Ended)>> {
    let ended = core.farm().job(id)?.ended.ended_from(from).map(|(index, result)| {
        let ended = result.map_or_else(|why| Ended::Failed(why.into()), Ended::Decided);
        (index, ended)
    });
    Some(ended.take(limit as usize).collect())
}

fn short_text(content: &Content) -> Option<String> {
    match content {
        Content::Inline(bytes) if bytes.len() <= RESULT_TEXT_BYTES_MAX => {
            String::from_utf8(bytes.clone()).ok()
        }
        Content::Inline(_) | Content::Stored { .. } => None,
    }
}

async fn send_file(
    api: Api,
    (job, index, name): (String, u32, String),
) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let digest = api
        .read(move |core| core.farm().job(id).and_then(|job| job.ended.digest(index)))
        .await?
        .ok_or_else(|| no_such(format!("decided workunit {id}/{index}")))?;
    let manifest = manifest(&api.small_blobs, digest).map_err(|error| {
        tracing::error!("{error}");
        blobs::damaged(error)
    })?;
    let file = manifest.files().iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| no_such(format!("file {name:?} in {id}/{index}")))?;
    match &file.content {
        Content::Inline(bytes) => Ok(bytes.clone().into_response()),
        Content::Stored { digest, .. } => blobs::send(&api, *digest).await?.ok_or_else(|| {
            let error = format!("blob {digest} of {id}/{index} is not in the store any more");
            tracing::error!("{error}");
            blobs::damaged(error)
        }),
    }
}
