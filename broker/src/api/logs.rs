//! `/v1/jobs/{job}/log/{index}`: what the replicas of a workunit have printed, as far as it is kept.
//!
//! Of replicas with an output that is the end of their standard output and, where their job asked for
//! it, of their standard error; of those without one the reason, which has the end of their standard error.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use gleaner_protocol::api::{FailedReplica, PrintedText, ReplicaLog, WorkunitLog};
use gleaner_protocol::job::STDERR;
use gleaner_protocol::{Content, Digest, HostName, JobId};
use gleaner_scheduling::{Core, Job};
use gleaner_serve::Problem;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::results::{manifest, on_disk};
use super::{Api, handler_of, json, no_such};
use crate::limits::{LOG_BYTES_MAX, LOG_OUTPUTS_MAX};

impl Api {
    pub(super) fn log_routes(&self) -> BoxedFilter<(Response,)> {
        let log = warp::path!("v1" / "jobs" / String / "log" / u32).and(warp::get()).and(asker());
        handler_of(log.map(|job, index, who| (job, index, who)), self, send)
    }
}

/// Standard output, as every output has it.
const STDOUT: &str = "stdout";

/// What is known of a workunit's replicas.
struct Known {
    /// Why it has no output, where it was given up.
    reason: Option<String>,
    failed: Vec<FailedReplica>,
    /// Outputs, and where each came from, where that is known still.
    outputs: BTreeMap<Digest, Vec<HostName>>,
}

async fn send(api: Api, (job, index, who): (String, u32, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    let read = move |core: &Core| who.find(core, id).map(|job| known_of(core, job, index));
    let known = api.read(read).await?.ok_or_else(|| no_such(id))?;
    let Known { reason, failed, outputs } = known.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "not_found", format!("{id} has no workunit {index}"))
    })?;
    let mut logs = Vec::new();
    for (digest, hosts) in outputs.into_iter().take(LOG_OUTPUTS_MAX) {
        logs.push(ReplicaLog { digest, hosts, printed: printed(&api, digest).await? });
    }
    Ok(json(&WorkunitLog { reason, failed, outputs: logs }))
}

/// Nothing where a job has no such workunit.
fn known_of(core: &Core, job: &Job, index: u32) -> Option<Known> {
    if index >= job.workunit_count() {
        return None;
    }
    let mut known = Known {
        reason: job.ended.failure(index).map(str::to_owned),
        failed: Vec::new(),
        outputs: BTreeMap::new(),
    };
    known.outputs.extend(job.ended.digest(index).map(|digest| (digest, Vec::new())));
    let name = |host| core.farm().host(host).info.name.clone();
    if let Some(workunit) = job.open.get(&index) {
        let workunit = core.farm().workunit(*workunit);
        for attempt in &workunit.failed_attempts {
            let (host, cause) = (name(attempt.host), attempt.cause);
            known.failed.push(FailedReplica { host, cause, text: attempt.why.to_string() });
        }
        for vote in &workunit.votes {
            if let Some(digest) = vote.digest {
                known.outputs.entry(digest).or_default().push(name(vote.host));
            }
        }
    }
    Some(known)
}

/// The ends of what was printed; of an output that is not to be had, nothing.
async fn printed(api: &Api, output: Digest) -> Result<Vec<PrintedText>, Problem> {
    let small_blobs = api.small_blobs.clone();
    let Ok(manifest) = on_disk(move || manifest(&small_blobs, output)).await? else {
        return Ok(Vec::new());
    };
    let mut printed = Vec::new();
    for file in manifest.files().iter().filter(|file| [STDOUT, STDERR].contains(&&*file.name)) {
        let bytes = file.content.len();
        let from = bytes.saturating_sub(LOG_BYTES_MAX);
        let end = match &file.content {
            Content::Inline(content) => {
                Some(content.get(from as usize..).unwrap_or_default().to_vec())
            }
            Content::Stored { digest, .. } => end_of(api, *digest, from).await?,
        };
        if let Some(end) = end {
            let text = String::from_utf8_lossy(&end).into_owned();
            printed.push(PrintedText { name: file.name.clone(), bytes, from, text });
        }
    }
    Ok(printed)
}

/// A blob from some byte on, where it is here.
async fn end_of(api: &Api, digest: Digest, from: u64) -> Result<Option<Vec<u8>>, Problem> {
    let Some(content) = api.blobs.read_from(digest, from).await? else { return Ok(None) };
    let mut end = Vec::new();
    let mut stream = content.stream;
    while let Some(piece) = stream.try_next().await? {
        end.extend_from_slice(&piece);
        if end.len() as u64 > LOG_BYTES_MAX {
            break;
        }
    }
    Ok(Some(end))
}
