//! `/v1/datasets`: what is kept in chunks, and where copies of these are.

use gleaner_protocol::api::{ChunkStatus, DatasetRequest, DatasetStatus};
use gleaner_protocol::{ChunkFile, ChunkId, DatasetId, DatasetName, OwnerName, Reads, error_chain};
use gleaner_scheduling::{Core, JobPhase};
use gleaner_serve::{Problem, any_of};
use schemars::JsonSchema;
use serde::Deserialize;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::percent::decoded;
use super::{Api, body, handler_of, json, no_such, page_limit, parse};
use crate::datasets::{ManifestError, Refusal, read_manifest};
use crate::driver::Command;
use crate::limits::CHUNKS_PAGE_MAX;

/// Whose dataset is meant, where several have one of a name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    owner: Option<OwnerName>,
}

/// The same, and which part of its chunks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    owner: Option<OwnerName>,
    from: Option<u32>,
    limit: Option<usize>,
}

impl Api {
    pub(super) fn dataset_routes(&self) -> BoxedFilter<(Response,)> {
        let datasets = warp::path!("v1" / "datasets");
        let dataset = warp::path!("v1" / "datasets" / String);
        let chunks = warp::path!("v1" / "datasets" / String / "chunks");
        let added = datasets.and(warp::post()).and(asker()).and(body());
        let whose = || warp::query::<Whose>();
        let of = |name, who, Whose { owner }| (name, who, owner);
        let listed = chunks.and(warp::get()).and(asker()).and(warp::query::<Page>());
        any_of([
            handler_of(added.map(|who, body| (who, body)), self, add),
            handler_of(datasets.and(warp::get()).and(asker()), self, list),
            handler_of(dataset.and(warp::get()).and(asker()).and(whose()).map(of), self, show),
            handler_of(dataset.and(warp::delete()).and(asker()).and(whose()).map(of), self, remove),
            handler_of(listed.map(|name, who, page| (name, who, page)), self, list_chunks),
        ])
    }

    /// Does what may wait for a disk where it holds up nobody.
    pub(super) async fn of_datasets<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let api = self.clone();
        tokio::task::spawn_blocking(move || work(&api)).await.map_err(|_| Problem::internal())?
    }

    /// The dataset of this name that is there for whoever asks.
    pub(super) fn find_dataset(
        &self,
        who: &Asker,
        name: &str,
        owner: Option<OwnerName>,
    ) -> Result<DatasetId, Problem> {
        let name: DatasetName = parse_id(name)?;
        if !has_datasets(who) {
            return Err(no_such(format!("dataset {name}")));
        }
        let owner = who.owner().cloned().or(owner);
        match self.datasets.named(&name, owner.as_ref())[..] {
            [id] => Ok(id),
            [] => Err(no_such(match owner {
                Some(owner) => format!("dataset {name} of {owner}"),
                None => format!("dataset {name}"),
            })),
            _ => Err(Problem::conflict(format!(
                "several owners have a dataset {name}: say whose is meant (--owner)"
            ))),
        }
    }

    /// Checks the dataset that a job reads, and notes how large its chunks are.
    pub(super) fn check_reads(
        &self,
        who: &Asker,
        reads: &mut Reads,
        workunits: u32,
    ) -> Result<(), Problem> {
        let bad = |error: String| Problem::new(StatusCode::BAD_REQUEST, "no-dataset", error);
        let id = reads.dataset;
        if !self.datasets.is_there(id, who.owner()) {
            return Err(bad(format!(
                "there is no {id} at this broker: `gleaner dataset list` has all"
            )));
        }
        let manifest = self.datasets.table().manifest(id);
        let manifest = manifest.ok_or_else(|| bad(format!("the manifest of {id} is damaged")))?;
        let chunks = manifest.work_chunks();
        if workunits > chunks {
            return Err(bad(format!(
                "the job has {workunits} workunits and {id} has {chunks} chunks: give it one for each"
            )));
        }
        // Where another run of chunks is read, that is the broker's doing.
        (reads.chunk_bytes, reads.first) = (manifest.longest(), 0);
        Ok(())
    }
}

/// Whether there are any for whoever asks: a project's viewer sees jobs alone.
fn has_datasets(who: &Asker) -> bool {
    who.sees_all() || who.owner().is_some()
}

async fn add(api: Api, (who, body): (Asker, bytes::Bytes)) -> Result<Response, Problem> {
    api.committer.admit().map_err(|error| Problem::from(&*error))?;
    let mut request: DatasetRequest = parse(&body, "dataset")?;
    if let Some(owner) = who.owner() {
        request.owner = owner.clone();
    }
    let missing = |what: String| {
        let error = format!("{what} was not uploaded: PUT /v1/blobs/ it first");
        Problem::new(StatusCode::BAD_REQUEST, "missing-chunk", error)
    };
    let digest = request.manifest;
    if api.blobs.keep(digest).await?.is_none() {
        return Err(missing(format!("the manifest {digest}")));
    }
    let manifest = read_manifest(&*api.blobs, digest).await.map_err(|error| match error {
        ManifestError::Store(error) => Problem::from(error),
        why => Problem::malformed(format!("the manifest {digest} {}", error_chain(&why))),
    })?;
    for (chunk, index) in manifest.chunks.iter().zip(0..) {
        let found = api.blobs.keep(chunk.digest).await?;
        if found != Some(chunk.bytes) {
            let bytes = chunk.bytes;
            return Err(missing(format!("chunk {index} ({}, {bytes} bytes)", chunk.digest)));
        }
    }
    let id = api
        .of_datasets(move |api| api.datasets.add(&request, manifest).map_err(Problem::from))
        .await?;
    api.driver.send(Command::DatasetAdded(id)).await?;
    let status = api.datasets.status(id).ok_or_else(|| no_such(id))?;
    Ok(warp::reply::with_status(json(&status), StatusCode::CREATED).into_response())
}

async fn list(api: Api, who: Asker) -> Result<Response, Problem> {
    let ids = if has_datasets(&who) { api.datasets.all(who.owner()) } else { Vec::new() };
    let all: Vec<DatasetStatus> =
        ids.into_iter().filter_map(|id| api.datasets.status(id)).collect();
    Ok(json(&all))
}

async fn show(
    api: Api,
    (name, who, owner): (String, Asker, Option<OwnerName>),
) -> Result<Response, Problem> {
    let id = api.find_dataset(&who, &decoded(&name)?, owner)?;
    let mut status = api.datasets.status(id).ok_or_else(|| no_such(id))?;
    let (mut from, all) = (0, status.chunks);
    // A part at a time: the driver has others to serve.
    while from < all {
        let to = all.min(from + CHUNKS_PAGE_MAX as u32);
        let counts = api.read(move |core| copies_of(core, id, from, to)).await?;
        for count in counts {
            status.copied.resize(status.copied.len().max(count + 1), 0);
            status.copied[count] += 1;
        }
        from = to;
    }
    Ok(json(&status))
}

/// How many connected hosts have a copy of each of some chunks.
fn copies_of(core: &Core, dataset: DatasetId, from: u32, to: u32) -> Vec<usize> {
    let farm = core.farm();
    let count = |index| {
        let holders = farm.copies(ChunkId { dataset, index });
        holders.filter(|host| farm.host(*host).connected).count()
    };
    (from..to).map(count).collect()
}

async fn list_chunks(
    api: Api,
    (name, who, Page { owner, from, limit }): (String, Asker, Page),
) -> Result<Response, Problem> {
    let limit = page_limit(limit, CHUNKS_PAGE_MAX)?;
    let dataset = api.find_dataset(&who, &decoded(&name)?, owner)?;
    let manifest = api.datasets.table().manifest(dataset).ok_or_else(|| no_such(dataset))?;
    let from = from.unwrap_or(0);
    let to = (manifest.chunks.len() as u32).min(from.saturating_add(limit as u32));
    let hosts = api.read(move |core| {
        let of = |index| {
            let holders = core.farm().copies(ChunkId { dataset, index });
            holders.map(|host| core.farm().host(host).info.name.clone()).collect::<Vec<_>>()
        };
        (from..to).map(of).collect::<Vec<_>>()
    });
    let chunks = (from..to).zip(hosts.await?).filter_map(|(index, hosts)| {
        let ChunkFile { name, digest, bytes } = manifest.chunk(index)?;
        let bounds = manifest.chunks[index as usize].bounds;
        Some(ChunkStatus { index, name, digest, bytes, bounds, hosts })
    });
    Ok(json(&chunks.collect::<Vec<_>>()))
}

async fn remove(
    api: Api,
    (name, who, owner): (String, Asker, Option<OwnerName>),
) -> Result<Response, Problem> {
    let id = api.find_dataset(&who, &decoded(&name)?, owner)?;
    // Nobody begins to read it meanwhile.
    let _turn = api.datasets.turn().await;
    let in_use = api.read(move |core| is_read(core, id)).await?;
    let status = api.datasets.status(id).ok_or_else(|| no_such(id))?;
    api.of_datasets(move |api| api.datasets.remove(id, in_use).map_err(Problem::from)).await?;
    api.views.dataset_removed();
    if !in_use {
        api.driver.send(Command::DatasetRemoved(id)).await?;
    }
    Ok(json(&status))
}

/// Whether a job that goes on reads a dataset.
pub(crate) fn is_read(core: &Core, dataset: DatasetId) -> bool {
    let active = core.farm().kept_jobs().filter(|job| job.phase == JobPhase::Active);
    active.filter_map(|job| job.spec.profile.reads).any(|reads| reads.dataset == dataset)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NameTaken { .. } => Self::conflict(refusal.to_string()),
            Refusal::TooLarge { .. } => {
                Self::new(StatusCode::FORBIDDEN, "dataset_quota", refusal.to_string())
            }
            Refusal::Full => Self::unavailable("too-many", refusal.to_string()),
            Refusal::Disk(_) => Self::unavailable("unavailable", refusal.to_string()),
        }
    }
}
