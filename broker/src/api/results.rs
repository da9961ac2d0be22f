//! `/v1/jobs/{job}/results`: what was decided.

mod archive;

use gleaner_protocol::api::{ResultFile, ResultState, WorkunitResult};
use gleaner_protocol::limits::RESULT_TEXT_BYTES_MAX;
use gleaner_protocol::{Content, Digest, JobId, Manifest, stored};
use gleaner_scheduling::Job;
use gleaner_serve::{Problem, any_of};
use schemars::JsonSchema;
use serde::Deserialize;
use warp::filters::BoxedFilter;
use warp::http::header::CONTENT_DISPOSITION;
use warp::http::{HeaderValue, StatusCode};
use warp::reply::Response;
use warp::{Filter, Reply};

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::percent::decoded;
use super::{Api, blobs, handler_of, json, no_such};
use crate::limits::{RESULTS_PAGE_BYTES_MAX, RESULTS_PAGE_MAX};
use crate::store::SmallBlobs;

/// Which part of the list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
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
            .and(asker())
            .and(warp::query::<Page>())
            .map(|job, who, page| (job, who, page));
        let file = warp::path!("v1" / "jobs" / String / "results" / u32 / String)
            .and(warp::get())
            .and(asker())
            .map(|job, index, name, who| (job, index, name, who));
        let whole = warp::path!("v1" / "jobs" / String / "archive")
            .and(warp::get())
            .and(asker())
            .map(|job, who| (job, who));
        any_of([
            handler_of(list, self, list_results),
            handler_of(file, self, send_file),
            handler_of(whole, self, archive::send),
        ])
    }
}

/// The manifest of a canonical output, or what is wrong with it.
pub(crate) fn manifest(small_blobs: &SmallBlobs, digest: Digest) -> Result<Manifest, String> {
    let lost = |why: String| format!("output {digest} cannot be read: {why}");
    let encoded = small_blobs.get(&digest).map_err(|error| lost(error.chain()))?;
    let encoded = encoded.ok_or_else(|| lost("it is not in the store".into()))?;
    stored::decode(&encoded).map_err(|error| lost(error.to_string()))
}

async fn list_results(
    api: Api,
    (job, who, page): (String, Asker, Page),
) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let Page { from, limit } = page;
    if limit == 0 || limit > RESULTS_PAGE_MAX {
        let error = format!("limit is {limit}, must be from 1 to {RESULTS_PAGE_MAX}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error));
    }
    let ended = api.read(move |core| Some(ended_from(who.find(core, id)?, from, limit))).await?;
    let ended = ended.ok_or_else(|| no_such(id))?;
    let results = on_disk(move || look_up(&api.small_blobs, ended)).await?;
    Ok(json(&results))
}

/// Looks up as many as one answer holds.
fn look_up(small_blobs: &SmallBlobs, ended: Vec<(u32, Ended)>) -> Vec<WorkunitResult> {
    let mut results: Vec<WorkunitResult> = Vec::new();
    let mut bytes = 0;
    for (index, ended) in ended {
        let result = match ended {
            Ended::Failed(reason) => ResultState::Failed { reason },
            Ended::Decided(digest) => decided(small_blobs, digest),
        };
        bytes += bytes_of(&result);
        if bytes > RESULTS_PAGE_BYTES_MAX && !results.is_empty() {
            break;
        }
        results.push(WorkunitResult { index, result });
    }
    results
}

/// About how long a result is in an answer.
fn bytes_of(result: &ResultState) -> usize {
    const FRAME: usize = 128;
    FRAME
        + match result {
            ResultState::Decided { files, .. } => {
                let of =
                    |file: &ResultFile| file.name.len() + file.text.as_ref().map_or(0, String::len);
                files.iter().map(|file| of(file) + FRAME).sum()
            }
            ResultState::Failed { reason } | ResultState::Damaged { reason, .. } => reason.len(),
        }
}

/// Does what may wait for a disk where it holds up nobody.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!("reading results failed: {error}");
        Problem::internal()
    })
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

fn ended_from(job: &Job, from: u32, limit: u32) -> Vec<(u32, Ended)> {
    let ended = job.ended.ended_from(from).map(|(index, result)| {
        let ended = result.map_or_else(|why| Ended::Failed(why.into()), Ended::Decided);
        (index, ended)
    });
    ended.take(limit as usize).collect()
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
    (job, index, name, who): (String, u32, String, Asker),
) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let name = decoded(&name)?;
    let digest = api
        .read(move |core| who.find(core, id).and_then(|job| job.ended.digest(index)))
        .await?
        .ok_or_else(|| no_such(format!("decided workunit {id}/{index}")))?;
    let small_blobs = api.small_blobs.clone();
    let manifest = on_disk(move || manifest(&small_blobs, digest)).await?.map_err(|error| {
        tracing::error!("{error}");
        blobs::damaged(error)
    })?;
    let file = manifest.files().iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| no_such(format!("file {name:?} in {id}/{index}")))?;
    match &file.content {
        Content::Inline(bytes) => Ok(attached(bytes.clone().into_response())),
        Content::Stored { digest, .. } => {
            blobs::send(&api, *digest).await?.map(attached).ok_or_else(|| {
                let error = format!("blob {digest} of {id}/{index} is not in the store any more");
                tracing::error!("{error}");
                blobs::damaged(error)
            })
        }
    }
}

/// A browser keeps it as a file, whatever it is.
fn attached(mut file: Response) -> Response {
    file.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    file
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::OutputFile;

    use super::*;
    use crate::store::{Commit, DataFolder, Journal, SledJournal, StoreOptions};

    #[test]
    fn an_answer_ends_where_it_grows_too_long_and_never_before_its_first_result() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = DataFolder::open(folder.path()).expect("free");
        let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
        let (mut journal, _) = SledJournal::open(opened, options, |_| Ok::<(), std::io::Error>(()))
            .expect("a new store");
        let text = vec![b'x'; RESULT_TEXT_BYTES_MAX];
        let file = |number: usize| OutputFile {
            name: format!("file-{number}"),
            content: Content::Inline(text.clone()),
        };
        let manifest = Manifest::new((0..64).map(file).collect()).expect("a manifest");
        let (digest, encoded) = (manifest.digest(), manifest.encode());
        let commit = Commit { records: vec![], small_blobs: vec![(digest, &encoded[..])] };
        journal.append(&commit).expect("a healthy store");
        let ended = || (0..RESULTS_PAGE_MAX).map(|index| (index, Ended::Decided(digest)));
        let results = look_up(&journal.small_blobs(), ended().collect());
        let json = serde_json::to_vec(&results).expect("JSON");
        assert!(json.len() <= RESULTS_PAGE_BYTES_MAX, "{} bytes", json.len());
        assert!(results.len() > 100 && results.len() < RESULTS_PAGE_MAX as usize);
        assert!(results.iter().zip(0..).all(|(result, index)| result.index == index));
        let long = Ended::Failed("y".repeat(2 * RESULTS_PAGE_BYTES_MAX));
        assert_eq!(look_up(&journal.small_blobs(), vec![(7, long)]).len(), 1);
    }
}
